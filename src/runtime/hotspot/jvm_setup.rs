//! The setup of a newly seen JVM: how to unwind its stacks, and where its names come from. The setup has a thread of its
//! own, since the JVM decides how long the setup takes, up to a deadline.

use std::sync::mpsc::Sender;

use super::{agent_probes, agent_rule};
use crate::jvm::{self, AttachFailure, AttachOptions, Attached, Jvm, OpenedMemory, Refusal};
use crate::plan::{AgentRule, JavaNaming, PermanentRefusals, Settings};
use crate::process::container::Node;
use crate::sample::{Event, MonoNs};
use crate::world::AgentSamplingRequests;

/// A JVM with its unwind description.
pub(super) struct DescribedJvm {
    pub(super) tgid: u32,
    pub(super) description: jvm::JvmDescription,
}

/// How a JVM was discovered.
pub(super) enum Discovery {
    /// The JVM ran before sampling began.
    Found(Jvm),
    /// The JVM mapped `libjvm.so` during the run, at this time.
    Begun(MonoNs),
}

impl Discovery {
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Discovery::Begun(_))
    }

    /// Whether the JVM is known to have begun during the run. Others are processes that had no turn before sampling
    /// began, or forks of JVMs.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Discovery::Begun(at) if *at != MonoNs::default())
    }
}

/// Samples of allocations that agents may be asked for.
#[derive(Clone, Debug)]
pub(super) struct AgentRequests {
    /// The mean number of bytes between two samples; `None` if allocations are not profiled.
    pub(super) interval: Option<u64>,
    /// The JVMs whose agents are asked.
    pub(super) sampling: AgentSamplingRequests,
}

impl AgentRequests {
    /// Shortest interval of the JVM, bytes: each sample costs the JVM some microseconds. The BPF program takes several
    /// samples of an object if the interval of the user is shorter.
    const MIN_INTERVAL: u64 = 16 << 10;

    pub(super) fn of(settings: &Settings) -> AgentRequests {
        let alloc = settings.events.iter().find(|of| of.event == Event::Alloc);
        AgentRequests { interval: alloc.map(|of| of.period), sampling: AgentSamplingRequests::default() }
    }

    /// The interval for the JVM with this pid; `None`: its agent is not asked.
    fn interval_of(&self, tgid: u32) -> Option<u64> {
        self.interval
            .filter(|_| self.sampling.is_wanted(tgid))
            .map(|interval| interval.max(Self::MIN_INTERVAL))
    }
}

/// The setup of one JVM.
pub(super) struct JvmSetup {
    pub(super) tgid: u32,
    pub(super) discovery: Discovery,
    pub(super) java: JavaNaming,
    /// The rules by which JVMs get the agent although names are read from memory.
    pub(super) agent_for: Vec<AgentRule>,
    pub(super) node: Node,
    pub(super) refused: PermanentRefusals,
    pub(super) options: AttachOptions,
    pub(super) requests: AgentRequests,
}

/// The result of a [`JvmSetup`].
pub(super) struct JvmSetupResult {
    pub(super) jvm: Option<Jvm>,
    /// Why the JVM's stacks are unwound by frame pointers alone.
    pub(super) undescribed: Option<Refusal>,
    /// Set if the JVM should have the agent, and its memory was opened instead.
    pub(super) no_agent: Option<NoAgent>,
    pub(super) names: Result<OpenedSource, AttachFailure>,
}

/// Why a JVM has no agent.
pub(super) struct NoAgent {
    pub(super) why: Refusal,
    /// The JVM refused in this session, not in an earlier one.
    pub(super) in_this_session: bool,
}

/// Where the names of a JVM come from.
pub(super) enum OpenedSource {
    Log(Box<Attached>),
    Memory(Box<OpenedMemory>),
    None,
}

