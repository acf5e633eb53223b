//! The facts about a run besides its profile: plain data, filled by the session, printed by `output`.

use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use super::pauses::PauseTotals;
use super::unknown::UnknownFrames;
use super::wait_report::WaitReport;
use crate::limits::LimitRow;
use crate::sample::{Event, ThreadContext};

/// Facts about a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What was profiled, for people: `all processes`, `pid 4711`, a command.
    pub target: String,
    /// The command line of the run.
    pub command: String,
    /// Version of the jbpf-prof that made the run.
    pub version: String,
    /// The host's name, from `/proc/sys/kernel/hostname`.
    pub host: String,
    /// The kernel's release, from `/proc/sys/kernel/osrelease`.
    pub kernel: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// When sampling began: local wall clock, as text.
    pub start: String,
    /// How long sampling lasted, in seconds.
    pub duration_s: f64,
    /// Requested ticks per second and CPU.
    pub requested_hz: f64,
    /// Ticks per second and CPU that the clock was set to.
    pub effective_hz: f64,
    /// The event that the user named first.
    #[serde(flatten)]
    pub first: EventReport,
    /// The other events of the run.
    #[serde(default, rename = "events", skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<EventReport>,
    /// JVMs that were sampled or attached to.
    pub jvms: Vec<JvmReport>,
    /// The cgroups that the user selected, and how they were throttled.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// CPU time that the hypervisor took from this host during the run, as a share (0 to 1) of all CPU time.
    pub steal: Option<f64>,
    /// Resources that jbpf-prof itself used.
    pub cost: Cost,
    /// Limits that were reached during the run: parts that were not read or kept.
    #[serde(default)]
    pub limits: Vec<LimitRow>,
    /// Sentences that a reader must not miss.
    pub warnings: Vec<String>,
    /// Files that were written.
    pub outputs: Vec<String>,
}

/// Accounts, unknown frames and stop reasons of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventReport {
    /// The event of these numbers; JSON leaves the field out for `cpu`.
    #[serde(default, skip_serializing_if = "is_cpu")]
    pub event: Event,
    /// Where the samples went.
    pub accounts: Accounts,
    /// Of the filtered ticks, those of idle CPUs; 0 where idleness is shown.
    pub idle: u64,
    /// Frames without a name in the profile's stacks.
    pub unknown: UnknownFrames,
    /// Stop reasons of user stacks: label and number of samples. All samples count, including those that a filter by
    /// name removed from the profile.
    #[serde(rename = "ends")]
    pub stop_reasons: Vec<(String, u64)>,
    /// Files in whose code the unwinder stopped before the root, those with the most samples first: at most
    /// [`MAX_STOP_ROWS`].
    #[serde(default, rename = "ended_in")]
    pub stopped_in: Vec<StopRow>,
    /// Waiting time, of the event `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitReport>,
    /// Allocated bytes, of the events `alloc` and `native-alloc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<AllocatedBytes>,
    /// Samples with and without a trace, where the user asked for traces. All samples count, including those that a filter
    /// removed from the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<TraceReport>,
}

/// Bytes that Java code or native code allocated, counted at each allocation whether it has a sample or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedBytes {
    /// Bytes of processes and threads that were profiled.
    pub profiled: u64,
    /// Bytes of processes and threads that were not profiled.
    pub filtered: u64,
    /// Calls of the sampled functions in the processes and threads that were profiled. Of `alloc`: new buffers of threads,
    /// and objects outside of these.
    #[serde(default)]
    pub profiled_calls: u64,
    /// Calls in all others.
    #[serde(default)]
    pub filtered_calls: u64,
    /// Bytes of profiled JVMs that choose the samples themselves, estimated by these samples. They are not part of
    /// `profiled`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Numbers of samples by what is known of the traces that their threads worked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The thread worked for a span.
    pub in_span: u64,
    /// The thread had no active span.
    pub no_span: u64,
    /// The thread's trace context could not be read.
    pub unread: u64,
    /// The process publishes no trace contexts, or had not been looked at yet.
    pub unpublished: u64,
}

