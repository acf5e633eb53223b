//! Sums samples to a profile. Each window's stacks are symbolized while their processes still run. Stacks of runtimes
//! that report compiled code late wait for a window, and then until there are enough of them for one batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::batch::WindowBatch;
use super::idle::IdleDetector;
use super::name_queue::{NameQueue, PartitionedStacks, QueuedStack};
use super::new_samples::NewSamples;
use super::object_frame;
use super::part::{FinishedPart, PartEnding, RunPart};
use super::tally::EventTally;
use super::wakers::Wakers;
use super::{long_waits, probe_frames};
use crate::capture::{Window, WindowCounts};
use crate::process::comm::{self, MAX_KERNEL, fold_numbers};
use crate::profile::frames::FrameId;
use crate::profile::labels::LabelsId;
use crate::profile::samples::{Sample, Weight};
use crate::profile::{Frame, Kind, Labels, Profile};
use crate::sample::{
    Count, Estimate, Event, MonoNs, ProcessId, SpanContext, Stack, StackKey, ThreadState, UserWord,
};
use crate::symbolize::{CHUNK, NamedStack};
use crate::world::{WindowPauses, World};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StackDisplay {
    /// Add a frame for each thread.
    pub(super) per_thread: bool,
    /// Keep the numbers in thread names.
    pub(super) raw_threads: bool,
    /// Keep the second of each sample.
    pub(super) seconds: bool,
    /// The first event that the user named.
    pub(super) first: Event,
}

/// The key of stacks with the same process and thread frames and labels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StackOwner {
    process: ProcessId,
    tid: u32,
    comm: u64,
    cgroup: u64,
    state: ThreadState,
    span: Option<SpanContext>,
}

impl StackOwner {
    fn of(stack: &Stack) -> StackOwner {
        let StackKey { process, tid, comm, cgroup, state, .. } = stack.key;
        StackOwner { process, tid, comm, cgroup, state, span: stack.context.span() }
    }
}

fn root_first(stack: &Stack) -> impl Iterator<Item = u64> + '_ {
    stack.user.iter().rev().map(|word| match *word {
        UserWord::Leaf(pc) | UserWord::Return(pc) | UserWord::Followed(pc) => pc,
        UserWord::Interpreted { method, .. } => method,
    })
}

/// The labels of an owner's stacks.
struct ShownOwner {
    owner: StackOwner,
    waits: bool,
    interned: InternedOwner,
}

/// The interned labels of an owner's stacks.
#[derive(Clone, Copy)]
struct InternedOwner {
    labels: LabelsId,
    /// The thread's name may be truncated.
    name_may_be_cut: bool,
}

/// The names of a stack's process and thread.
struct OwnerNames {
    process: Arc<str>,
    thread: Arc<str>,
    /// The stack has a frame for its thread.
    per_thread: bool,
    /// The thread's name may be truncated.
    may_be_cut: bool,
}

impl OwnerNames {
    /// The frames of process and thread. `tid`: 0 unless threads are counted one by one.
    fn roots(&self, tid: u32) -> Vec<Frame> {
        let mut roots = vec![Frame::named(Kind::Process, &*self.process)];
        if self.per_thread {
            let name = match tid {
                0 => self.thread.to_string(),
                tid => format!("{} tid={tid}", self.thread),
            };
            roots.push(Frame::named(Kind::Thread, name));
        }
        roots
    }
}

/// The stack that was added last. The next stack reuses the frames that both have in common.
#[derive(Default)]
struct LastStack {
    shown: Option<ShownOwner>,
    frames: Vec<Arc<Frame>>,
    /// How many of `path`'s first elements are frames of process and thread.
    roots: usize,
    /// Frames of process and thread, then interned frames of the stack from the root on, as many as were needed so far.
    path: Vec<FrameId>,
}

impl LastStack {
    fn replace(&mut self, named: NamedStack) {
        self.path.truncate(self.roots + named.same);
        named.replace(&mut self.frames);
    }

    /// Replaces the frames of process and thread.
    fn replace_owner(&mut self, roots: Vec<FrameId>, shown: ShownOwner) {
        let before = std::mem::replace(&mut self.roots, roots.len());
        self.path.splice(..before, roots);
        self.shown = Some(shown);
    }
}

