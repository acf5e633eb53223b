//! Sends each batch of the sampler through all stages, in order, and then to the aggregator.

use std::time::Instant;

use jiff::Timestamp;

use super::Outcome;
use super::aggregator::Aggregator;
use super::batch::WindowBatch;
use super::cost::SteadyMeter;
use super::part::FinishedPart;
use super::part_assembler::PartAssembler;
use super::progress::Progress;
use super::targets_stage::TargetsStage;
use crate::allocators;
use crate::capture::{AllocationProbes, ContextMap, UnwindMemory};
use crate::limits::{Limit, ReachedLimits};
use crate::loader::table_loader::TableLoader;
use crate::plan::{Control, Settings};
use crate::process::ProcessEvent;
use crate::profile::Profile;
use crate::profile::samples::TimeSpan;
use crate::runtime;
use crate::sample::unit::Unit;
use crate::sample::{Event, EventPeriod};
use crate::trace::{ContextPlaces, ProcessContexts};
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, World};

/// All stages, in their order. First, who runs. Then allocations, if the user asks for them: a new program allocates from
/// its first moment on. Then runtimes, whose descriptions of JIT code the unwinder needs. Then trace contexts, if the
/// user asks for them: the stage looks at the processes that changed. Then what processes publish. Unwinding takes these
/// processes from their list: it loads unwind tables, and removes wrong frames from stacks that were unwound without
/// them. Symbolizing comes last.
fn in_order(
    settings: &Settings,
    control: &Control,
    allocations: Vec<Box<dyn Stage>>,
    traces: Vec<Box<dyn Stage>>,
    unwinding: Box<dyn Stage>,
) -> Vec<Box<dyn Stage>> {
    let mut stages: Vec<Box<dyn Stage>> = vec![Box::new(TargetsStage)];
    stages.extend(allocations);
    stages.extend(runtime::stages(settings, control));
    stages.extend(traces);
    stages.push(unwinding);
    stages
}

/// What stages fill and attach of the BPF program.
pub(super) struct LoaderMaps {
    pub(super) unwind: UnwindMemory,
    pub(super) contexts: ContextMap,
    /// The programs of each event of allocations.
    pub(super) allocations: Vec<AllocationProbes>,
    /// The process that waits to execute the command.
    pub(super) launched: Option<u32>,
}

/// The stages behind the sampler, while sampling goes on.
pub(super) struct Stages<'a> {
    settings: &'a Settings,
    world: World,
    stages: Vec<Box<dyn Stage>>,
    aggregator: Aggregator,
    progress: Progress,
    part_assembler: PartAssembler,
    steadiness: SteadyMeter,
    /// Limits of the whole session, also of processes that have ended.
    limits: ReachedLimits,
    begun: Timestamp,
}

