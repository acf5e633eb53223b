//! Sums samples to a profile: each window's stacks get their frames while their processes are still there; those of
//! JVMs wait a window, since a JVM reports what it compiled a little late, and then until they are many.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::idle::Idle;
use super::part::Part;
use super::sampler::{Batch, Totals};
use super::tally::EventTally;
use super::waiting::{Queue, Waiting};
use super::world::World;
use crate::capture::Counted;
use crate::process::ProcessEvent;
use crate::profile::frames::FrameId;
use crate::profile::labels::LabelsId;
use crate::profile::samples::Weight;
use crate::profile::{Frame, Kind, Labels};
use crate::runtime::Delay;
use crate::runtime::hotspot::java_threads::JavaThreads;
use crate::runtime::hotspot::tally::Throttled;
use crate::runtime::hotspot::thread_name::{self, MAX_KERNEL, fold_numbers};
use crate::sample::{Count, Event, MonoNs, ProcessId, Stack, StackKey, UserWord};
use crate::symbolize::{CHUNK, Named};
use crate::targets::containers::Containers;

/// How stacks are shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// A frame for each thread.
    pub(super) per_thread: bool,
    /// Thread names with their numbers.
    pub(super) raw_threads: bool,
    /// The event that was asked for first.
    pub(super) first: Event,
}

/// What tells apart how stacks are shown: program, thread, its name, cgroup.
type Owner = ((u32, u64, u32), u32, u64, u64);

fn owner(stack: &Stack) -> Owner {
    let StackKey { process: ProcessId { tgid, start, exec }, tid, comm, cgroup, .. } = stack.key;
    ((tgid, start, exec), tid, comm, cgroup)
}

fn root_first(stack: &Stack) -> impl Iterator<Item = u64> + '_ {
    stack.user.iter().rev().map(|word| match *word {
        UserWord::Leaf(pc) | UserWord::Return(pc) | UserWord::Followed(pc) => pc,
        UserWord::Interpreted { method, .. } => method,
    })
}

/// How the stacks of an owner are shown.
struct Shown {
    owner: Owner,
    waits: bool,
    labels: LabelsId,
    /// The thread's name may be a part of it.
    cut: bool,
}

/// The stack that was added last: what the next one shares with it is not looked up again.
#[derive(Default)]
struct Last {
    shown: Option<Shown>,
    frames: Vec<Arc<Frame>>,
    /// Frames of process and thread.
    roots: usize,
    /// Process, thread, and those of the stack's frames that were needed, from the root on.
    path: Vec<FrameId>,
}

impl Last {
    fn replace(&mut self, named: Named) {
        self.path.truncate(self.roots + named.same);
        named.replace(&mut self.frames);
    }

    /// The same stack with these frames of process and thread.
    fn show(&mut self, roots: Vec<FrameId>, shown: Shown) {
        let before = std::mem::replace(&mut self.roots, roots.len());
        self.path.splice(..before, roots);
        self.shown = Some(shown);
    }
}

/// Turns batches into profiles, one for each part.
pub(super) struct Aggregator {
    /// Those whose stacks are not all named; the last is not over.
    parts: VecDeque<Part>,
    containers: Containers,
    idle: Idle,
    view: View,
    threads: JavaThreads,
    /// Ticks of threads whose names may be a part of theirs.
    cut_names: u64,
    waiting: Queue,
    window: u64,
    /// When the last windows ended, the latest last.
    ends: [MonoNs; 2],
}

impl Aggregator {
    pub(super) fn new(containers: Containers, idle: Idle, view: View) -> Aggregator {
        let (waiting, window, ends) = (Queue::default(), 0, [MonoNs::default(); 2]);
        let parts = VecDeque::from([Part::new(view.first)]);
        let threads = JavaThreads::new(view.raw_threads);
        Aggregator { parts, containers, idle, view, threads, cut_names: 0, waiting, window, ends }
    }

    /// Samples so far of the part that is not over; at the end, when the next one is empty, of the last.
    pub(super) fn samples(&self) -> u64 {
        let of = |tally: &EventTally| tally.kept - tally.hidden_idle(self.idle.shown);
        let samples = |part: &Part| part.tally.events().map(of).sum::<u64>();
        let samples = self.parts.iter().rev().map(samples);
        samples.into_iter().find(|samples| *samples > 0).unwrap_or(0)
    }