/// Turns batches into profiles, one for each part.
pub(super) struct Aggregator {
    /// Parts that still wait for names of stacks; the last one still gets windows.
    parts: VecDeque<RunPart>,
    idle: IdleDetector,
    view: StackDisplay,
    /// Samples of threads whose names may be truncated.
    cut_names: u64,
    /// Waits whose time was not measured.
    untimed: u64,
    name_queue: NameQueue,
    wakers: Wakers,
    /// Samples that were added since they were last taken; only if somebody watches the session.
    fresh: Option<NewSamples>,
    /// When the last two windows ended, in time order.
    ends: [MonoNs; 2],
}

impl Aggregator {
    pub(super) fn new(idle: IdleDetector, view: StackDisplay) -> Aggregator {
        Aggregator {
            parts: VecDeque::from([RunPart::new(view.first)]),
            idle,
            view,
            cut_names: 0,
            untimed: 0,
            name_queue: NameQueue::default(),
            wakers: Wakers::default(),
            fresh: None,
            ends: [MonoNs::default(); 2],
        }
    }

    /// Also notes the samples for [`Aggregator::take_fresh`]. The session must have one part.
    pub(super) fn with_fresh_samples(self) -> Aggregator {
        Aggregator { fresh: Some(NewSamples::default()), name_queue: NameQueue::watched(), ..self }
    }

    /// The samples that were added since the last call, with their accounts and with these pauses.
    pub(super) fn take_fresh(&mut self, pauses: &[WindowPauses]) -> Profile {
        let Some((part, fresh)) = self.parts.front().zip(self.fresh.as_mut()) else {
            return Profile::default();
        };
        let mut profile = fresh.take_profile(part, self.idle.shown);
        profile.pauses = part.pauses(pauses);
        profile
    }

    /// Samples of the current part; while it is empty, of the newest part that has some.
    pub(super) fn samples(&self) -> u64 {
        let of = |tally: &EventTally| tally.kept - tally.hidden_idle(self.idle.shown);
        let samples = |part: &RunPart| part.tally.events().map(of).sum::<u64>();
        let samples = self.parts.iter().rev().map(samples);
        samples.into_iter().find(|samples| *samples > 0).unwrap_or(0)
    }

    /// The oldest part that is over, if none of its stacks waits any more.
    pub(super) fn take_part(&mut self) -> Option<FinishedPart> {
        let PartEnding { window, totals } = self.parts.front()?.end.clone()?;
        if self.name_queue.reaches_back_to(window) {
            return None;
        }
        Some(FinishedPart { part: self.parts.pop_front()?, totals })
    }

    /// Samples of threads whose names may be truncated.
    pub(super) fn cut_names(&self) -> u64 {
        self.cut_names
    }

    /// Waits whose time was not measured.
    pub(super) fn untimed(&self) -> u64 {
        self.untimed
    }

    /// Stacks of wakers for which there was no room.
    pub(super) fn wakers_left_out(&self) -> u64 {
        self.wakers.left_out()
    }

    /// Adds a window after all stages have seen its stacks.
    pub(super) fn on_window(&mut self, world: &mut World, batch: WindowBatch) {
        let WindowBatch { window: counted, events, end, totals, program: _ } = batch;
        let number = world.window;
        let (began, stacks) = (Instant::now(), counted.stacks.len());
        let new_samples: u64 = counted.events.iter().map(|of| of.counters.ticks).sum();
        self.count(number, &counted);
        self.untimed += counted.events.iter().map(|of| of.waited.untimed).sum::<u64>();
        if self.view.seconds {
            let before = self.ends[1];
            self.part(number).note_end(number, before, end);
        }
        world.symbolizer.follow_kernel();
        let PartitionedStacks { waiting, ready } =
            self.name_queue.partition_by_readiness(number, counted.stacks, &world.readiness);
        self.resolve(world, ready);
        let over = self.parts.front().and_then(|part| part.end.as_ref()).map(|end| end.window);
        let due = self.name_queue.take_due(number, over, &world.readiness);
        self.resolve_each(world, due);
        world.symbolizer.prefetch_interpreted(waiting.iter().map(|one| &one.stack));
        if let Some((totals, part)) = totals.zip(self.parts.back_mut()) {
            part.end = Some(PartEnding { window: number, totals });
            self.parts.push_back(RunPart::new(self.view.first));
        }
        self.name_queue.add(waiting);
        self.wakers.forget_old(number);
        let oldest = self.name_queue.oldest().unwrap_or(end);
        world.processes.retire(oldest.min(self.ends[0]));
        world.symbolizer.evict_unused(&world.processes);
        self.ends = [self.ends[1], end];
        world.awaiting_names = self.name_queue.processes();
        world.window += 1;
        log::debug!(
            "window {number}: {new_samples} samples, {stacks} stacks, {} events of processes; taken in within {:.1?}",
            events.len(),
            began.elapsed(),
        );
    }

