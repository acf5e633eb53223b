//! What comes from the sampler goes through the stages in their order: processes, JVMs, unwind tables, names.

use std::time::Instant;

use super::Outcome;
use super::aggregator::Aggregator;
use super::cost::Steadiness;
use super::course::Course;
use super::progress::Progress;
use super::sampler::Batch;
use super::world::World;
use crate::limits::{Limit, LimitsMet};
use crate::loader::unwinding::Unwinding;
use crate::plan::{Control, Settings};
use crate::process::ProcessEvent;
use crate::runtime::hotspot::jvms::Jvms;
use crate::runtime::hotspot::tally::Throttled;
use crate::targets::groups::Groups;
use crate::unwind::Usage;

/// The stages themselves.
pub(super) struct All {
    pub(super) groups: Groups,
    pub(super) unwinding: Unwinding,
    pub(super) jvms: Jvms,
    pub(super) aggregator: Aggregator,
}

/// The stages behind the capture, while sampling goes on.
pub(super) struct Stages<'a> {
    settings: &'a Settings,
    /// What they share.
    world: World,
    all: All,
    progress: Progress,
    course: Course,
    steadiness: Steadiness,
    /// Of processes that have ended, too.
    limits: LimitsMet,
}

impl<'a> Stages<'a> {
    /// Sampling begins.
    pub(super) fn begin(settings: &'a Settings, world: World, mut all: All) -> Stages<'a> {
        // Attaching took its time: what was throttled in that is not of the profile's seconds.
        all.groups.measure_from_now();
        all.jvms.measure();
        Stages {
            world,
            all,
            progress: Progress::new(settings.progress, settings.duration),
            course: Course::begin(),
            steadiness: Steadiness::begin(),
            limits: LimitsMet::default(),
            settings,
        }
    }

    /// What happened to processes since.
    pub(super) fn events(&mut self, events: &[ProcessEvent]) {
        let (World { processes, symbolizer }, All { groups, unwinding, jvms, aggregator }) =
            (&mut self.world, &mut self.all);
        aggregator.apply(events);
        events.iter().for_each(|event| processes.apply(event));
        jvms.notice(aggregator.next_window(), events, |tgid| processes.has_ended(tgid));
        // Until it is known how its stacks are walked those of a JVM that starts do not reach the root.
        jvms.greet(|tgid| unwinding.wants(tgid, processes, groups), symbolizer);
    }

    /// A window has ended.
    pub(super) fn window(&mut self, mut batch: Batch, control: &Control) {
        let when = (self.all.jvms.have_work(), batch.totals.is_some());
        self.steadiness.look(when, batch.program, || self.world.costs());
        self.events(&batch.events);
        let (world, All { groups, unwinding, jvms, aggregator }) = (&mut self.world, &mut self.all);
        let stacks = &mut batch.window.stacks;
        // Before they get their names: a return address that is none is cut off.
        unwinding.meet(stacks, batch.end, &mut world.processes, &mut world.symbolizer);
        jvms.meet(stacks, &mut world.symbolizer);
        jvms.beat(&mut world.symbolizer);
        jvms.read(&world.read_logs(stacks, aggregator.waiting()));
        let throttled = if batch.totals.is_some() { jvms.measure() } else { Throttled::new() };
        aggregator.window(world, batch, throttled, jvms);
        // After that: the last stacks of a JVM that ended are named by what is known of it.
        jvms.close_ended(&aggregator.waiting(), &mut world.symbolizer);
        groups.beat();
        self.limits.merge(world.limits());
        self.limits.note(Limit::ThreadNames, "", aggregator.cut_names());
        self.limits.merge(unwinding.limits());
        self.progress.show(aggregator.samples());
        if control.take_evict() {
            world.symbolizer.shed();
            unwinding.shed();
        }
    }

    /// Whether there is something to do though nothing comes from the sampler.
    pub(super) fn have_work(&self) -> bool {
        self.all.unwinding.has_work() || self.all.jvms.have_work()
    }

    /// What is done again and again, whether anything came or not.
    pub(super) fn beat(&mut self) {
        let (World { processes, symbolizer }, All { groups, unwinding, jvms, .. }) =
            (&mut self.world, &mut self.all);
        let described = jvms.take_described(symbolizer);
        unwinding.describe(described, processes, symbolizer);
        unwinding.beat(processes, groups, symbolizer);
    }

    /// Sampling has ended: what still waits for its names has them now, or none.
    pub(super) fn settle(&mut self) {
        let began = Instant::now();
        let (world, All { jvms, aggregator, .. }) = (&mut self.world, &mut self.all);
        jvms.settle(&mut world.symbolizer);
        jvms.read(&world.read_logs(&[], aggregator.waiting()));
        jvms.release();
        aggregator.finish(world);
        self.progress.clear();
        log::info!("sampling: ended; the last stacks named in {:.0?}", began.elapsed());
        let Usage { tables, spaces, bytes, refused } = self.all.unwinding.usage();
        log::info!(
            "unwinding: {tables} tables for {spaces} processes in {} KiB; no room {refused} times",
            bytes >> 10
        );
    }

    /// Hands over the parts whose stacks have all their names.
    pub(super) fn hand_over(&mut self, hand: &mut impl FnMut(Outcome)) {
        while let Some((part, totals)) = self.all.aggregator.take_part() {
            let costs = self.world.costs();
            let (settings, All { groups, unwinding, jvms, .. }) = (self.settings, &mut self.all);
            let (tables, last) = (unwinding.usage(), part.last_window());
            let mut outcome = self.course.part((part, &totals), jvms, groups, &costs, tables, settings);
            outcome.report.cost.steady = self.steadiness.steady();
            self.limits.note(Limit::Jvms, "", jvms.unread() as u64);
            let mut limits = self.limits.clone();
            limits.note(Limit::Stacks, "", outcome.profile.cut());
            outcome.report.limits = limits.rows();
            hand(outcome);
            jvms.forget_ended(last, &mut self.world.symbolizer);
        }
    }
}