    /// The oldest part that is over, if no stack of it still waits, and what was known at its end.
    pub(super) fn take_part(&mut self) -> Option<(Part, Totals)> {
        let (last, totals) = self.parts.front()?.end.clone()?;
        if self.waiting.reaches_back_to(last) {
            return None;
        }
        Some((self.parts.pop_front()?, totals))
    }

    /// Ticks of threads whose names may be a part of theirs.
    pub(super) fn cut_names(&self) -> u64 {
        self.cut_names
    }

    /// The number of the window that is taken in next.
    pub(super) fn next_window(&self) -> u64 {
        self.window + 1
    }

    /// Takes in what happened to processes.
    pub(super) fn apply(&mut self, events: &[ProcessEvent]) {
        self.containers.notice(events);
    }

    /// Whose stacks wait for their names.
    pub(super) fn waiting(&self) -> HashSet<ProcessId> {
        self.waiting.processes()
    }

    /// Takes in a window whose events have been applied; `throttled`: if it ends a part, how JVMs were in that.
    pub(super) fn window(&mut self, world: &mut World, batch: Batch, throttled: Throttled, jvms: &dyn Delay) {
        let Batch { window, events, end, totals, program: _ } = batch;
        self.window += 1;
        let (began, stacks) = (Instant::now(), window.stacks.len());
        let new_ticks: u64 = window.events.iter().map(|of| of.counters.ticks).sum();
        let Part { tally, most_stacks, .. } = self.part(self.window);
        for Counted { event, frameless, counters, kept } in &window.events {
            let tally = tally.of(*event);
            tally.counters.add(counters);
            tally.kept += kept - frameless + counters.idle;
            tally.idle += counters.idle;
            tally.frameless += frameless;
        }
        *most_stacks = stacks.max(*most_stacks);
        self.containers.meet(&window.stacks);
        world.symbolizer.follow_kernel();
        let mut counted = window.stacks;
        // In the order of time: which program has a number is told by the first stack that has it, and those of an exec,
        // which come last, may be of the next one's time already.
        counted.sort_by_key(|(stack, _)| stack.at);
        for (stack, _) in &counted {
            world.processes.meet(stack.key.process, stack.at);
        }
        if self.view.per_thread {
            let processes = &mut world.processes;
            let own = |id, at| processes.info(id, at).map(|info| Arc::clone(&info.comm));
            self.threads.look(self.window, &counted, world.symbolizer.jvms(), own);
        }
        let (java, now): (Vec<_>, Vec<_>) =
            counted.into_iter().partition(|(stack, _)| jvms.is_jvm(stack.key.process.tgid));
        self.resolve(world, now, self.window);
        let over = self.parts.front().and_then(|part| part.end.as_ref()).map(|(last, _)| *last);
        let due = self.waiting.take_due(self.window, over, jvms);
        self.resolve_each(world, due);
        world.symbolizer.meet(java.iter().map(|(stack, _)| stack));
        let window = self.window;
        if let Some((totals, part)) = totals.zip(self.parts.back_mut()) {
            part.end = Some((window, totals));
            part.tally.java.throttled = throttled;
            self.parts.push_back(Part::new(self.view.first));
        }
        self.waiting.add(window, java);
        let oldest = self.waiting.oldest().unwrap_or(end);
        world.processes.retire(oldest.min(self.ends[0]));
        world.symbolizer.tidy(&world.processes);
        self.ends = [self.ends[1], end];
        log::debug!(
            "window {}: {new_ticks} samples, {stacks} stacks, {} events of processes; taken in within {:.1?}",
            self.window,
            events.len(),
            began.elapsed(),
        );
    }

    /// Resolves what still waits, whether its JVM is followed or not.
    pub(super) fn finish(&mut self, world: &mut World) {
        let waiting = self.waiting.take_all();
        self.resolve_each(world, waiting);
    }

    /// Resolves stacks of any windows.
    fn resolve_each(&mut self, world: &mut World, waiting: Vec<Waiting>) {
        let mut by_part: BTreeMap<usize, (u64, Vec<(Stack, Count)>)> = BTreeMap::new();
        for Waiting { window, stack, count } in waiting {
            let (_, counted) = by_part.entry(self.part_at(window)).or_insert_with(|| (window, Vec::new()));
            counted.push((stack, count));
        }
        for (window, counted) in by_part.into_values() {
            self.resolve(world, counted, window);
        }
    }