    /// Adds a window's counts to its part.
    fn count(&mut self, number: u64, counted: &Window) {
        let RunPart { tally, most_stacks, .. } = self.part(number);
        for WindowCounts { event, frameless, misfiled, counters, kept, waited, allocated } in &counted.events
        {
            let tally = tally.of(*event);
            tally.waits.times.add(waited);
            tally.allocated.add(allocated);
            tally.counters.add(counters);
            tally.kept += kept - frameless - misfiled + counters.idle;
            tally.idle += counters.idle;
            tally.frameless += frameless;
            tally.misfiled += misfiled;
        }
        *most_stacks = counted.stacks.len().max(*most_stacks);
    }

    /// Symbolizes all stacks that still wait.
    pub(super) fn finish(&mut self, world: &mut World) {
        let waiting = self.name_queue.take_all();
        self.resolve_each(world, waiting);
    }

    /// Symbolizes stacks of any windows.
    fn resolve_each(&mut self, world: &mut World, waiting: Vec<QueuedStack>) {
        let mut by_part: BTreeMap<usize, Vec<QueuedStack>> = BTreeMap::new();
        for one in waiting {
            by_part.entry(self.part_at(one.window)).or_default().push(one);
        }
        for counted in by_part.into_values() {
            self.resolve(world, counted);
        }
    }

    /// The index of the part that has `window`.
    fn part_at(&self, window: u64) -> usize {
        let over = |part: &RunPart| part.end.as_ref().is_some_and(|end| end.window < window);
        self.parts.iter().take_while(|part| over(part)).count()
    }

    /// The part that has `window`.
    fn part(&mut self, window: u64) -> &mut RunPart {
        let at = self.part_at(window);
        if at == self.parts.len() {
            self.parts.push_back(RunPart::new(self.view.first));
        }
        &mut self.parts[at]
    }

    /// Symbolizes stacks of one part and adds them to it, each in its own window.
    fn resolve(&mut self, world: &mut World, counted: Vec<QueuedStack>) {
        // Waits refer to the stacks that ended them.
        let (wakers, others): (Vec<_>, Vec<_>) = counted.into_iter().partition(|one| one.stack.is_waker());
        self.resolve_all(world, wakers);
        self.resolve_all(world, others);
    }

    fn resolve_all(&mut self, world: &mut World, mut counted: Vec<QueuedStack>) {
        // Sorted, neighbours share most of their frames, so that each lookup serves several stacks.
        counted.sort_unstable_by(|QueuedStack { stack: a, .. }, QueuedStack { stack: b, .. }| {
            StackOwner::of(a).cmp(&StackOwner::of(b)).then_with(|| root_first(a).cmp(root_first(b)))
        });
        let counts: Vec<_> = counted.iter().map(|one| (one.window, one.count)).collect();
        let stacks: Vec<Stack> = counted.into_iter().map(|one| one.stack).collect();
        // Valid within this call: process names do not change meanwhile.
        let mut last = LastStack::default();
        // In chunks, because the frames of all stacks of a window would take much memory.
        for (stacks, counts) in stacks.chunks(CHUNK).zip(counts.chunks(CHUNK)) {
            let named = world.symbolizer.symbolize(stacks, &mut world.processes);
            for ((stack, (window, count)), named) in stacks.iter().zip(counts).zip(named) {
                last.replace(named);
                self.add(world, stack, *count, &mut last, *window);
            }
        }
    }

