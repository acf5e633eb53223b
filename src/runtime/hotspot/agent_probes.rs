//! Probes in the agents of JVMs that choose the samples of their allocations themselves: JVMs whose `libjvm.so` has no
//! symbols, or all if the user wants that. The stage of JVMs makes the agent sample when it attaches the agent; here is the
//! probe for what the agent passes on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::no_allocations::{MAX_FILES, NoAllocations, jvms};
use crate::capture::{AllocationArguments, AllocationLink, AllocationProbes};
use crate::jvm;
use crate::process::TimedCalls;
use crate::symbolize::ProbedFile;
use crate::world::{AgentSamplingRequests, AgentSamplingState, World};

/// Why the agent of a JVM is to sample allocations.
pub(super) enum AgentProbeCause {
    /// Its `libjvm.so` has no symbols. The path of the file, fit to print.
    Stripped(String),
    /// The user wants so.
    Chosen,
}

/// A JVM whose agent is to sample allocations.
struct AgentProbe {
    cause: AgentProbeCause,
    probe: AgentProbeState,
    is_reported: bool,
}

enum AgentProbeState {
    /// The agent has not replied yet.
    Waiting,
    Attached(#[allow(dead_code, reason = "the probe lasts as long as this")] AllocationLink),
    /// The JVM was sampled until it ended.
    Ended,
    Refused(String),
}

/// The probes of all such JVMs, by pid.
#[derive(Default)]
pub(super) struct AgentProbes(BTreeMap<u32, AgentProbe>);

impl AgentProbes {
    /// Asks for samples by the agent of a JVM.
    pub(super) fn want(&mut self, tgid: u32, cause: AgentProbeCause, sampling: &AgentSamplingRequests) {
        sampling.want(tgid);
        self.0.entry(tgid).or_insert_with(|| AgentProbe {
            cause,
            probe: AgentProbeState::Waiting,
            is_reported: false,
        });
    }

    /// The process has executed another program, or is another process.
    pub(super) fn forget(&mut self, tgid: u32, sampling: &AgentSamplingRequests) {
        if self.0.remove(&tgid).is_some() {
            sampling.forget(tgid);
        }
    }

    /// Attaches the program to the agents that have begun to sample.
    pub(super) fn attach(&mut self, world: &World, probes: &AllocationProbes, timed_calls: &mut TimedCalls) {
        for (_, jvm) in self.0.iter_mut().filter(|(tgid, _)| world.processes.has_ended(**tgid)) {
            if matches!(jvm.probe, AgentProbeState::Attached(_)) {
                jvm.probe = AgentProbeState::Ended;
            }
        }
        let mut attached =
            self.0.values().filter(|jvm| matches!(jvm.probe, AgentProbeState::Attached(_))).count();
        for (&tgid, jvm) in &mut self.0 {
            jvm.probe = match (&jvm.probe, world.agent_sampling.of(tgid)) {
                (AgentProbeState::Waiting, Some(AgentSamplingState::Granted(_))) if attached >= MAX_FILES => {
                    AgentProbeState::Refused(NoAllocations::TooMany.to_string())
                }
                (AgentProbeState::Waiting, Some(AgentSamplingState::Granted(agent))) => {
                    let probes = probes.clone();
                    match timed_calls.run(tgid, move || attach(&probes, &agent)) {
                        Ok(Ok(link)) => {
                            attached += 1;
                            log::info!("allocations: the agent in process {tgid} is probed");
                            AgentProbeState::Attached(link)
                        }
                        Ok(Err(why)) => AgentProbeState::Refused(why.to_string()),
                        Err(_) => AgentProbeState::Refused(NoAllocations::TooSlow.to_string()),
                    }
                }
                // The agent may also stop to sample.
                (
                    AgentProbeState::Waiting | AgentProbeState::Attached(_),
                    Some(AgentSamplingState::Refused(why)),
                ) => {
                    log::warn!("allocations: the agent in process {tgid}: {why}");
                    jvm.is_reported = false;
                    AgentProbeState::Refused(why)
                }
                _ => continue,
            };
        }
    }

