//! What a run has to say besides its profile: plain data, filled by the session, printed by `output`.

use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use super::tables::Unknown;
use crate::limits::LimitRow;
use crate::sample::Event;

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What was profiled, for people: `all processes`, `pid 4711`, a command.
    pub target: String,
    /// The command line of the run.
    pub command: String,
    /// Version of jbpf-prof.
    pub version: String,
    /// The host's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// When sampling began: local wall clock, as text.
    pub start: String,
    /// Seconds of sampling.
    pub duration_s: f64,
    /// Ticks a second and CPU that were asked for.
    pub requested_hz: f64,
    /// And those that the clock was set to.
    pub effective_hz: f64,
    /// What was sampled: the event that was asked for first.
    #[serde(flatten)]
    pub first: EventReport,
    /// The other events that were asked for.
    #[serde(default, rename = "events", skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<EventReport>,
    /// JVMs that were sampled or attached to.
    pub jvms: Vec<JvmReport>,
    /// The cgroups that were chosen.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// Time that the hypervisor took from this host in the same seconds, as a share of all CPU time.
    pub steal: Option<f64>,
    /// What the run itself cost.
    pub cost: Cost,
    /// Limits that were met since the run began: what was not read or kept.
    #[serde(default)]
    pub limits: Vec<LimitRow>,
    /// Sentences that a reader must not miss.
    pub warnings: Vec<String>,
    /// Files that were written.
    pub outputs: Vec<String>,
}

/// What became of an event's samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventReport {
    /// Of what.
    #[serde(default, skip_serializing_if = "is_cpu")]
    pub event: Event,
    /// Where the samples went.
    pub accounts: Accounts,
    /// Of the filtered ticks, those of CPUs that had nothing to do; 0 where idleness is shown.
    pub idle: u64,
    /// Frames without a name in the profile's stacks.
    pub unknown: Unknown,
    /// How walks of user stacks ended, by samples: the reason's label. Of all that was sampled: the profile may have less,
    /// if it was filtered by names.
    pub ends: Vec<(String, u64)>,
    /// Files in whose code walks ended before the root, those with the most samples first: at most [`MAX_ENDED_IN`].
    #[serde(default)]
    pub ended_in: Vec<EndedIn>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_cpu(event: &Event) -> bool {
    *event == Event::Cpu
}

/// Rows of [`EventReport::ended_in`].
pub const MAX_ENDED_IN: usize = 100;

/// A file whose frames' callers were not found, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndedIn {
    /// Its path, as the processes that mapped it name it.
    pub file: String,
    /// The reason's label, as in [`EventReport::ends`].
    pub why: String,
    /// What to do about it: a sentence that is true of this file.
    #[serde(default)]
    pub advice: String,
    /// Ticks whose stacks end there.
    pub ticks: u64,
}

/// A JVM and how its code was named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JvmReport {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Main class or jar, fit to print.
    pub name: String,
    /// Its version, as it says itself.
    pub version: String,
    /// Of a JVM that is newer: the newest feature release that jbpf-prof is tested with.
    #[serde(default)]
    pub newer_than: Option<u32>,
    /// Where names come from.
    pub names: NameSource,
    /// Why they do not come from the agent, where the JVM's memory was read instead.
    #[serde(default)]
    pub no_agent: Option<JvmRefusal>,
    /// Whether compiled code keeps frame pointers; none if its flags could not be read.
    pub frame_pointers: Option<bool>,
    /// Why its own description of its code could not be had, so that its stacks were walked by frame pointers alone.
    pub undescribed: Option<String>,
    /// Share (0 to 1) of Java leaf ticks in code that has debug records at calls and safepoints only: it was compiled
    /// before the agent came, or there is no agent.
    pub compiled_before: Option<f64>,
    /// Ticks of the process.
    pub ticks: u64,
    /// Ticks with a Java frame.
    pub java_ticks: u64,
    /// Of those, ticks that do not reach the root.
    pub rootless_ticks: u64,
    /// Bytes of the agent's log.
    pub log_bytes: u64,
    /// Whether the log was cut.
    pub log_cut: bool,
    /// CPU throttling of its cgroup in the same seconds; none if it had no quota.
    pub throttling: Option<ThrottleTotals>,
}

/// Where the names of a JVM's code come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameSource {
    /// The agent was there from the start (`-agentpath`).
    AgentAtStart,
    /// The agent was attached, in so many milliseconds.
    AgentLate {
        /// From the request to the last replayed record.
        ms: u64,
    },
    /// The JVM came during the run; the agent was attached then.
    AgentDuringRun {
        /// From the request to the last replayed record.
        ms: u64,
    },
    /// They were read out of the JVM's memory.
    Memory {
        /// From the request until its memory could be read.
        ms: u64,
    },
    /// Nobody asked for names.
    #[default]
    Off,
    /// There is no agent.
    Refused {
        /// The stable name of the reason: `attach disabled`, `noexec tmp`, ….
        label: String,
        /// What to do about it.
        hint: String,
    },
}

/// Why something could not be had of a JVM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmRefusal {
    /// The stable name of the reason: `attach disabled`, `noexec tmp`, ….
    pub label: String,
    /// What to do about it.
    pub hint: String,
}

/// A cgroup that was chosen, and how it was kept from running in the time of the profile: a service that is throttled
/// has an innocent flame graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// As `/proc/PID/cgroup` writes it, fit to print.
    pub path: String,
    /// `v2`, or `v1` with a controller.
    pub hierarchy: String,
    /// CPUs that the tightest limit on it grants at the end; none without limit.
    pub limit_cpus: Option<f64>,
    /// Enforcement periods with something to run, at the level that was throttled longest.
    pub periods: u64,
    /// Of them, those in which it was throttled.
    pub throttled_periods: u64,
    /// How long its threads were kept from running, microseconds, summed over CPUs.
    pub throttled_usec: u64,
    /// Time in which some thread of it waited for a CPU, microseconds; v2 only.
    pub pressure_usec: Option<u64>,
}

/// CPU throttling of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleTotals {
    /// Periods in which it was throttled.
    pub times: u64,
    /// For how long altogether, in microseconds.
    pub usec: u64,
}

/// What a run cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU seconds of the broker.
    pub broker_s: f64,
    /// CPU seconds of the symbol workers.
    pub worker_s: f64,
    /// CPU seconds of the children that open files and ask JVMs.
    pub helpers_s: f64,
    /// Seconds that the BPF program ran; none where the kernel does not count it.
    pub bpf_s: Option<f64>,
    /// Runs of the BPF program.
    pub bpf_runs: u64,
    /// Most resident memory of the broker, and that of its children at the end, in bytes.
    pub rss_bytes: u64,
    /// Memory of BPF maps and buffers, in bytes.
    pub maps_bytes: u64,
    /// What of it was spent while nothing began or ended; none if the run was too short to tell.
    #[serde(default)]
    pub steady: Option<Steady>,
}

/// What a run cost between its first seconds, in which names are learnt, and its end, when files are written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// How long that was.
    pub seconds: f64,
    /// CPU seconds, all counted.
    pub cpu_s: f64,
    /// When it began, seconds after the first tick.
    pub after_s: f64,
}

impl Cost {
    /// All CPU seconds.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.broker_s + self.worker_s + self.helpers_s + self.bpf_s.unwrap_or(0.0)
    }
}
