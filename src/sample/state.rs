//! What a thread did in a sample.

use serde::{Deserialize, Serialize};

/// The state of a sample's thread, in the order of `JP_STATES` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadState {
    /// The thread ran on a CPU. All events but waiting time are sampled in this state.
    #[default]
    Running,
    /// The thread could run and had no CPU: it was preempted, or had been woken.
    Runnable,
    /// As runnable, but the quota of its cgroup was used up.
    Throttled,
    /// The thread waited uninterruptibly, mostly for a disk or a lock of the kernel.
    Blocked,
    /// The thread waited in a way that a signal can end: for a lock, a socket, a timer.
    Sleeping,
}

impl ThreadState {
    /// All states, in the order of `JP_STATES`.
    pub const ALL: [ThreadState; 5] = [
        ThreadState::Running,
        ThreadState::Runnable,
        ThreadState::Throttled,
        ThreadState::Blocked,
        ThreadState::Sleeping,
    ];

    /// The state's name in all formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ThreadState::Running => "running",
            ThreadState::Runnable => "runnable",
            ThreadState::Throttled => "throttled",
            ThreadState::Blocked => "blocked",
            ThreadState::Sleeping => "sleeping",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<ThreadState> {
        ThreadState::ALL.into_iter().find(|state| state.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadState;

    #[test]
    fn names_lead_back() {
        for state in ThreadState::ALL {
            assert_eq!(ThreadState::named(state.name()), Some(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
        }
        assert_eq!(ThreadState::named(""), None);
    }
}
