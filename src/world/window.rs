//! A window as the stages see it.

use crate::sample::{Count, MonoNs, ProcessId, Stack};

/// The stacks of a window.
pub(crate) struct WindowStacks<'a> {
    /// In the order of time.
    pub(crate) stacks: &'a mut Vec<(Stack, Count)>,
    /// The processes and cgroups that they have, each pair once, in the order in which they first ran.
    pub(crate) ran: Vec<(ProcessId, u64)>,
}

/// How a window ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowEnd {
    pub(crate) at: MonoNs,
    /// A part of the session ends with it.
    pub(crate) ends_part: bool,
}
