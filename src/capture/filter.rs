//! Which ticks and events become samples.

use super::cgroups::Cgroups;
use super::skeleton::types::jp_config;
use crate::process::hierarchy::Hierarchy;

/// Which samples are wanted, and which of their frames.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these processes; empty: all.
    pub tgids: Vec<u32>,
    /// Also the descendants of `tgids`.
    pub children: bool,
    /// Only these threads; empty: all.
    pub tids: Vec<u32>,
    /// Only tasks in chosen cgroups and below them.
    pub cgroups: Option<Cgroups>,
    /// Only these CPUs; `None`: all.
    pub cpus: Option<Vec<u32>>,
    /// The cgroup hierarchy that identifies containers.
    pub naming: Hierarchy,
    /// The command that the profiler started: sampled although it is the profiler's child.
    pub launched: Option<u32>,
    /// Sample the profiler and its children too.
    pub include_self: bool,
    /// Count each thread by itself.
    pub threads: bool,
    /// Record user frames; without them all stacks end with `StopReason::NoUser`.
    pub user: bool,
    /// Record kernel frames; without them stacks have only their user part.
    pub kernel: bool,
    /// Record the stacks of threads and interrupts that end sampled waits.
    pub wakers: bool,
    /// Record the trace contexts of threads.
    pub traces: bool,
}

impl Filter {
    /// Writes the flags of the BPF program.
    pub(super) fn configure(&self, config: &mut jp_config) {
        config.by_tgid = u8::from(!self.tgids.is_empty());
        config.by_cpu = u8::from(self.cpus.is_some());
        config.by_tid = u8::from(!self.tids.is_empty());
        config.children = u8::from(self.children);
        config.threads = u8::from(self.threads);
        config.user = u8::from(self.user);
        config.kernel = u8::from(self.kernel);
        config.wakers = u8::from(self.wakers);
        config.traces = u8::from(self.traces);
    }
}
