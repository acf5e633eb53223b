//! The setup of a newly seen JVM: how to unwind its stacks, and where its names come from. The setup has a thread of its
//! own, since the JVM decides how long the setup takes, up to a deadline.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::mpsc::Sender;

use super::{agent_probes, agent_rule};
use crate::jvm::{self, AttachFailure, AttachOptions, Attached, Jvm, OpenedMemory, Refusal};
use crate::plan::{AgentRule, JavaNaming, PermanentRefusals, Settings};
use crate::process::container::Node;
use crate::sample::{Event, MonoNs};
use crate::world::AgentSamplingRequests;

/// Whether a mapped file is HotSpot's library.
pub(super) fn is_libjvm(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/libjvm.so")
}

/// A JVM with its unwind description.
pub(super) struct DescribedJvm {
    pub(super) tgid: u32,
    pub(super) description: jvm::JvmDescription,
}

/// How a JVM was discovered.
pub(super) enum Discovery {
    /// The JVM ran before sampling began, and had an attach slot then.
    AtStart(Jvm),
    /// The JVM ran before sampling began and had no attach slot then, or is a fork of a JVM.
    Deferred,
    /// The JVM mapped `libjvm.so` during the run.
    Started { mapped_at: MonoNs },
}

impl Discovery {
    /// Whether the JVM is set up while sampling runs.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Discovery::Deferred | Discovery::Started { .. })
    }

    /// Whether the JVM started during the run.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Discovery::Started { .. })
    }
}

/// How agents sample allocations, and which JVMs' agents do.
#[derive(Clone, Debug)]
pub(super) struct AgentSamplingConfig {
    /// The mean number of bytes between two samples; `None` if allocations are not profiled.
    pub(super) interval: Option<u64>,
    /// The JVMs whose agents must sample, and how each agent replied.
    pub(super) requests: AgentSamplingRequests,
}

impl AgentSamplingConfig {
    /// Shortest interval of the JVM, bytes: each sample costs the JVM some microseconds. The BPF program takes several
    /// samples of an object if the interval of the user is shorter.
    const MIN_INTERVAL: u64 = 16 << 10;

    pub(super) fn of(settings: &Settings) -> AgentSamplingConfig {
        let alloc = settings.events.iter().find(|of| of.event == Event::Alloc);
        AgentSamplingConfig {
            interval: alloc.map(|of| of.period),
            requests: AgentSamplingRequests::default(),
        }
    }

    /// The interval for the JVM with this pid; `None`: its agent is not asked.
    fn interval_of(&self, tgid: u32) -> Option<u64> {
        self.interval
            .filter(|_| self.requests.is_wanted(tgid))
            .map(|interval| interval.max(Self::MIN_INTERVAL))
    }
}

/// The setup of one JVM.
pub(super) struct JvmSetup {
    pub(super) tgid: u32,
    pub(super) discovery: Discovery,
    pub(super) java: JavaNaming,
    /// The rules by which JVMs get the agent although names are read from memory.
    pub(super) agent_rules: Vec<AgentRule>,
    pub(super) node: Node,
    pub(super) refused: PermanentRefusals,
    pub(super) options: AttachOptions,
    pub(super) agent_sampling: AgentSamplingConfig,
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
        let JvmSetup { tgid, discovery, java, agent_rules, node, refused, options, agent_sampling } = self;
        let is_late = discovery.is_late();
        let jvm = match discovery {
            Discovery::AtStart(jvm) => Some(jvm),
            // The JVM has run for some time: nothing waits for its start.
            Discovery::Deferred => jvm::find(tgid).map(|jvm| jvm.mapped_at(MonoNs::default())),
            Discovery::Started { mapped_at } => jvm::find(tgid).map(|jvm| jvm.mapped_at(mapped_at)),
        };
        let Some(jvm) = jvm else {
            let names = Err(AttachFailure { refusal: Refusal::Exited, inspection: None });
            return JvmSetupResult { jvm: None, undescribed: Some(Refusal::Exited), no_agent: None, names };
        };
        let send = |description| {
            // When the session is over the channel has no receiver.
            let _ = described.send(DescribedJvm { tgid, description });
        };
        let describe = || DescriptionAttempt(jvm::describe(&jvm, &options).map(send).err());
        // Opening the memory describes the JVM too, but waits for a JVM that has just started.
        let first_attempt = is_late.then(describe);
        let earlier_refusal = refused.refusal_of(&jvm);
        let may_ask = earlier_refusal.is_none();
        let is_allowed = || agent_rules.iter().any(|rule| agent_rule::allows(rule, tgid, &node));
        let attaches = attaches(java, is_allowed);
        let opens_memory = java.reads_memory() && !(attaches && may_ask);
        let first_attempt = first_attempt.or_else(|| (!opens_memory).then(describe));
        let open = || match jvm::open(&jvm, &options) {
            Ok(opened) => {
                let attempt = DescriptionAttempt(opened.described().map(send).err());
                (Some(attempt), Ok(OpenedSource::Memory(Box::new(opened))))
            }
            Err(failed) => (None, Err(failed)),
        };
        let mut no_agent = None;
        let mut attached = attaches.then(|| {
            let options =
                AttachOptions { alloc_interval: agent_sampling.interval_of(tgid), ..options.clone() };
            attach(&jvm, earlier_refusal, &refused, &options)
        });
        agent_sampling.requests.set(tgid, agent_probes::result_of(&mut attached));
        let (second_attempt, names) = match attached {
            Some(Err(AttachFailure { refusal: why, inspection }))
                if java.reads_memory() && why.allows_memory_reading() =>
            {
                no_agent = Some(NoAgent { why, in_this_session: may_ask });
                let (second_attempt, names) = open();
                let with_inspection = |failed: AttachFailure| AttachFailure {
                    inspection: failed.inspection.or(inspection),
                    ..failed
                };
                (second_attempt, names.map_err(with_inspection))
            }
            Some(attached) => (None, attached.map(OpenedSource::Log)),
            None if java.reads_memory() => open(),
            None => (None, Ok(OpenedSource::None)),
        };
        // A JVM that has just started makes more of its stubs meanwhile.
        let second_attempt = second_attempt.or_else(|| (is_late || first_attempt.is_none()).then(describe));
        let attempts = [first_attempt, second_attempt].into_iter().flatten();
        // The JVM is described if either attempt succeeded. If both failed, the second error counts.
        let undescribed = attempts.map(|DescriptionAttempt(error)| error).reduce(Option::and).flatten();
        JvmSetupResult { jvm: Some(jvm), undescribed, no_agent, names }
    }
}

/// One attempt to read and send the unwind description: its error, or `None` if it succeeded.
struct DescriptionAttempt(Option<Refusal>);

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
    earlier_refusal: Option<Refusal>,
    refused: &PermanentRefusals,
    options: &AttachOptions,
) -> Result<Box<Attached>, AttachFailure> {
    if let Some(refusal) = earlier_refusal {
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
    fn only_a_jvm_that_started_during_the_run_has_all_its_pauses_in_the_run() {
        assert!(Discovery::Deferred.is_late() && !Discovery::Deferred.is_new());
        assert!(Discovery::Started { mapped_at: MonoNs(1) }.is_new());
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
