//! The thread that waits.

use crate::sample::{Lock, ThreadState};

/// The thread of a stack, as far as rules need it.
#[derive(Clone, Copy, Debug)]
pub struct WaitingThread<'a> {
    /// The thread's name in the kernel.
    pub comm: &'a [u8],
    /// A thread of the kernel: it never ran a program.
    pub is_kernel: bool,
    /// What the thread did.
    pub state: ThreadState,
    /// The Java lock for which it waited.
    pub lock: Option<&'a Lock>,
}