impl JvmSetup {
    /// Runs the setup. Sends the unwind description to `described` as soon as it is known.
    pub(super) fn run(self, described: &Sender<DescribedJvm>) -> JvmSetupResult {
        let JvmSetup { tgid, discovery, java, agent_for, node, refused, options, requests } = self;
        let late = discovery.is_late();
        let jvm = match discovery {
            Discovery::Found(jvm) => Some(jvm),
            Discovery::Begun(at) => jvm::find(tgid).map(|jvm| jvm.mapped_at(at)),
        };
        let Some(jvm) = jvm else {
            let names = Err(AttachFailure { refusal: Refusal::Exited, inspection: None });
            return JvmSetupResult { jvm: None, undescribed: Some(Refusal::Exited), no_agent: None, names };
        };
        // When the session is over the channel has no receiver.
        let send = |description| described.send(DescribedJvm { tgid, description }).unwrap_or_default();
        let describe = || jvm::describe(&jvm, &options).map(send).err();
        // Opening the memory describes the JVM too, but waits for a JVM that has just started.
        let first = late.then(describe);
        let before = refused.refusal_of(&jvm);
        let asked = before.is_none();
        let is_allowed = || agent_for.iter().any(|rule| agent_rule::allows(rule, tgid, &node));
        let attaches = attaches(java, is_allowed);
        let opens = java.reads_memory() && !(attaches && asked);
        let first = first.or_else(|| (!opens).then(describe));
        let open = || match jvm::open(&jvm, &options) {
            Ok(opened) => {
                let again = opened.described().map(send).err();
                (Some(again), Ok(OpenedSource::Memory(Box::new(opened))))
            }
            Err(failed) => (None, Err(failed)),
        };
        let mut no_agent = None;
        let mut attached = attaches.then(|| {
            let options = AttachOptions { alloc_interval: requests.interval_of(tgid), ..options.clone() };
            attach(&jvm, before, &refused, &options)
        });
        requests.sampling.set(tgid, agent_probes::result_of(&mut attached));
        let (again, names) = match attached {
            Some(Err(AttachFailure { refusal: why, inspection }))
                if java.reads_memory() && why.allows_memory_reading() =>
            {
                no_agent = Some(NoAgent { why, in_this_session: asked });
                let (again, names) = open();
                let known = |failed: AttachFailure| AttachFailure {
                    inspection: failed.inspection.or(inspection),
                    ..failed
                };
                (again, names.map_err(known))
            }
            Some(attached) => (None, attached.map(OpenedSource::Log)),
            None if java.reads_memory() => open(),
            None => (None, Ok(OpenedSource::None)),
        };
        // A JVM that has just started makes more of its stubs meanwhile.
        let again = again.or_else(|| (late || first.is_none()).then(describe));
        let undescribed = [first, again].into_iter().flatten().reduce(Option::and).flatten();
        JvmSetupResult { jvm: Some(jvm), undescribed, no_agent, names }
    }
}

/// Whether a JVM should have the agent; `is_allowed`: a rule allows it although the others' names are read from memory.
fn attaches(java: JavaNaming, is_allowed: impl FnOnce() -> bool) -> bool {
    match java {
        JavaNaming::Auto | JavaNaming::Agent => true,
        JavaNaming::Vm => is_allowed(),
        JavaNaming::Off => false,
    }
}

/// Attaches the agent, unless the JVM has refused that before.
fn attach(
    jvm: &Jvm,
    before: Option<Refusal>,
    refused: &PermanentRefusals,
    options: &AttachOptions,
) -> Result<Box<Attached>, AttachFailure> {
    if let Some(refusal) = before {
        return Err(AttachFailure { refusal, inspection: None });
    }
    let attached = jvm::attach(jvm, options).map(Box::new);
    attached.inspect_err(|failed| refused.record_if_permanent(jvm, &failed.refusal))
}

#[cfg(test)]
mod tests {
    use super::{Discovery, JavaNaming, attaches};
    use crate::sample::MonoNs;

    #[test]
    fn only_a_jvm_that_was_seen_to_begin_has_all_its_pauses_in_the_run() {
        let waited_for_its_turn = Discovery::Begun(MonoNs::default());
        assert!(waited_for_its_turn.is_late() && !waited_for_its_turn.is_new());
        assert!(Discovery::Begun(MonoNs(1)).is_new());
    }

    #[test]
    fn rules_are_for_where_memory_is_read() {
        for (java, is_allowed, asked) in [
            (JavaNaming::Auto, false, true),
            (JavaNaming::Agent, false, true),
            (JavaNaming::Vm, true, true),
            (JavaNaming::Vm, false, false),
            (JavaNaming::Off, true, false),
        ] {
            assert_eq!(attaches(java, || is_allowed), asked, "{java:?} {is_allowed}");
        }
    }
}
