//! The Java lock for which a thread waited.

use std::sync::Arc;

/// How the thread waited for its lock, in the order of `JP_LOCKS` in `bpf/abi.h`, without `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// The thread entered a monitor: `synchronized`.
    Monitor,
    /// The thread waits for a notification of a monitor: `Object.wait`.
    Wait,
    /// The thread parked: a lock, queue or future of `java.util.concurrent`.
    Park,
}

impl LockKind {
    /// All kinds, in the order of `JP_LOCKS`.
    pub const ALL: [LockKind; 3] = [LockKind::Monitor, LockKind::Wait, LockKind::Park];
}

/// A thread of the same process that had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockOwner {
    /// The thread that woke the waiting one; its id in the initial PID namespace.
    Waker(u32),
    /// The thread that still had the lock at the end of the wait; its id in the process's own PID namespace.
    Holder(u32),
}

/// The lock, as the BPF program found it at the end of the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// How the thread waited.
    pub kind: LockKind,
    /// The address of the lock's class in the JVM.
    pub class: u64,
    /// Who had the lock, if that is known.
    pub owner: Option<LockOwner>,
    /// The name of the class, once the JVM's memory gave it.
    pub class_name: Option<Arc<str>>,
    /// The name of the owner's thread, once it was looked up.
    pub owner_name: Option<Arc<str>>,
}
