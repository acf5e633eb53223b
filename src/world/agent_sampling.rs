//! JVMs that choose the samples of their allocations themselves, by the agent.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of the samples of one JVM.
#[derive(Clone, Debug)]
pub(crate) enum AgentSamplingState {
    /// The agent must be asked when it is attached.
    Wanted,
    /// The agent in the JVM samples. Its file, as the JVM has mapped it.
    Granted(Arc<OwnedFd>),
    /// Why the agent does not sample.
    Refused(String),
}

/// From the stage of allocations, for runtimes: processes whose allocations the agent must sample, because their runtime
/// has no symbols for probes, or because the user wants so. And the results, back from runtimes. Threads that attach use clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentSamplingRequests(Arc<Mutex<BTreeMap<u32, AgentSamplingState>>>);

impl AgentSamplingRequests {
    /// Asks for samples of a process, unless it was asked for before.
    pub(crate) fn want(&self, tgid: u32) {
        self.lock().entry(tgid).or_insert(AgentSamplingState::Wanted);
    }

    /// Whether the agent must be asked.
    pub(crate) fn is_wanted(&self, tgid: u32) -> bool {
        matches!(self.of(tgid), Some(AgentSamplingState::Wanted))
    }

    /// Sets the result for a process, if samples were asked for.
    pub(crate) fn set(&self, tgid: u32, samples: AgentSamplingState) {
        if let Some(known) = self.lock().get_mut(&tgid) {
            *known = samples;
        }
    }

    /// What is known of the samples of a process; `None` if they are not wanted.
    pub(crate) fn of(&self, tgid: u32) -> Option<AgentSamplingState> {
        self.lock().get(&tgid).cloned()
    }

    /// Removes a process that has ended or executed another program.
    pub(crate) fn forget(&self, tgid: u32) {
        self.lock().remove(&tgid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, AgentSamplingState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_counts_for_processes_that_are_wanted() {
        let sampling = AgentSamplingRequests::default();
        sampling.set(7, AgentSamplingState::Refused("no".into()));
        assert!(sampling.of(7).is_none() && !sampling.is_wanted(7));
        sampling.want(7);
        assert!(sampling.clone().is_wanted(7));
        sampling.set(7, AgentSamplingState::Refused("no".into()));
        sampling.want(7);
        assert!(matches!(sampling.of(7), Some(AgentSamplingState::Refused(why)) if why == "no"));
        sampling.forget(7);
        assert!(sampling.of(7).is_none());
    }
}
