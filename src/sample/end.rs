//! Why the walk of a user stack ended: the stop reason of the unwinder.

/// Why the walk of the user stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The outermost frame was reached.
    Root,
    /// The limit of 1,024 frames was reached, or that of what a walk may read: the root side is missing.
    Depth,
    /// The frame's memory could not be read.
    BadRead,
    /// The next frame does not lie above this one.
    NotUp,
    /// The return address is no user address; or, found out later, no address of code.
    BadPc,
    /// There is no user stack.
    NoUser,
    /// The frame pointer led nowhere, in a file's code of which no unwind table was loaded.
    NoTable,
    /// The unwind table has a rule that is not followed.
    NoRule,
    /// The pc lies in a JVM's code heap, but in no code that is in use there.
    NoBlob,
    /// A JVM's code was found without a frame as that code has: it was about to be made, changed or left.
    NoFrame,
    /// Another tool's uretprobe has replaced the return address, and the true one is not known.
    Uretprobe,
}

impl StopReason {
    /// Every reason, in the order of `JP_ENDS` in `bpf/abi.h`.
    pub const ALL: [StopReason; 11] = [
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
    ];
}
