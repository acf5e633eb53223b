//! The interface of a stage: its hooks in the order of their calls, from the first look at the machine to the last
//! report. `on_events`, `on_arrival` and `on_window` repeat for each window; `on_tick` is also called without a window.

use std::collections::{BTreeMap, HashMap};

use super::shared::World;
use super::window::{WindowEnd, WindowPauses, WindowStacks};
use crate::limits::ReachedLimits;
use crate::plan::Control;
use crate::process::ProcessEvent;
use crate::profile::report::{GroupReport, JvmReport};
use crate::sample::ProcessId;
use crate::symbolize::Stats;
use crate::unwind::Usage;

/// Follows the samples of a session on their way to the profile. `session/stages.rs` has the list of all stages. Each
/// hook is called for the whole list, in that order, before the next hook is called.
pub(crate) trait Stage {
    /// The stage's name in `docs/architecture.md`.
    fn name(&self) -> &'static str;

    /// Called before sampling begins, to look at what exists before the first sample.
    fn on_prepare(&mut self, _: &mut World, _: &Control) {}

    /// Called when sampling begins.
    fn on_begin(&mut self, _: &mut World) {}

    /// Called with the events of processes, in the order of time. `world.processes` has applied them already.
    fn on_events(&mut self, _: &mut World, _: &[ProcessEvent]) {}

    /// Called with the stacks of a window as they came, before any stage's `on_window`, to complete them.
    fn on_arrival(&mut self, _: &mut World, _: &mut WindowStacks<'_>) {}

    /// Called with the stacks of a window, before their frames have names. A stage may cut off wrong frames.
    fn on_window(&mut self, _: &mut World, _: &mut WindowStacks<'_>, _: WindowEnd) {}

    /// Called again and again, whether anything came from the sampler or not.
    fn on_tick(&mut self, _: &mut World) {}

    /// Called when sampling has ended. Stacks that still wait for their names get them after this call.
    fn on_end(&mut self, _: &mut World) {}

    /// Adds the stage's results for a part of the session. All stacks of the part have their names.
    fn report(&mut self, _: &mut World, _: &PartEnd<'_>, _: &mut PartReport) {}

    /// Notes how much the stage left out so far because of limits. Each number replaces the one before.
    fn limits(&self, _: &mut ReachedLimits) {}

    /// Whether the stage has work for the next [`Stage::on_tick`].
    fn has_work(&self) -> bool {
        false
    }

    /// Whether the stage still begins with a process. The cost meanwhile does not count as the session's steady cost.
    fn is_beginning(&self) -> bool {
        false
    }

    /// Frees memory that can be filled again.
    fn release_memory(&mut self) {}
}

/// Samples of a process, by whether Java code ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeSamples {
    /// All samples of the process.
    pub(crate) all: u64,
    /// Samples with at least one Java frame.
    pub(crate) managed: u64,
    /// Of `managed`, samples whose stack is truncated or whose outermost function does not begin a thread.
    pub(crate) rootless: u64,
}

/// A part of the session that is over, on which stages report.
pub(crate) struct PartEnd<'a> {
    /// Number of the part's last window.
    pub(crate) window: u64,
    /// Samples of the first event, by process.
    pub(crate) samples: &'a HashMap<ProcessId, RuntimeSamples>,
    pub(crate) symbols: &'a Stats,
}

/// What stages report about a part of the session, for the report and the daemon's metrics.
#[derive(Debug, Default)]
pub(crate) struct PartReport {
    pub(crate) jvms: Vec<JvmReport>,
    pub(crate) groups: Vec<GroupReport>,
    pub(crate) warnings: Vec<String>,
    /// How often a runtime's names could be had or not, by result.
    pub(crate) attached: BTreeMap<String, u64>,
    pub(crate) tables: Usage,
    /// The pauses of JVMs in each window of the part; all in its last one if the profile does not distinguish seconds.
    pub(crate) pauses: Vec<WindowPauses>,
}
