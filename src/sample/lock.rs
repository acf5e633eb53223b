//! The Java lock for which a thread waited.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How the thread waited for its lock, in the order of `JP_LOCKS` in `bpf/abi.h`, without `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// The thread that woke the waiting one; its id in the initial PID namespace.
    Waker(u32),
    /// The thread that still had the lock at the end of the wait; its id in the process's own PID namespace.
    Holder(u32),
    /// The thread that has the monitor still for which another thread waits. This is the id of the waiting thread, in the
    /// process's own PID namespace.
    OfWaiter(u32),
}

/// The numbers of a lock: `struct jp_lock` of `bpf/abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockNumbers {
    pub(crate) class: u64,
    pub(crate) owner: u32,
    pub(crate) kind: u16,
    pub(crate) owner_kind: u16,
}

impl LockNumbers {
    /// The lock; `None` if there is none.
    pub(crate) fn lock(self) -> Option<Lock> {
        let LockNumbers { class, owner, kind, owner_kind } = self;
        let kind = *LockKind::ALL.get(usize::from(kind).checked_sub(1)?)?;
        let owner = match owner_kind {
            1 => Some(LockOwner::Waker(owner)),
            2 => Some(LockOwner::Holder(owner)),
            _ => None,
        };
        Some(Lock { kind, class, owner, class_name: None, owner_name: None })
    }
}

/// The lock, as the BPF program found it at the end of the wait, or the loader during a wait that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_a_class_and_an_owner() {
        let lock = |kind, owner_kind| LockNumbers { class: 7, owner: 8, kind, owner_kind }.lock();
        assert_eq!(LockNumbers::default().lock(), None);
        assert_eq!((lock(4, 0), lock(u16::MAX, 1)), (None, None), "unknown kinds");
        let owners = [0, 1, 2, 3].map(|owner| lock(1, owner).unwrap().owner);
        assert_eq!(owners, [None, Some(LockOwner::Waker(8)), Some(LockOwner::Holder(8)), None]);
        assert_eq!(lock(3, 1).map(|lock| (lock.kind, lock.class)), Some((LockKind::Park, 7)));
    }
}