impl TraceReport {
    /// Counts samples with this context.
    pub fn add(&mut self, context: ThreadContext, samples: u64) {
        *match context {
            ThreadContext::None => &mut self.unpublished,
            ThreadContext::Span(_) => &mut self.in_span,
            ThreadContext::Idle => &mut self.no_span,
            ThreadContext::Unread => &mut self.unread,
        } += samples;
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_cpu(event: &Event) -> bool {
    *event == Event::Cpu
}

/// Maximum rows of [`EventReport::stopped_in`].
pub const MAX_STOP_ROWS: usize = 100;

/// A file with frames whose callers were not found, and the stop reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StopRow {
    /// The path in the mount namespace of the processes that mapped it.
    pub file: String,
    /// The stop reason's label, as in [`EventReport::stop_reasons`].
    pub why: String,
    /// Advice: a sentence that is true of this file.
    #[serde(default)]
    pub advice: String,
    /// Samples in whose stacks unwinding stopped there.
    #[serde(rename = "ticks")]
    pub samples: u64,
}

/// A JVM and the source of its names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JvmReport {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Main class or jar, without control characters.
    pub name: String,
    /// Version, as the JVM reports it.
    pub version: String,
    /// For a JVM that is newer: the newest feature release that jbpf-prof is tested with.
    #[serde(default)]
    pub newer_than: Option<u32>,
    /// Symbol source of the JVM's code.
    pub names: ReportedNameSource,
    /// Why the agent is not the source, where the JVM's memory was read instead.
    #[serde(default)]
    pub no_agent: Option<JvmRefusal>,
    /// Whether compiled code keeps frame pointers; `None` if the JVM's flags could not be read.
    pub frame_pointers: Option<bool>,
    /// Why the JVM's VMStructs were not available, so that its stacks were unwound by frame pointers alone.
    pub undescribed: Option<String>,
    /// Share (0 to 1) of Java leaf samples in code with debug records only at calls and safepoints. Such code was
    /// compiled before the agent was loaded, or there is no agent.
    pub compiled_before: Option<f64>,
    /// Samples of the process.
    #[serde(rename = "ticks")]
    pub samples: u64,
    /// Samples with a Java frame.
    #[serde(rename = "java_ticks")]
    pub java_samples: u64,
    /// Of `java_samples`, samples whose stack does not reach the root.
    #[serde(rename = "rootless_ticks")]
    pub rootless_samples: u64,
    /// Size of the agent's log in bytes.
    pub log_bytes: u64,
    /// Whether the log was cut.
    pub log_cut: bool,
    /// CPU throttling of the JVM's cgroup during the run; `None` if the cgroup had no quota.
    pub throttling: Option<ThrottleTotals>,
    /// How long the JVM stood still; `None` if it has no counters (`-XX:-UsePerfData`, `-XX:+PerfDisableSharedMem`). Of a
    /// JVM that has exited: up to its last second in a profile that distinguishes seconds, and `None` otherwise.
    #[serde(default)]
    pub pauses: Option<PauseTotals>,
}

/// The symbol source of a JVM's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedNameSource {
    /// The agent was loaded at the start of the JVM (`-agentpath`).
    AgentAtStart,
    /// The agent was attached to a running JVM.
    AgentLate {
        /// Milliseconds from the request to the last replayed record.
        ms: u64,
    },
    /// The JVM started during the run; the agent was attached then.
    AgentDuringRun {
        /// Milliseconds from the request to the last replayed record.
        ms: u64,
    },
    /// Names were read from the JVM's memory.
    Memory {
        /// Milliseconds from the request until the JVM's memory could be read.
        ms: u64,
    },
    /// Names were not requested, or attaching has not finished.
    #[default]
    Off,
    /// Names are not available.
    Refused {
        /// The stable name of the reason: `attach disabled`, `noexec tmp`, ….
        label: String,
        /// Advice on this reason: one or more sentences.
        hint: String,
    },
}

/// Why a JVM or the host refused something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmRefusal {
    /// The stable name of the reason: `attach disabled`, `noexec tmp`, ….
    pub label: String,
    /// Advice on this reason: one or more sentences.
    pub hint: String,
}

/// A selected cgroup and its CPU throttling during the profile. Throttling is not visible in a flame graph: a throttled
/// service looks innocent there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// As `/proc/PID/cgroup` writes it, without control characters.
    pub path: String,
    /// `v2`, or `v1` with a controller.
    pub hierarchy: String,
    /// CPUs that the tightest limit grants at the end of the run; `None` without a limit.
    pub limit_cpus: Option<f64>,
    /// Enforcement periods with runnable threads, at the level that was throttled longest.
    pub periods: u64,
    /// Of `periods`, those in which the cgroup was throttled.
    pub throttled_periods: u64,
    /// Time for which threads were throttled, in microseconds, summed over CPUs.
    pub throttled_usec: u64,
    /// Time in which some thread of the cgroup waited for a CPU, in microseconds; v2 only.
    pub pressure_usec: Option<u64>,
}

/// CPU throttling of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleTotals {
    /// Periods in which the cgroup was throttled.
    pub times: u64,
    /// Total throttled time in microseconds.
    pub usec: u64,
}

/// Resources that a run used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU seconds of the broker.
    pub broker_s: f64,
    /// CPU seconds of the symbol workers.
    pub worker_s: f64,
    /// CPU seconds of the children that open files and attach to JVMs.
    pub helpers_s: f64,
    /// Seconds that the BPF program ran; `None` where the kernel does not measure it.
    pub bpf_s: Option<f64>,
    /// Runs of the BPF program.
    pub bpf_runs: u64,
    /// Peak resident memory of the broker plus that of its children at the end, in bytes.
    pub rss_bytes: u64,
    /// Memory of BPF maps and buffers, in bytes.
    pub maps_bytes: u64,
    /// The part of the CPU time after the start and before the end of the run; `None` if the run was too short.
    #[serde(default)]
    pub steady: Option<Steady>,
}

/// CPU time between the first seconds of a run, in which names are read, and its end, when files are written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Length of this time in seconds.
    pub seconds: f64,
    /// CPU seconds of all processes and the BPF program.
    pub cpu_s: f64,
    /// Start of this time, in seconds after the first tick.
    pub after_s: f64,
}

impl Cost {
    /// CPU seconds of all processes and the BPF program.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.broker_s + self.worker_s + self.helpers_s + self.bpf_s.unwrap_or(0.0)
    }
}
