//! What the sampling thread sends at the end of a window.

use std::time::{Duration, Instant};

use crate::capture::{ExpectedSamples, RunStats, Window};
use crate::process::ProcessEvent;
use crate::process::throttling::MachineTime;
use crate::sample::unit::Unit;
use crate::sample::{Event, MonoNs};

/// A window with what else came in it.
pub(super) struct WindowBatch {
    pub(super) window: Window,
    /// Process events up to the window's end that were not sent before, in time order.
    pub(super) events: Vec<ProcessEvent>,
    pub(super) end: MonoNs,
    /// Totals until now, if the window is the last of a part.
    pub(super) totals: Option<SessionTotals>,
    /// Run time of the BPF program until now.
    pub(super) program: Option<RunStats>,
}

/// Totals since the start of sampling.
#[derive(Clone, Debug)]
pub(super) struct SessionTotals {
    pub(super) events: Vec<EventTotals>,
    pub(super) program: Option<RunStats>,
    /// When the part ended, by the monotonic clock, which cannot be set.
    pub(super) ended: Instant,
    /// The same moment by the wall clock.
    pub(super) ended_at: jiff::Timestamp,
    /// The CPU time of the machine at that moment.
    pub(super) machine: MachineTime,
    /// From the first tick to the end.
    pub(super) duration: Duration,
    /// Side-band events that the kernel dropped because a ring was full.
    pub(super) lost_events: u64,
    /// Kernel memory of the maps, bytes.
    pub(super) map_bytes: u64,
    /// Capacity of the count map of a window, in distinct stacks.
    pub(super) room_for_stacks: u32,
    /// The highest number of CPUs that were sampled at the same time.
    pub(super) cpus: usize,
}

/// Totals of an event since the start of sampling.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTotals {
    pub(super) event: Event,
    /// The event's own count of the samples that there should have been.
    pub(super) elapsed: ExpectedSamples,
    /// What one sample stands for in the part that ends here, in the event's unit.
    pub(super) period: u64,
}

impl SessionTotals {
    /// Nanoseconds that a sample stands for, or `None` if the session does not sample time.
    pub(super) fn clock_ns(&self) -> Option<u64> {
        self.events.iter().find(|of| of.event.unit() == Unit::Nanoseconds).map(|of| of.period)
    }
}
