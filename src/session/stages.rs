//! What comes from the sampler goes through the stages in their order: processes, JVMs, unwind tables, names.

use std::time::Instant;

use super::Outcome;
use super::cost::Steadiness;
use super::course::Course;
use super::progress::Progress;
use super::resolver::Resolver;
use super::sampler::Batch;
use crate::limits::{Limit, LimitsMet};
use crate::loader::unwinding::Unwinding;
use crate::plan::{Control, Settings};
use crate::process::ProcessEvent;
use crate::runtime::hotspot::jvms::Jvms;
use crate::runtime::hotspot::tally::Throttled;
use crate::targets::groups::Groups;
use crate::unwind::Usage;

/// The stages behind the capture, while sampling goes on.
pub(super) struct Stages<'a> {
    settings: &'a Settings,
    groups: Groups,
    resolver: Resolver,
    jvms: Jvms,
    unwinding: Unwinding,
    progress: Progress,
    course: Course,
    steadiness: Steadiness,
    /// Of processes that have ended, too.
    limits: LimitsMet,
}

impl<'a> Stages<'a> {
    /// Sampling begins.
    pub(super) fn begin(
        settings: &'a Settings,
        mut groups: Groups,
        resolver: Resolver,
        mut jvms: Jvms,
        unwinding: Unwinding,
    ) -> Stages<'a> {
        // Attaching took its time: what was throttled in that is not of the profile's seconds.
        groups.measure_from_now();
        jvms.measure();
        Stages {
            groups,
            resolver,
            jvms,
            unwinding,
            progress: Progress::new(settings.progress, settings.duration),
            course: Course::begin(),
            steadiness: Steadiness::begin(),
            limits: LimitsMet::default(),
            settings,
        }
    }

    /// What happened to processes since.
    pub(super) fn events(&mut self, events: &[ProcessEvent]) {
        let Stages { groups, resolver, jvms, unwinding, .. } = self;
        resolver.apply(events);
        jvms.notice(resolver.next_window(), events, |tgid| resolver.processes.has_ended(tgid));
        // Until it is known how its stacks are walked those of a JVM that starts do not reach the root.
        jvms.greet(|tgid| unwinding.wants(tgid, &resolver.processes, groups), &mut resolver.symbolizer);
    }

    /// A window has ended.
    pub(super) fn window(&mut self, mut batch: Batch, control: &Control) {
        let when = (self.jvms.have_work(), batch.totals.is_some());
        self.steadiness.look(when, batch.program, || self.resolver.costs());
        self.events(&batch.events);
        let Stages { groups, resolver, jvms, unwinding, .. } = self;
        let stacks = &mut batch.window.stacks;
        unwinding.meet(stacks, batch.end, &mut resolver.processes, &mut resolver.symbolizer);
        jvms.meet(&batch.window.stacks, &mut resolver.symbolizer);
        jvms.beat(&mut resolver.symbolizer);
        jvms.read(&resolver.read_logs(&batch.window.stacks));
        let throttled = if batch.totals.is_some() { jvms.measure() } else { Throttled::new() };
        resolver.window(batch, throttled, jvms);
        jvms.close_ended(&resolver.waiting(), &mut resolver.symbolizer);
        groups.beat();
        self.limits.merge(resolver.limits());
        self.limits.merge(unwinding.limits());
        self.progress.show(resolver.samples());
        if control.take_evict() {
            resolver.symbolizer.shed();
            unwinding.shed();
        }
    }

    /// Whether there is something to do though nothing comes from the sampler.
    pub(super) fn have_work(&self) -> bool {
        self.unwinding.has_work() || self.jvms.have_work()
    }

    /// What is done again and again, whether anything came or not.
    pub(super) fn beat(&mut self) {
        let Stages { groups, resolver, jvms, unwinding, .. } = self;
        let described = jvms.take_described(&mut resolver.symbolizer);
        unwinding.describe(described, &mut resolver.processes, &mut resolver.symbolizer);
        unwinding.beat(&mut resolver.processes, groups, &mut resolver.symbolizer);
    }

    /// Sampling has ended: what still waits for its names has them now, or none.
    pub(super) fn settle(&mut self) {
        let began = Instant::now();
        let Stages { resolver, jvms, .. } = self;
        jvms.settle(&mut resolver.symbolizer);
        jvms.read(&resolver.read_logs(&[]));
        jvms.release();
        resolver.finish();
        self.progress.clear();
        log::info!("sampling: ended; the last stacks named in {:.0?}", began.elapsed());
        let Usage { tables, spaces, bytes, refused } = self.unwinding.usage();
        log::info!(
            "unwinding: {tables} tables for {spaces} processes in {} KiB; no room {refused} times",
            bytes >> 10
        );
    }

    /// Hands over the parts whose stacks have all their names.
    pub(super) fn hand_over(&mut self, hand: &mut impl FnMut(Outcome)) {
        while let Some((part, totals)) = self.resolver.take_part() {
            let costs = self.resolver.costs();
            let Stages { settings, groups, jvms, unwinding, .. } = self;
            let (tables, last) = (unwinding.usage(), part.last_window());
            let mut outcome = self.course.part((part, &totals), jvms, groups, &costs, tables, settings);
            outcome.report.cost.steady = self.steadiness.steady();
            self.limits.note(Limit::Jvms, "", jvms.unread() as u64);
            let mut limits = self.limits.clone();
            limits.note(Limit::Stacks, "", outcome.profile.cut());
            outcome.report.limits = limits.rows();
            hand(outcome);
            jvms.forget_ended(last, &mut self.resolver.symbolizer);
        }
    }
}
