//! Java locks: the reason of their waits, and which of them have an owner.

use std::sync::Arc;

use super::pattern::matches;
use crate::profile::Frame;
use crate::profile::kind::Origin;
use crate::sample::{Lock, LockKind};

/// The lock of a wait, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockView {
    /// The name of the lock's class.
    pub class: Arc<str>,
    /// The name of the thread that had the lock; `None` if it is not known, or if no thread owns such a lock.
    pub owner: Option<Arc<str>>,
}

/// Classes of `java.util.concurrent` whose waits end when an owner releases the lock. The classes of semaphores, queues
/// and futures have none.
const OWNED: &[&str] = &["ReentrantLock$", "ReentrantReadWriteLock$", "StampedLock"];

/// Methods in which code waits for its locks: not the places that a reader looks for.
const WAITING: &[&str] = &[
    "java.lang.Object.wait*",
    "java.lang.VirtualThread.*",
    "java.lang.System$*.parkVirtualThread",
    "java.util.concurrent.*",
    "jdk.internal.misc.*",
    "sun.misc.Unsafe.*",
];

/// The method that waits for its lock: the innermost one outside of the JDK's code for locks.
pub(super) fn waiting_method(frames: &[Arc<Frame>]) -> Option<Arc<str>> {
    let of_java = frames.iter().rev().filter(|frame| frame.kind.origin() == Origin::Java);
    let is_own = |frame: &&Arc<Frame>| !WAITING.iter().any(|pattern| matches(pattern, &frame.name));
    of_java.clone().find(is_own).or_else(|| of_java.clone().next()).map(|frame| Arc::clone(&frame.name))
}

/// The reason of a wait for a lock of this kind.
pub(super) fn reason_of(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Monitor => "monitor",
        LockKind::Wait => "Object.wait",
        LockKind::Park => "park",
    }
}

/// The reason in the text of a leaf, without the class of a lock: `monitor` of `monitor com.example.Cache`.
pub(super) fn without_class(text: &str) -> &str {
    let kinds = [LockKind::Monitor, LockKind::Wait, LockKind::Park];
    let is_before_class =
        |reason: &&str| text.strip_prefix(*reason).is_some_and(|rest| rest.starts_with(' '));
    kinds.map(reason_of).into_iter().find(is_before_class).unwrap_or(text)
}

/// The lock, if a wait with this reason is a wait for it.
pub(super) fn view_of(lock: &Lock, reason: &str) -> Option<LockView> {
    let class = lock.class_name.as_ref().filter(|_| reason == reason_of(lock.kind))?;
    let owner = lock.owner_name.as_ref().filter(|_| has_owner(lock.kind, class));
    Some(LockView { class: Arc::clone(class), owner: owner.cloned() })
}

fn has_owner(kind: LockKind, class: &str) -> bool {
    let of_locks = || class.strip_prefix("java.util.concurrent.locks.");
    match kind {
        LockKind::Monitor => true,
        LockKind::Wait => false,
        LockKind::Park => of_locks().is_some_and(|name| OWNED.iter().any(|owned| name.starts_with(owned))),
    }
}
