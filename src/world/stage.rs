//! The interface of a stage: what it is told of, in this order, from the first look at the machine to the last report.

use std::collections::{BTreeMap, HashMap};

use super::shared::World;
use super::window::{WindowEnd, WindowStacks};
use crate::limits::LimitsMet;
use crate::plan::Control;
use crate::process::ProcessEvent;
use crate::profile::report::{GroupReport, JvmReport};
use crate::sample::ProcessId;
use crate::symbolize::Stats;
use crate::unwind::Usage;

/// Something that follows the samples of a session on their way to the profile. `session/stages.rs` has the list of all
/// stages; each hook is called for the whole list, in that order, before the next hook is.
pub(crate) trait Stage {
    /// What `docs/architecture.md` calls it.
    fn name(&self) -> &'static str;

    /// Sampling is about to begin: what is there before the first sample is looked at now.
    fn on_prepare(&mut self, _: &mut World, _: &Control) {}

    /// Sampling begins now.
    fn on_begin(&mut self, _: &mut World) {}

    /// What happened to processes, in the order of time; `world.processes` knows of it already.
    fn on_events(&mut self, _: &mut World, _: &[ProcessEvent]) {}

    /// The stacks of a window, before their frames have names. A stage may cut off what is no frame.
    fn on_window(&mut self, _: &mut World, _: &mut WindowStacks<'_>, _: WindowEnd) {}

    /// What is to be done again and again, whether anything came or not.
    fn on_tick(&mut self, _: &mut World) {}

    /// Sampling has ended; stacks that still wait for their names get them after that.
    fn on_end(&mut self, _: &mut World) {}

    /// Adds what it has to say of a part of the session, whose stacks have all their names.
    fn report(&mut self, _: &mut World, _: &PartEnd<'_>, _: &mut PartReport) {}

    /// Adds what it left out because of a limit.
    fn limits(&self, _: &mut LimitsMet) {}

    /// Whether there is something to do in the next tick.
    fn has_work(&self) -> bool {
        false
    }

    /// Whether it is still beginning with a process: what the session costs meanwhile is not what it costs for long.
    fn is_beginning(&self) -> bool {
        false
    }

    /// Gives back memory that can be had again.
    fn release_memory(&mut self) {}
}

/// Ticks of a process, by whether Java ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeTicks {
    /// All ticks of the process.
    pub(crate) all: u64,
    /// Ticks with at least one Java frame.
    pub(crate) managed: u64,
    /// Of those, ticks whose outermost frame is not one with which a thread begins.
    pub(crate) rootless: u64,
}

/// What stages may say something of: a part of the session that is over.
pub(crate) struct PartEnd<'a> {
    /// Its last window.
    pub(crate) window: u64,
    /// Ticks of the first event, by process.
    pub(crate) ticks: &'a HashMap<ProcessId, RuntimeTicks>,
    pub(crate) symbols: &'a Stats,
}

/// What stages say of a part of the session, for the report and the daemon's metrics.
#[derive(Debug, Default)]
pub(crate) struct PartReport {
    pub(crate) jvms: Vec<JvmReport>,
    pub(crate) groups: Vec<GroupReport>,
    pub(crate) warnings: Vec<String>,
    /// How often names of a runtime were had, or were not, by result.
    pub(crate) attached: BTreeMap<String, u64>,
    /// Unwind tables.
    pub(crate) tables: Usage,
}
