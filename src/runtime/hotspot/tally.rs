//! What is counted of JVMs beside the profile: plain data.

use std::collections::HashMap;
use std::time::Instant;

use crate::profile::report::Throttling;
use crate::sample::ProcessId;

/// What tells entries apart: the process, and when it was met. What it becomes by an exec may be a JVM too.
pub(crate) type EntryId = (u32, Instant);

/// How JVMs' cgroups were throttled in a part: of those that have a quota.
pub(crate) type Throttled = HashMap<EntryId, Throttling>;

/// Of all JVMs.
#[derive(Clone, Debug, Default)]
pub(crate) struct JavaTally {
    /// By process: ticks with Java frames, and those of them that do not reach the root.
    pub(crate) ticks: HashMap<ProcessId, JavaTicks>,
    /// Measured at a part's end: when that is handed over the next ones may have ended too.
    pub(crate) throttled: Throttled,
}

/// Ticks of a JVM's Java threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JavaTicks {
    /// All ticks of the process.
    pub(crate) all: u64,
    /// Ticks with at least one Java frame.
    pub(crate) java: u64,
    /// Of those, ticks whose outermost frame is not one with which a thread begins.
    pub(crate) rootless: u64,
}
