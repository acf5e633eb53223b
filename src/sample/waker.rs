//! Who ended a wait.

use serde::{Deserialize, Serialize};

/// The id of a stack that ended a wait (`jp_record.waker` of `bpf/abi.h`): a hash of the stack, its process and its thread's
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WakerId(u64);

impl WakerId {
    /// The id; `None` if the wait is not over, or if wakers are not recorded. A wait whose waker was not seen has an id
    /// that no stack has.
    #[must_use]
    pub fn new(id: u64) -> Option<WakerId> {
        (id != 0).then_some(WakerId(id))
    }
}
