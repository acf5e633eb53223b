//! Waiting time of a run: measured by state, and sampled by reason.

use serde::{Deserialize, Serialize};

use crate::sample::ThreadState;

/// Waiting time by state, reason and rule of idleness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReport {
    /// Each state but running.
    pub states: Vec<WaitState>,
    /// Waits that were not measured: there was no room for the thread, or the kernel skipped a program.
    pub untimed: u64,
    /// Why threads waited that were not idle, the most frequent reason first.
    pub reasons: Vec<WaitReason>,
    /// Rules by which threads were idle, the most frequent first.
    pub idle: Vec<IdleRule>,
    /// The Java locks for which threads waited that were not idle, the most frequent first.
    #[serde(default)]
    pub locks: Vec<WaitLock>,
    /// The Java methods that waited for these locks, the most frequent first.
    #[serde(default)]
    pub lock_methods: Vec<LockMethod>,
}

/// The time that threads spent in a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitState {
    /// Any state but running.
    pub state: ThreadState,
    /// Nanoseconds, measured: the sum over all threads.
    pub ns: u64,
    /// Samples in this state that have a stack, with idle ones.
    pub samples: u64,
}

/// Samples with one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReason {
    /// What the thread did while it waited.
    pub state: ThreadState,
    /// Why the thread waited: `lock`, `disk read`, `in FUNCTION`.
    pub reason: String,
    /// Samples that have a stack; each stands for one period.
    pub samples: u64,
    /// The estimated number of these waits.
    #[serde(default)]
    pub waits: u64,
    /// The longest of these waits that has a sample, in nanoseconds. Each wait of two periods or more has one.
    #[serde(default)]
    pub longest_ns: u64,
}

/// Samples of waits for Java locks of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLock {
    /// Why the thread waited: `monitor`, `Object.wait`, `park`.
    pub reason: String,
    /// The class of the lock.
    pub class: String,
    /// The thread that released the lock; `None` if it is not known, or if no thread owns such a lock.
    pub owner: Option<String>,
    /// Samples that have a stack; each stands for one period.
    pub samples: u64,
    /// The estimated number of these waits.
    #[serde(default)]
    pub waits: u64,
    /// The longest of these waits that has a sample, in nanoseconds. Each wait of two periods or more has one.
    #[serde(default)]
    pub longest_ns: u64,
}

/// Samples of waits of one method for Java locks of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockMethod {
    /// Why the thread waited: `monitor`, `Object.wait`, `park`.
    pub reason: String,
    /// The class of the lock.
    pub class: String,
    /// The innermost Java method on the stack outside of the JDK's code for locks.
    pub method: String,
    /// Samples that have a stack; each stands for one period.
    pub samples: u64,
    /// The estimated number of these waits.
    pub waits: u64,
    /// The longest of these waits that has a sample, in nanoseconds. Each wait of two periods or more has one.
    pub longest_ns: u64,
}

/// Samples of threads that only waited for work, by one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRule {
    /// The rule's name, or the pattern of the user.
    pub rule: String,
    /// Samples that have a stack; each stands for one period.
    pub samples: u64,
}
