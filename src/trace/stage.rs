//! Trace contexts as a stage of a session. It stands before the loader of unwind tables, which takes the list of
//! processes that changed.

use super::places::ContextPlaces;
use crate::limits::ReachedLimits;
use crate::plan::Control;
use crate::world::{Stage, WindowEnd, WindowStacks, World};

impl Stage for ContextPlaces {
    fn name(&self) -> &'static str {
        "trace contexts"
    }

    fn on_prepare(&mut self, world: &mut World, control: &Control) {
        if !control.is_stopped() {
            self.begin(world);
        }
    }

    fn on_window(&mut self, world: &mut World, _: &mut WindowStacks<'_>, _: WindowEnd) {
        self.note_changes(world);
    }

    fn on_tick(&mut self, world: &mut World) {
        self.note_changes(world);
        self.inspect_due(world);
    }

    fn on_end(&mut self, _: &mut World) {
        log::info!("trace contexts: {} processes publish them", self.published());
    }

    fn limits(&self, reached: &mut ReachedLimits) {
        ContextPlaces::limits(self, reached);
    }

    fn has_work(&self) -> bool {
        ContextPlaces::has_work(self)
    }
}
