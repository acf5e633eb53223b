//! A window as the stages get it.

use crate::profile::pauses::PauseTotals;
use crate::sample::{CountedStack, MonoNs, ProcessId, ProcessInCgroup};

/// The stacks of a window, before they have names.
pub(crate) struct WindowStacks<'a> {
    /// Sorted by the time of their first sample.
    pub(crate) stacks: &'a mut Vec<CountedStack>,
    /// Each process in each of its cgroups once, in the order in which they first ran.
    pub(crate) ran: Vec<ProcessInCgroup>,
}

impl WindowStacks<'_> {
    /// Whether the process has a sample. Otherwise it only ended waits of others, and nobody has chosen it.
    pub(crate) fn has_sample_of(&self, process: ProcessId) -> bool {
        self.stacks.iter().any(|one| one.stack.key.process == process && !one.stack.is_waker())
    }
}

/// The end of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowEnd {
    pub(crate) at: MonoNs,
    /// When the next window began, which is earlier: the kernel goes on while this window is read. Samples of later
    /// windows are not older.
    pub(crate) next_from: MonoNs,
    /// Whether a part of the session ends with this window.
    pub(crate) ends_part: bool,
}

/// How a JVM stood still in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowPauses {
    pub(crate) window: u64,
    pub(crate) pid: u32,
    pub(crate) totals: PauseTotals,
}
