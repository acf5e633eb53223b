//! Counters of symbolization.

use std::collections::HashMap;

use super::child::WorkerCost;
use super::jit::PerfMapStats;
use super::jvms::JavaLeafCounts;
use crate::profile::UnknownReason;
use crate::sample::ProcessId;

/// Counters of symbolization so far.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Workers that died or missed a deadline.
    pub worker_lost: u64,
    /// Workers that were replaced because they held too much memory.
    pub worker_evicted: u64,
    /// CPU time and memory of the workers for files, and for stacks of threads that are still waiting.
    pub worker: WorkerCost,
    /// Files that are no longer read, because workers were lost over them.
    pub files_poisoned: u64,
    /// Native addresses with cached frames.
    pub cached: usize,
    /// Frames without a name, by reason, over all stacks so far.
    pub unknown: HashMap<UnknownReason, u64>,
    /// Perf maps of other runtimes, for processes that are still known.
    pub perf_maps: PerfMapStats,
    /// How often the kernel's symbols were read.
    pub kernel_reads: u64,
    /// CPU time and memory of the workers that read JVMs' logs and memory.
    pub java_worker: WorkerCost,
    /// Java leaves of each followed JVM.
    pub java_leaves: HashMap<ProcessId, JavaLeafCounts>,
}