    /// Adds a stack whose frames are in `last`.
    fn add(&mut self, world: &mut World, stack: &Stack, count: Count, last: &mut LastStack, window: u64) {
        let event = stack.key.event;
        if let Some(waker) = stack.waker.filter(|_| stack.is_waker()) {
            let roots = self.owner_names(world, stack, false).roots(stack.key.tid);
            return self.wakers.add(waker, window, roots, &last.frames);
        }
        let waits = event == Event::Cpu && self.idle.is_idle(stack, &last.frames, count.samples);
        if waits {
            self.part(window).tally.of(event).idle += count.samples;
            if !self.idle.shown {
                return;
            }
        }
        let wait = (event == Event::Wait).then(|| self.idle.wait(stack, &last.frames));
        if let Some(wait) = &wait {
            let tally = self.part(window).tally.of(event);
            tally.waits.note(stack.key.state, wait, count);
            if wait.idle.is_some() {
                tally.idle += count.samples;
                if !self.idle.shown {
                    return;
                }
            }
        }
        self.part(window).note(stack, count, &last.frames);
        let InternedOwner { labels, name_may_be_cut } = match &last.shown {
            Some(shown) if shown.owner == StackOwner::of(stack) && shown.waits == waits => shown.interned,
            _ => self.intern_owner(world, stack, waits, last, window),
        };
        self.cut_names += if name_may_be_cut { count.samples } else { 0 };
        let second = if self.view.seconds { self.part(window).second_of(window) } else { 0 };
        let above = self.wakers.frames_above(stack);
        let part = self.part(window);
        if stack.context.span().is_some() && part.profile.labels(labels).span.is_none() {
            part.spans_left_out += count.samples;
        }
        let profile = &mut part.profile;
        let object = object_frame::of(stack);
        let cut = match (&wait, &object) {
            (Some(wait), _) => wait.cut,
            (None, Some(_)) => object_frame::jvm_frames(&last.frames),
            (None, None) => probe_frames::at_leaf(event, &last.frames),
        };
        let shown = last.frames.len() - cut;
        let known = last.path.len() - last.roots;
        let new = last.frames[..shown].iter().skip(known);
        last.path.extend(new.map(|frame| profile.intern_frame(frame)));
        let path = &last.path[..last.roots + shown];
        let leaf = wait.map(|wait| wait.leaf(stack.key.state)).or(object).map(Arc::new);
        let node = match leaf {
            None => profile.stack_of(path),
            Some(leaf) => {
                let mut path = path.to_vec();
                for frame in std::iter::once(leaf).chain(above) {
                    path.push(profile.intern_frame(&frame));
                }
                profile.stack_of(&path)
            }
        };
        let objects = if event.allocates() { count.estimate } else { Estimate::default() };
        let weight = Weight { count: count.samples, value: count.weight, objects };
        let seconds = if event == Event::Wait { long_waits::seconds(count, second) } else { second..=second };
        for (second, weight) in long_waits::parts(weight, seconds) {
            self.part(window).profile.add_interned_in_second(second, node, labels, event, weight);
            if let Some(fresh) = &mut self.fresh {
                fresh.note(Sample { leaf: node, labels, event, second, weight });
            }
        }
    }

    /// Interns the labels and the frames of process and thread of a stack. `waits`: the CPU was idle.
    fn intern_owner(
        &mut self,
        world: &mut World,
        stack: &Stack,
        waits: bool,
        last: &mut LastStack,
        window: u64,
    ) -> InternedOwner {
        let id = stack.key.process;
        let span = self.part(window).admit_span(stack);
        let names = self.owner_names(world, stack, waits);
        let root = names.roots(stack.key.tid);
        let OwnerNames { process, thread, may_be_cut, .. } = names;
        let labels = Labels {
            pid: id.tgid,
            process,
            thread,
            tid: stack.key.tid,
            cgroup: stack.key.cgroup,
            container: if id.is_idle() { None } else { world.containers.of(stack.key.cgroup) },
            state: stack.key.state,
            span,
            resource: world.resources.get(&id).map(Arc::clone),
        };
        let profile = &mut self.part(window).profile;
        let roots = root.into_iter().map(|frame| profile.intern_frame(&Arc::new(frame))).collect();
        let labels = profile.intern_labels(&labels);
        let interned = InternedOwner { labels, name_may_be_cut: may_be_cut };
        last.replace_owner(roots, ShownOwner { owner: StackOwner::of(stack), waits, interned });
        interned
    }

    /// The names of a stack's process and thread. `waits`: the CPU was idle.
    fn owner_names(&self, world: &mut World, stack: &Stack, waits: bool) -> OwnerNames {
        let id = stack.key.process;
        let process = match (id.is_idle(), waits) {
            (false, _) => world.process_name(stack),
            (true, true) => "[idle]".to_owned(),
            (true, false) => "[interrupts while idle]".to_owned(),
        };
        let per_thread = self.view.per_thread && !id.is_idle();
        let whole_name = world.thread_names.of(stack).filter(|_| per_thread).cloned();
        let may_be_cut = per_thread && whole_name.is_none() && stack.comm.len() >= MAX_KERNEL;
        let thread = whole_name.unwrap_or_else(|| {
            let thread = comm::text(&stack.comm);
            if self.view.raw_threads { thread } else { fold_numbers(&thread) }.into()
        });
        OwnerNames { process: process.into(), thread, per_thread, may_be_cut }
    }
}
