//! The loader of unwind tables as a stage of a session.

use super::table_loader::TableLoader;
use crate::limits::ReachedLimits;
use crate::plan::Control;
use crate::unwind::Usage;
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, WindowStacks, World};

impl TableLoader {
    /// Loads the descriptions that runtimes gave of their generated code.
    fn load_described(&mut self, world: &mut World) {
        let described = std::mem::take(&mut world.described);
        self.describe(described, &mut world.processes, &mut world.symbolizer);
    }
}

impl Stage for TableLoader {
    fn name(&self) -> &'static str {
        "unwind tables"
    }

    fn on_prepare(&mut self, world: &mut World, control: &Control) {
        self.load_described(world);
        if !control.is_stopped() {
            self.begin(&mut world.processes, &world.groups, &mut world.symbolizer);
        }
    }

    fn on_arrival(&mut self, world: &mut World, window: &mut WindowStacks<'_>) {
        self.unwind_outside(window.stacks, &mut world.processes, &mut world.symbolizer);
    }

    fn on_window(&mut self, world: &mut World, window: &mut WindowStacks<'_>, end: WindowEnd) {
        self.on_stacks(window.stacks, end.next_from, &mut world.processes, &mut world.symbolizer);
    }

    fn on_tick(&mut self, world: &mut World) {
        self.load_described(world);
        self.load_some(&mut world.processes, &world.groups, &mut world.symbolizer);
    }

    fn on_end(&mut self, _: &mut World) {
        let Usage { tables, spaces, bytes, refused } = self.usage();
        let kib = bytes >> 10;
        log::info!("unwinding: {tables} tables for {spaces} processes in {kib} KiB; no room {refused} times");
    }

    fn report(&mut self, _: &mut World, _: &PartEnd<'_>, report: &mut PartReport) {
        report.tables = self.usage();
    }

    fn limits(&self, limits: &mut ReachedLimits) {
        limits.merge(TableLoader::limits(self));
    }

    fn has_work(&self) -> bool {
        TableLoader::has_work(self)
    }

    fn release_memory(&mut self) {
        TableLoader::release_memory(self);
    }
}
