//! The settings of a session: plain data, validated before it gets here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::opted_in::OptedInPods;
use super::refused::PermanentRefusals;
use crate::process::container::Node;
use crate::process::selection::Selection;
use crate::profile::filter::Glob;
use crate::sample::{Event, EventPeriod};

/// Which processes or threads are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that runs on the host.
    All,
    /// These processes, by pid.
    Pids(Vec<u32>),
    /// These threads, by thread id.
    Tids(Vec<u32>),
    /// These cgroups, of containers or others, and all cgroups below them.
    Groups(Selection),
    /// This command, which the profiler starts, from its first instruction on, and its descendants.
    Launch(Vec<OsString>),
}

/// Which allocations of Java objects have samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JavaAllocations {
    /// The object for which a thread takes a new buffer (TLAB) stands for the buffer.
    #[default]
    Buffers,
    /// Objects at random distances, which the JVM chooses. They need the agent, and JDK 11 or later.
    Objects,
}

/// Where the names of Java code come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaNaming {
    /// From the agent, which is attached to every profiled JVM; from the memory of JVMs that refuse the agent.
    Auto,
    /// Only from the agent, which is attached to every profiled JVM.
    Agent,
    /// From the memory of every profiled JVM. Nothing is loaded into a JVM.
    Vm,
    /// From nowhere: compiled Java code has no names.
    Off,
}

impl JavaNaming {
    /// Whether names are read from the memory of a JVM without the agent.
    pub(crate) fn reads_memory(self) -> bool {
        matches!(self, JavaNaming::Auto | JavaNaming::Vm)
    }
}

/// Selects JVMs to which the agent is attached even where [`JavaNaming`] does not attach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRule {
    /// JVMs that were started with this environment variable set to this value.
    Env(String, String),
    /// JVMs in a cgroup whose path matches.
    Cgroup(Glob),
    /// JVMs in a pod whose `NAMESPACE/NAME` matches.
    Pod(Glob),
    /// JVMs in a pod that opts in by an annotation.
    OptedIn(OptedInPods),
}

impl AgentRule {
    pub(crate) fn opted_in(&self) -> Option<&OptedInPods> {
        if let AgentRule::OptedIn(pods) = self { Some(pods) } else { None }
    }
}

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of this binary. Child processes run the same binary.
    pub binary: PathBuf,
    /// Which processes or threads are sampled.
    pub target: Target,
    /// The node whose files name the containers.
    pub node: Node,
    /// Whether descendants of the chosen processes are sampled too.
    pub children: bool,
    /// The only CPUs to sample; `None` for all.
    pub cpus: Option<Vec<u32>>,
    /// The sampled events, at least one, each once.
    pub events: Vec<EventPeriod>,
    /// Requested samples a second, before any limit of the host.
    pub requested_hz: f64,
    /// Length of a part in whole seconds, after which its samples are handed over; `None` for one part until the end.
    pub part: Option<u32>,
    /// How long to sample; `None` to sample until a signal comes or the command ends.
    pub duration: Option<Duration>,
    /// Whether user frames are recorded.
    pub user: bool,
    /// Whether kernel frames are recorded.
    pub kernel: bool,
    /// Whether idle CPUs and idle threads are shown.
    pub idle: bool,
    /// Patterns of functions: a thread that waits below one is idle.
    pub idle_frames: Vec<String>,
    /// Whether waits have the stack that ended them.
    pub wakers: bool,
    /// Which allocations of Java objects have samples.
    pub java_allocations: JavaAllocations,
    /// Whether samples have the trace and the span that their threads worked for.
    pub trace_context: bool,
    /// Whether the profiler itself is shown.
    pub include_self: bool,
    /// Whether stacks have a frame for their thread.
    pub per_thread: bool,
    /// Whether the profile keeps the second of each sample.
    pub seconds: bool,
    /// Whether thread names keep their numbers.
    pub raw_threads: bool,
    /// Whether Java names keep their run-specific numbers.
    pub raw_names: bool,
    /// Where the names of Java code come from.
    pub java: JavaNaming,
    /// JVMs that get the agent, even if `java` says otherwise for all JVMs.
    pub agent_for: Vec<AgentRule>,
    /// JVMs that refused the agent. Sessions with clones of one value know of each other's refusals.
    pub refused: PermanentRefusals,
    /// Number of JVMs that are attached to, or opened, at the same time.
    pub attach_at_once: usize,
    /// How long attaching to one JVM may take.
    pub attach_timeout: Duration,
    /// Whether to attach even to builds of HotSpot that are known to crash.
    pub force_attach: bool,
    /// File with the kernel's types (BTF), in place of the kernel's own.
    pub btf: Option<PathBuf>,
    /// Whether to show a progress line on standard error.
    pub progress: bool,
}

impl Settings {
    /// The event that was requested first.
    #[must_use]
    pub fn first(&self) -> Event {
        self.events.first().map_or_else(Event::default, |sampled| sampled.event)
    }

    /// All processes, sampled by the CPU clock with user and kernel frames; everything else is off.
    #[cfg(test)]
    pub(crate) fn for_test() -> Settings {
        Settings {
            binary: PathBuf::new(),
            target: Target::All,
            node: Node::at("/"),
            children: false,
            cpus: None,
            events: vec![EventPeriod { event: Event::Cpu, period: 1_000_000 }],
            requested_hz: 1000.0,
            part: None,
            duration: None,
            user: true,
            kernel: true,
            idle: false,
            idle_frames: Vec::new(),
            wakers: false,
            java_allocations: JavaAllocations::default(),
            trace_context: false,
            include_self: false,
            per_thread: false,
            seconds: false,
            raw_threads: false,
            raw_names: false,
            java: JavaNaming::Off,
            agent_for: Vec::new(),
            refused: PermanentRefusals::default(),
            attach_at_once: 1,
            attach_timeout: Duration::ZERO,
            force_attach: false,
            btf: None,
            progress: false,
        }
    }
}
