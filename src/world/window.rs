//! A window as the stages get it.

use crate::sample::{Count, MonoNs, ProcessId, Stack};

pub(crate) struct WindowStacks<'a> {
    /// Sorted by the time of their first sample.
    pub(crate) stacks: &'a mut Vec<(Stack, Count)>,
    /// The processes and cgroups of the stacks, each pair once, in the order in which they first ran.
    pub(crate) ran: Vec<(ProcessId, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowEnd {
    pub(crate) at: MonoNs,
    /// Whether a part of the session ends with this window.
    pub(crate) ends_part: bool,
}
