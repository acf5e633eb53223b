//! Stage that follows the chosen cgroups and the containers. Both are in `World`, where other stages read them.

use crate::process::ProcessEvent;
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, WindowStacks, World};

pub(super) struct TargetsStage;

impl Stage for TargetsStage {
    fn name(&self) -> &'static str {
        "targets"
    }

    fn on_begin(&mut self, world: &mut World) {
        world.groups.measure_from_now();
    }

    fn on_events(&mut self, world: &mut World, events: &[ProcessEvent]) {
        world.containers.notice(events);
    }

    fn on_window(&mut self, world: &mut World, window: &mut WindowStacks<'_>, _: WindowEnd) {
        world.containers.learn_new(&window.ran);
        world.groups.follow();
    }

    fn report(&mut self, world: &mut World, _: &PartEnd<'_>, report: &mut PartReport) {
        report.groups = world.groups.report();
    }
}
