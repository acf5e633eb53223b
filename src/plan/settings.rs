//! What a session is asked for: plain data, valid by the time it gets here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::opted_in::OptedIn;
use super::refused::Refused;
use crate::process::container::Node;
use crate::process::selection::Selection;
use crate::profile::filter::Glob;
use crate::sample::Event;

/// Whose ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that runs.
    All,
    /// These processes.
    Pids(Vec<u32>),
    /// These threads.
    Tids(Vec<u32>),
    /// The cgroups of containers or others, with all below them.
    Groups(Selection),
    /// This command, from its first instruction, with its descendants.
    Launch(Vec<OsString>),
}

/// Where Java names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaNaming {
    /// The agent, attached to every JVM that is profiled; the memory of those that refuse it.
    Auto,
    /// The agent, attached to every JVM that is profiled, and nothing else.
    Agent,
    /// The memory of every JVM that is profiled: nothing is loaded into it.
    Vm,
    /// Nowhere: no JVM's compiled code is named.
    Off,
}

impl JavaNaming {
    /// Whether names are read out of the memory of a JVM that has no agent.
    pub(crate) fn reads_memory(self) -> bool {
        matches!(self, JavaNaming::Auto | JavaNaming::Vm)
    }
}

/// JVMs to which the agent is attached although it is not the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRule {
    /// Those that were started with this variable in their environment, and this value.
    Env(String, String),
    /// Those in a cgroup whose path is like this.
    Cgroup(Glob),
    /// Those in a pod whose `NAMESPACE/NAME` is like this.
    Pod(Glob),
    /// Those in a pod that opts in by an annotation.
    OptedIn(OptedIn),
}

impl AgentRule {
    pub(crate) fn opted_in(&self) -> Option<&OptedIn> {
        if let AgentRule::OptedIn(pods) = self { Some(pods) } else { None }
    }
}

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This binary: child processes are it again.
    pub binary: PathBuf,
    /// Whose ticks.
    pub target: Target,
    /// The node whose containers' names are shown.
    pub node: Node,
    /// Descendants of the chosen processes too.
    pub children: bool,
    /// Only these CPUs, if any are named.
    pub cpus: Option<Vec<u32>>,
    /// What is sampled, at least one, each once, and at which period: nanoseconds of CPU time, or so many events.
    pub events: Vec<(Event, u64)>,
    /// Samples a second that were asked for, before any limit of the host.
    pub requested_hz: f64,
    /// Whole seconds after which what was sampled is handed over, again and again; only at the end if there is none.
    pub part: Option<u32>,
    /// How long to sample; until a signal (or the end of the command) if there is no limit.
    pub duration: Option<Duration>,
    /// User frames wanted.
    pub user: bool,
    /// Kernel frames wanted.
    pub kernel: bool,
    /// Idleness shown.
    pub idle: bool,
    /// The profiler itself shown.
    pub include_self: bool,
    /// A frame for each thread.
    pub per_thread: bool,
    /// The second of each sample is told apart.
    pub seconds: bool,
    /// Thread names with their numbers.
    pub raw_threads: bool,
    /// Java names with their run-specific numbers.
    pub raw_names: bool,
    /// Where Java names come from.
    pub java: JavaNaming,
    /// The agent where it is allowed, whatever `java` says of the others.
    pub agent_for: Vec<AgentRule>,
    /// Whom not to ask any more: sessions that are to know of each other have the same.
    pub refused: Refused,
    /// JVMs that are attached to, or opened, at the same time.
    pub attach_at_once: usize,
    /// How long attaching to one JVM may take.
    pub attach_timeout: Duration,
    /// Attach even to builds of HotSpot that are known to crash.
    pub force_attach: bool,
    /// Kernel types from this file instead of the kernel.
    pub btf: Option<PathBuf>,
    /// A line that tells how far it is, on standard error.
    pub progress: bool,
}

impl Settings {
    /// The event that was asked for first.
    #[must_use]
    pub fn first(&self) -> Event {
        self.events.first().map_or_else(Event::default, |(event, _)| *event)
    }

    /// All processes, the clock, everything else off.
    #[cfg(test)]
    pub(crate) fn for_test() -> Settings {
        Settings {
            binary: PathBuf::new(),
            target: Target::All,
            node: Node::at("/"),
            children: false,
            cpus: None,
            events: vec![(Event::Cpu, 1_000_000)],
            requested_hz: 1000.0,
            part: None,
            duration: None,
            user: true,
            kernel: true,
            idle: false,
            include_self: false,
            per_thread: false,
            seconds: false,
            raw_threads: false,
            raw_names: false,
            java: JavaNaming::Off,
            agent_for: Vec::new(),
            refused: Refused::default(),
            attach_at_once: 1,
            attach_timeout: Duration::ZERO,
            force_attach: false,
            btf: None,
            progress: false,
        }
    }
}
