//! The unwinder's stop reasons.

use serde::{Deserialize, Serialize};

/// Why the unwinder stopped in a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StopReason {
    /// The outermost frame was reached.
    Root,
    /// The limit of 1,024 frames, or of memory reads for one sample, was reached: the root side is missing.
    Depth,
    /// The frame's memory could not be read.
    BadRead,
    /// The next frame does not lie above this one.
    NotUp,
    /// The return address is not a user address; or user space found that it is not an address of code.
    BadPc,
    /// There is no user stack.
    NoUser,
    /// The frame pointer is invalid, and no unwind table for this code of a file was loaded.
    NoTable,
    /// The unwind table has a rule that the unwinder does not support.
    NoRule,
    /// The pc lies in a JVM's code heap, but not in code that is in use.
    NoBlob,
    /// Code of a JVM without the frame that such code has: the frame was being built, changed or removed.
    NoFrame,
    /// Another tool's uretprobe replaced the return address, and the true one is unknown.
    Uretprobe,
    /// The thread is still waiting, and its stack could not be unwound from outside: only the pc from which it entered
    /// the kernel is known.
    Unfinished,
}

impl StopReason {
    /// All reasons, in the order of `JP_ENDS` in `bpf/abi.h`.
    pub const ALL: [StopReason; 12] = [
        StopReason::Root,
        StopReason::Depth,
        StopReason::BadRead,
        StopReason::NotUp,
        StopReason::BadPc,
        StopReason::NoUser,
        StopReason::NoTable,
        StopReason::NoRule,
        StopReason::NoBlob,
        StopReason::NoFrame,
        StopReason::Uretprobe,
        StopReason::Unfinished,
    ];
}
