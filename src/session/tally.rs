//! Counts beside the profile: plain data that the aggregator fills and the report shows.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::wait_tally::WaitTally;
use crate::capture::abi::{AllocationTotals, Counters, LOSSES};
use crate::profile::Module;
use crate::profile::report::TraceReport;
use crate::sample::{Event, ProcessId, StopReason};
use crate::world::RuntimeSamples;

/// Why samples are lost in user space.
const OWN_LOSSES: [&str; 2] = ["frames never arrived", "unknown event"];

/// Every reason for which a session loses samples: those of the BPF program, and counts that came without
/// frames, or without a known event.
pub fn loss_reasons() -> impl Iterator<Item = &'static str> {
    LOSSES.into_iter().chain(OWN_LOSSES)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    events: BTreeMap<Event, EventTally>,
    /// Samples of the first event by process, for the runtimes' rows of the report.
    pub(super) runtimes: HashMap<ProcessId, RuntimeSamples>,
}

impl Tally {
    pub(super) fn of(&mut self, event: Event) -> &mut EventTally {
        self.events.entry(event).or_default()
    }

    pub(super) fn by_event(&self) -> impl Iterator<Item = (Event, &EventTally)> {
        self.events.iter().map(|(event, tally)| (*event, tally))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &EventTally> {
        self.events.values()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct EventTally {
    /// Sum of all windows.
    pub(super) counters: Counters,
    /// Samples that have a stack in the profile or were idle.
    pub(super) kept: u64,
    /// The idle ones among `kept`; in the profile only with `--idle`.
    pub(super) idle: u64,
    /// Samples whose frames never arrived.
    pub(super) frameless: u64,
    /// Samples that were counted under a key that names no event.
    pub(super) misfiled: u64,
    /// Samples by stop reason of the user stack.
    pub(super) stop_reasons: HashMap<StopReason, u64>,
    /// Samples of stacks that did not reach the root, by stop reason and by the file in whose code unwinding stopped.
    pub(super) stopped_in: HashMap<(Arc<Module>, StopReason), u64>,
    /// Of the event `wait`.
    pub(super) waits: WaitTally,
    /// Of events of allocations.
    pub(super) allocated: AllocationTotals,
    /// Samples by what is known of their threads' traces.
    pub(super) traces: TraceReport,
}

impl EventTally {
    /// Idle samples that are not in the profile: all of them, or 0 if idle stacks are `shown`.
    pub(super) fn hidden_idle(&self, shown: bool) -> u64 {
        if shown { 0 } else { self.idle }
    }

    /// Lost samples by reason.
    pub(super) fn lost(&self) -> Vec<(Cow<'static, str>, u64)> {
        let own: [u64; OWN_LOSSES.len()] = [self.frameless, self.misfiled];
        let lost = self.counters.lost.into_iter().chain(own);
        let all = loss_reasons().map(Cow::Borrowed).zip(lost);
        all.filter(|(_, lost)| *lost > 0).collect()
    }
}
