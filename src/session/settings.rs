//! What a session is asked for: plain data, valid by the time it gets here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Whose ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that runs.
    All,
    /// These processes.
    Pids(Vec<u32>),
    /// These threads.
    Tids(Vec<u32>),
    /// This command, from its first instruction, with its descendants.
    Launch(Vec<OsString>),
}

/// Where Java names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Java {
    /// The agent, attached to every JVM that is profiled.
    Agent,
    /// The memory of every JVM that is profiled: nothing is loaded into it.
    Vm,
    /// Only JVMs that report already (`-agentpath`).
    Off,
}

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This binary: child processes are it again.
    pub binary: PathBuf,
    /// Whose ticks.
    pub target: Target,
    /// Descendants of the chosen processes too.
    pub children: bool,
    /// Only these CPUs, if any are named.
    pub cpus: Option<Vec<u32>>,
    /// Nanoseconds of CPU time between two ticks of a CPU.
    pub period_ns: u64,
    /// Samples a second that were asked for, before any limit of the host.
    pub requested_hz: f64,
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
    /// Thread names with their numbers.
    pub raw_threads: bool,
    /// Java names with their run-specific numbers.
    pub raw_names: bool,
    /// Where Java names come from.
    pub java: Java,
    /// How long attaching to one JVM may take.
    pub attach_timeout: Duration,
    /// Attach even to builds of HotSpot that are known to crash.
    pub force_attach: bool,
    /// Kernel types from this file instead of the kernel.
    pub btf: Option<PathBuf>,
    /// A line that tells how far it is, on standard error.
    pub progress: bool,
}