impl<'a> Stages<'a> {
    /// Makes the stages and lets each prepare for the first sample.
    pub(super) fn prepare(
        settings: &'a Settings,
        control: &Control,
        mut world: World,
        maps: LoaderMaps,
        aggregator: Aggregator,
    ) -> Stages<'a> {
        let LoaderMaps { unwind, contexts, allocations, launched } = maps;
        let unwinding = Box::new(TableLoader::new(unwind, world.scope.clone()));
        let traces: Vec<Box<dyn Stage>> = match settings.trace_context {
            true => vec![Box::new(ContextPlaces::new(contexts)), Box::new(ProcessContexts::new())],
            false => Vec::new(),
        };
        let of_event = |probes: AllocationProbes| match probes.event() {
            Event::NativeAlloc => allocators::stage(probes, launched),
            _ => runtime::allocations(probes, settings.java_allocations),
        };
        let allocations = allocations.into_iter().map(of_event).collect();
        let mut stages = in_order(settings, control, allocations, traces, unwinding);
        stages.iter_mut().for_each(|stage| stage.on_prepare(&mut world, control));
        Stages {
            world,
            stages,
            aggregator,
            progress: Progress::new(settings.progress, settings.duration),
            part_assembler: PartAssembler::begin(),
            steadiness: SteadyMeter::begin(),
            limits: ReachedLimits::default(),
            begun: Timestamp::now(),
            settings,
        }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn begin(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.on_begin(&mut self.world));
        (self.part_assembler, self.steadiness) = (PartAssembler::begin(), SteadyMeter::begin());
        self.begun = Timestamp::now();
    }

    /// The samples that have their names since the last call, in seconds since the begin of sampling; and the pauses of
    /// JVMs since then.
    pub(super) fn take_fresh(&mut self) -> Profile {
        let pauses = self.world.new_pauses.as_mut().map(std::mem::take).unwrap_or_default();
        let mut fresh = self.aggregator.take_fresh(&pauses);
        fresh.span = TimeSpan {
            start_unix_ns: self.begun.as_nanosecond().try_into().unwrap_or(0),
            duration_ns: Timestamp::now().duration_since(self.begun).as_nanos().try_into().unwrap_or(0),
        };
        for EventPeriod { event, period } in &self.settings.events {
            let is_time = event.unit() == Unit::Nanoseconds;
            let accounts = fresh.accounts_mut(*event);
            (accounts.period_ns, accounts.one_in) = if is_time { (*period, 0) } else { (0, *period) };
        }
        fresh
    }

    /// Applies process events to the world, then sends them to each stage.
    pub(super) fn on_events(&mut self, events: &[ProcessEvent]) {
        events.iter().for_each(|event| self.world.processes.apply(event));
        self.stages.iter_mut().for_each(|stage| stage.on_events(&mut self.world, events));
    }

    pub(super) fn on_window(&mut self, mut batch: WindowBatch, control: &Control) {
        let is_beginning = self.stages.iter().any(|stage| stage.is_beginning());
        let ends_part = batch.totals.is_some();
        self.steadiness.observe(is_beginning, ends_part, batch.program, || self.world.child_stats());
        self.on_events(&batch.events);
        let mut stacks = self.world.register_window(&mut batch.window.stacks);
        self.world.readiness.clear();
        let end = WindowEnd { at: batch.end, next_from: batch.window.next_from, ends_part };
        self.stages.iter_mut().for_each(|stage| stage.on_arrival(&mut self.world, &mut stacks));
        for stage in &mut self.stages {
            let began = Instant::now();
            stage.on_window(&mut self.world, &mut stacks, end);
            log::trace!("window {}: {}, {:.1?}", self.world.window, stage.name(), began.elapsed());
        }
        self.aggregator.on_window(&mut self.world, batch);
        self.note_limits();
        self.progress.draw(self.aggregator.samples());
        if control.take_evict() {
            self.world.symbolizer.release_memory();
            self.stages.iter_mut().for_each(|stage| stage.release_memory());
        }
    }

    fn note_limits(&mut self) {
        self.limits.merge(self.world.limits());
        self.limits.note(Limit::ThreadNames, "", self.aggregator.cut_names());
        self.limits.note(Limit::WaitThreads, "", self.aggregator.untimed());
        self.limits.note(Limit::Wakers, "", self.aggregator.wakers_left_out());
        self.stages.iter().for_each(|stage| stage.limits(&mut self.limits));
    }

    /// Whether a stage has work for the next tick.
    pub(super) fn have_work(&self) -> bool {
        self.stages.iter().any(|stage| stage.has_work())
    }

    /// Lets the stages do their periodic work.
    pub(super) fn tick(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.on_tick(&mut self.world));
    }

    /// Sampling has ended: the stacks that still wait are symbolized as far as possible.
    pub(super) fn end(&mut self) {
        let began = Instant::now();
        self.stages.iter_mut().for_each(|stage| stage.on_end(&mut self.world));
        self.aggregator.finish(&mut self.world);
        self.progress.clear();
        log::info!("sampling: ended; the last stacks named in {:.0?}", began.elapsed());
    }

    /// Hands over each part whose stacks all have their names.
    pub(super) fn hand_over(&mut self, hand: &mut impl FnMut(Outcome)) {
        while let Some(FinishedPart { part, totals }) = self.aggregator.take_part() {
            let children = self.world.child_stats();
            self.note_limits();
            let mut reported = PartReport::default();
            let end = PartEnd {
                window: part.last_window(),
                samples: &part.tally.runtimes,
                symbols: &children.symbols,
            };
            self.stages.iter_mut().for_each(|stage| stage.report(&mut self.world, &end, &mut reported));
            let spans_left_out = part.spans_left_out;
            let mut outcome = self.part_assembler.part(part, &totals, reported, &children, self.settings);
            outcome.report.cost.steady = self.steadiness.steady();
            let mut limits = self.limits.clone();
            limits.note(Limit::Stacks, "", outcome.profile.truncated_stacks());
            limits.note(Limit::Spans, "", spans_left_out);
            outcome.report.limits = limits.rows();
            hand(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual;

    /// A stage of this name that does nothing.
    struct NamedStage(&'static str);

    impl Stage for NamedStage {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn the_order_is_that_of_the_architecture_page() {
        let page = include_str!("../../docs/architecture.md");
        let rows = manual::table(page, "## Stages");
        let documented: Vec<&str> = rows.iter().filter_map(|row| manual::codes(row[0]).next()).collect();
        let allocations: [Box<dyn Stage>; 2] =
            [Box::new(NamedStage("allocations")), Box::new(NamedStage("native allocations"))];
        let traces: [Box<dyn Stage>; 2] =
            [Box::new(NamedStage("trace contexts")), Box::new(NamedStage("process contexts"))];
        let unwinding = Box::new(NamedStage("unwind tables"));
        let stages = in_order(
            &Settings::for_test(),
            &Control::default(),
            allocations.into(),
            traces.into(),
            unwinding,
        );
        let order: Vec<&str> = stages.iter().map(|stage| stage.name()).collect();
        assert_eq!(documented, order);
    }
}
