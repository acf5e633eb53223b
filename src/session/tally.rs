//! What was counted besides the profile: plain data, which the stages fill and the report tells.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::capture::abi::Counters;
use crate::profile::Module;
use crate::sample::{Event, ProcessId, StopReason};
use crate::world::RuntimeTicks;

/// What was counted besides the profile, of each event and of processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    events: BTreeMap<Event, EventTally>,
    /// Of each process, for the runtimes' rows of the report: of the first event.
    pub(super) runtimes: HashMap<ProcessId, RuntimeTicks>,
}

impl Tally {
    pub(super) fn of(&mut self, event: Event) -> &mut EventTally {
        self.events.entry(event).or_default()
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &EventTally> {
        self.events.values()
    }
}

/// What was counted of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct EventTally {
    /// Sum of all windows.
    pub(super) counters: Counters,
    /// Ticks that have a stack in the profile or were idle.
    pub(super) kept: u64,
    /// Of them, ticks in which nothing ran; they are in the profile only if idleness is shown.
    pub(super) idle: u64,
    /// Ticks whose frames never arrived.
    pub(super) frameless: u64,
    /// How the user walks ended, by ticks.
    pub(super) ends: HashMap<StopReason, u64>,
    /// Of walks that did not reach the root, in which files' code they ended.
    pub(super) ended_in: HashMap<(Arc<Module>, StopReason), u64>,
}

impl EventTally {
    /// Ticks in which nothing ran and that are in no picture: all such, unless idleness is `shown`.
    pub(super) fn hidden_idle(&self, shown: bool) -> u64 {
        if shown { 0 } else { self.idle }
    }
}