    /// Says of each JVM once how it is sampled, or why it is not, and forgets those that have ended.
    pub(super) fn report(&mut self, world: &World) -> Vec<String> {
        let mut named: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (tgid, jvm) in self.0.iter_mut().filter(|(_, jvm)| !jvm.is_reported) {
            // A later part says whether the agent has replied.
            jvm.is_reported = !matches!(jvm.probe, AgentProbeState::Waiting);
            named.entry(jvm.text()).or_default().push(*tgid);
        }
        let ended = |tgid: &u32| world.processes.has_ended(*tgid);
        for tgid in self.0.keys().copied().filter(ended).collect::<Vec<u32>>() {
            self.forget(tgid, &world.agent_sampling);
        }
        named.into_iter().map(|(text, tgids)| text.replacen("JVM", &jvms(&tgids), 1)).collect()
    }
}

impl AgentProbe {
    /// How the JVM is sampled, or why it is not; the first `JVM` stands for its number.
    fn text(&self) -> String {
        let AgentProbe { cause, probe, .. } = self;
        let why = match probe {
            AgentProbeState::Attached(_) | AgentProbeState::Ended => {
                let cause = match cause {
                    AgentProbeCause::Stripped(library) => {
                        format!(": {library} has no symbols of the functions AllocTracer::send_allocation_*")
                    }
                    AgentProbeCause::Chosen => String::new(),
                };
                return format!(
                    "allocations in JVM are sampled by SampledObjectAlloc and the agent, so their bytes are estimates{cause}"
                );
            }
            AgentProbeState::Refused(why) => why,
            AgentProbeState::Waiting => "it did not reply",
        };
        match cause {
            AgentProbeCause::Stripped(library) => format!(
                "allocations are not sampled in JVM: {library}: {}; the agent does not sample instead: {why}",
                NoAllocations::Stripped
            ),
            AgentProbeCause::Chosen => {
                format!("allocations are not sampled in JVM: the agent does not sample: {why}")
            }
        }
    }
}

/// Attaches the program to the function of an agent. The file is a copy of this profiler's agent, so the function is where
/// it is in the profiler's own.
fn attach(probes: &AllocationProbes, agent: &OwnedFd) -> Result<AllocationLink, NoAllocations> {
    let unreadable = |why: String| NoAllocations::Unreadable(why);
    let own = ProbedFile::from_bytes(jvm::AGENT.to_vec()).map_err(|why| unreadable(why.to_string()))?;
    let place = own.exported_function(jvm::ALLOCATED).map_err(|why| unreadable(why.to_string()))?;
    probes
        .attach(agent, place.offset, AllocationArguments::SampledObject, None)
        .map_err(|error| NoAllocations::Refused(error.to_string()))
}

/// What the agent of a JVM replied, or why it was not asked.
pub(super) fn result_of(
    attached: &mut Option<Result<Box<jvm::Attached>, jvm::AttachFailure>>,
) -> AgentSamplingState {
    let refused = |why: String| AgentSamplingState::Refused(why);
    match attached {
        None => refused("--java and the daemon's settings do not load it".into()),
        Some(Err(failed)) => refused(format!("it was not attached: {}", failed.refusal)),
        Some(Ok(attached)) => match attached.allocations.take() {
            Some(Ok(samples)) => AgentSamplingState::Granted(Arc::new(samples.agent)),
            Some(Err(why)) => refused(why.to_string()),
            None => refused("it was attached before this was known".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_of_this_binary_has_the_function() {
        let own = ProbedFile::from_bytes(jvm::AGENT.to_vec()).unwrap();
        assert!(own.exported_function(jvm::ALLOCATED).unwrap().offset > 0);
    }

    #[test]
    fn a_jvm_is_named_once_with_its_way_or_its_reason() {
        let sampling = AgentSamplingRequests::default();
        let mut probes = AgentProbes::default();
        probes.want(7, AgentProbeCause::Stripped("/opt/jdk/libjvm.so".to_owned()), &sampling);
        assert!(sampling.is_wanted(7));
        let text = |probes: &AgentProbes| probes.0[&7].text();
        assert!(text(&probes).ends_with("; the agent does not sample instead: it did not reply"));
        let why = result_of(&mut None);
        let AgentSamplingState::Refused(why) = why else { panic!("{why:?}") };
        probes.0.get_mut(&7).unwrap().probe = AgentProbeState::Refused(why);
        assert!(
            text(&probes).starts_with(
                "allocations are not sampled in JVM: /opt/jdk/libjvm.so: it has no symbols of the functions AllocTracer::"
            ),
            "{}",
            text(&probes)
        );
        probes.forget(7, &sampling);
        assert!(sampling.of(7).is_none() && probes.0.is_empty());
    }
}