    /// Which part has a window.
    fn part_at(&self, window: u64) -> usize {
        let over = |part: &Part| part.end.as_ref().is_some_and(|(last, _)| *last < window);
        self.parts.iter().take_while(|part| over(part)).count()
    }

    /// The part of a window.
    fn part(&mut self, window: u64) -> &mut Part {
        let at = self.part_at(window);
        if at == self.parts.len() {
            self.parts.push_back(Part::new(self.view.first));
        }
        &mut self.parts[at]
    }

    /// Resolves stacks of the part that has `window`.
    fn resolve(&mut self, world: &mut World, mut counted: Vec<(Stack, Count)>, window: u64) {
        // Neighbours share much of their stacks: what one has needed is at hand for the next.
        counted.sort_unstable_by(|(a, _), (b, _)| {
            owner(a).cmp(&owner(b)).then_with(|| root_first(a).cmp(root_first(b)))
        });
        let (stacks, counts): (Vec<Stack>, Vec<Count>) = counted.into_iter().unzip();
        // Good as long as no process changes its name.
        let mut last = Last::default();
        // Frames are many words for each of a stack: not those of a whole window at once.
        for (stacks, counts) in stacks.chunks(CHUNK).zip(counts.chunks(CHUNK)) {
            let named = world.symbolizer.symbolize(stacks, &mut world.processes);
            for ((stack, count), named) in stacks.iter().zip(counts).zip(named) {
                last.replace(named);
                self.add(world, (stack, *count), &mut last, window);
            }
        }
    }

    /// Adds a stack, of which `last` has the frames.
    fn add(&mut self, world: &mut World, (stack, count): (&Stack, Count), last: &mut Last, window: u64) {
        let event = stack.key.event;
        let waits = event == Event::Cpu && self.idle.is_idle(stack, &last.frames, count.ticks);
        if waits {
            self.part(window).tally.of(event).idle += count.ticks;
            if !self.idle.shown {
                return;
            }
        }
        self.part(window).note(stack, count, &last.frames);
        let (labels, cut) = match &last.shown {
            Some(shown) if (shown.owner, shown.waits) == (owner(stack), waits) => (shown.labels, shown.cut),
            _ => self.show(world, (stack, waits), last, window),
        };
        self.cut_names += if cut { count.ticks } else { 0 };
        let profile = &mut self.part(window).profile;
        let new = last.frames.iter().skip(last.path.len() - last.roots);
        last.path.extend(new.map(|frame| profile.intern_frame(frame)));
        let node = profile.stack_of(&last.path);
        profile.add_at(node, labels, event, Weight { count: count.ticks, value: count.weight });
    }

    /// Has the process and the thread of a stack shown. `waits`: nothing ran.
    fn show(
        &mut self,
        world: &mut World,
        (stack, waits): (&Stack, bool),
        last: &mut Last,
        window: u64,
    ) -> (LabelsId, bool) {
        let id = stack.key.process;
        let process = match (id.is_idle(), waits) {
            (false, _) => world.process_name(stack),
            (true, true) => "[idle]".to_owned(),
            (true, false) => "[interrupts while idle]".to_owned(),
        };
        let named = self.view.per_thread && !id.is_idle();
        let of_the_jvm = self.threads.name(stack).filter(|_| named).cloned();
        let cut = named && of_the_jvm.is_none() && stack.comm.len() >= MAX_KERNEL;
        let thread = of_the_jvm.unwrap_or_else(|| {
            let thread = thread_name::text(&stack.comm);
            if self.view.raw_threads { thread } else { fold_numbers(&thread) }.into()
        });
        let mut root = vec![Frame::named(Kind::Process, process.as_str())];
        if named {
            let name = match stack.key.tid {
                0 => thread.to_string(),
                tid => format!("{thread} tid={tid}"),
            };
            root.push(Frame::named(Kind::Thread, name));
        }
        let labels = Labels {
            pid: id.tgid,
            process: process.into(),
            thread,
            tid: stack.key.tid,
            cgroup: stack.key.cgroup,
            container: if id.is_idle() { None } else { self.containers.of(stack.key.cgroup) },
        };
        let profile = &mut self.part(window).profile;
        let roots = root.into_iter().map(|frame| profile.intern_frame(&Arc::new(frame))).collect();
        let labels = profile.intern_labels(&labels);
        last.show(roots, Shown { owner: owner(stack), waits, labels, cut });
        (labels, cut)
    }
}
