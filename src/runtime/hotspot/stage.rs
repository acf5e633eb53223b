//! JVMs as a stage of a session.

use super::jvms::HotSpotJvms;
use super::lock_names::name_locks_and_objects;
use crate::limits::{Limit, ReachedLimits};
use crate::plan::{Control, Settings};
use crate::process::ProcessEvent;
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, WindowStacks, World};

/// The stage of HotSpot's JVMs.
pub(in crate::runtime) fn stage(settings: &Settings, control: &Control) -> Box<dyn Stage> {
    Box::new(HotSpotJvms::new(settings, control))
}

impl Stage for HotSpotJvms {
    fn name(&self) -> &'static str {
        "HotSpot"
    }

    fn on_prepare(&mut self, world: &mut World, control: &Control) {
        self.attach_all(world, control);
        self.publish_descriptions(world);
    }

    fn on_begin(&mut self, world: &mut World) {
        // Attaching took time: what happened during that time does not belong to the profile.
        self.reports.begin(&mut self.entries, &mut world.processes);
    }

    fn on_events(&mut self, world: &mut World, events: &[ProcessEvent]) {
        self.on_process_events(world, events);
        self.attach_new(world);
    }

    fn on_window(&mut self, world: &mut World, window: &mut WindowStacks<'_>, end: WindowEnd) {
        self.identify(window, world);
        self.poll_jvms(&mut world.symbolizer);
        let mut ran = world.awaiting_names.clone();
        ran.extend(window.ran.iter().map(|of| of.process));
        self.record_log_stats(&world.symbolizer.refresh_jvm_sources(&ran));
        self.reports.record_pauses(&mut self.entries, world, end.ends_part);
        if end.ends_part {
            self.reports.end_part(&mut self.entries, world.window);
        }
        if let Some(threads) = &mut self.threads {
            threads.name_threads(world, window.stacks);
        }
        name_locks_and_objects(world, window.stacks, self.raw_threads);
        self.report_readiness(&mut world.readiness);
    }

    fn on_tick(&mut self, world: &mut World) {
        self.publish_descriptions(world);
        // Closes the JVMs whose last window has been processed.
        self.entries.close_ended(world);
    }

    fn on_end(&mut self, world: &mut World) {
        self.wait_for_attaches(&mut world.symbolizer);
        self.record_log_stats(&world.symbolizer.refresh_jvm_sources(&world.awaiting_names));
        self.end_leases();
    }

    fn report(&mut self, world: &mut World, part: &PartEnd<'_>, report: &mut PartReport) {
        let jvms = self.reports.take_rows(&self.entries, part);
        report.pauses.extend(self.reports.take_pauses(part, &jvms));
        report.jvms.extend(jvms);
        report.warnings.extend(self.warning().map(str::to_owned));
        report.attached.extend(self.results().clone());
        self.entries.forget_ended(part.window, &mut world.symbolizer);
    }

    fn limits(&self, limits: &mut ReachedLimits) {
        limits.note(Limit::Jvms, "", self.unread() as u64);
    }

    fn has_work(&self) -> bool {
        self.is_attaching()
    }

    fn is_beginning(&self) -> bool {
        self.is_attaching()
    }
}
