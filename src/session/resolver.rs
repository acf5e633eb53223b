//! From stacks to the profile: each window's stacks get their frames while their processes are still there; those of
//! JVMs wait a window, since a JVM reports what it compiled a little late, and then until they are many.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::idle::Idle;
use super::sampler::{Batch, Totals};
use super::tally::{EventTally, Tally};
use super::waiting::{Queue, Waiting};
use crate::capture::Counted;
use crate::limits::{Limit, LimitsMet};
use crate::process::opener::OpenersCost;
use crate::process::{ProcessEvent, Processes};
use crate::profile::frames::FrameId;
use crate::profile::kind::Origin;
use crate::profile::labels::LabelsId;
use crate::profile::samples::Weight;
use crate::profile::stripped::is_nameless;
use crate::profile::{Frame, Kind, Labels, Module, Profile, Why};
use crate::runtime::Delay;
use crate::runtime::hotspot::java_threads::JavaThreads;
use crate::runtime::hotspot::tally::Throttled;
use crate::runtime::hotspot::thread_name::{self, MAX_KERNEL, fold_numbers};
use crate::sample::{Count, End, Event, MonoNs, ProcessId, Stack, StackKey, UserWord};
use crate::symbolize::{CHUNK, LogStats, Named, Stats, Symbolizer};
use crate::targets::containers::Containers;

/// Files, by reason, in which walks ended that did not reach the root.
const MAX_FILES: usize = 4096;

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

/// Whether a thread begins with this function: glibc's, musl's, HotSpot's, the launcher's. The frame pointer below them
/// is whatever the creator of the thread left there, so how the walk ended does not say it.
fn begins_thread(root: &Frame) -> bool {
    const BEGINS: &[&str] =
        &["start_thread", "thread_native_entry", "JavaMain", "ThreadJavaMain", "_start", "start"];
    // A stripped libc has no name for its `start_thread`, which is local; then its file is the name.
    const LIBCS: &[&str] = &["libc.so", "libc-", "libpthread", "ld-musl"];
    if is_nameless(root) {
        return LIBCS.iter().any(|libc| root.name.starts_with(libc));
    }
    root.unknown.is_none()
        && (["clone", "__clone"].iter().any(|clone| root.name.starts_with(clone))
            || BEGINS.contains(&&*root.name))
}

/// How the walk ended, as far as its frames show: one that left the code has ended there, whatever it read beyond.
fn end(stack: &Stack, frames: &[Arc<Frame>]) -> End {
    let astray = frames.first().is_some_and(|root| root.unknown == Some(Why::NotMapped));
    if astray && stack.user.len() > 1 { End::BadPc } else { stack.end }
}

/// The file of the frame whose caller was not found; none if it is in none, or nothing is missing.
fn ended_in(end: End, frames: &[Arc<Frame>]) -> Option<Arc<Module>> {
    if matches!(end, End::Root | End::Depth | End::NoUser) {
        return None;
    }
    let last = frames.iter().find(|frame| frame.unknown != Some(Why::NotMapped))?;
    last.module.clone().filter(|_| last.kind != Kind::Kernel)
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

/// What the ticks of some windows in a row have become.
pub(super) struct Part {
    pub(super) profile: Profile,
    pub(super) tally: Tally,
    /// The event that JVMs are told of by.
    first: Event,
    /// Most stacks of a window, which the count maps must hold.
    pub(super) most_stacks: usize,
    /// Its last window, and what was known at its end; none while it is not over.
    end: Option<(u64, Totals)>,
}

impl Part {
    fn new(first: Event) -> Part {
        Part { profile: Profile::new(), tally: Tally::default(), first, most_stacks: 0, end: None }
    }

    /// The number of its last window; 0 while it is not over.
    pub(super) fn last_window(&self) -> u64 {
        self.end.as_ref().map_or(0, |(last, _)| *last)
    }
}

/// Turns batches into profiles, one for each part.
pub(super) struct Resolver {
    pub(super) processes: Processes,
    pub(super) symbolizer: Symbolizer,
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

impl Resolver {
    pub(super) fn new(
        processes: Processes,
        symbolizer: Symbolizer,
        containers: Containers,
        idle: Idle,
        view: View,
    ) -> Resolver {
        let (waiting, window, ends) = (Queue::default(), 0, [MonoNs::default(); 2]);
        let parts = VecDeque::from([Part::new(view.first)]);
        let threads = JavaThreads::new(view.raw_threads);
        Resolver {
            processes,
            symbolizer,
            parts,
            containers,
            idle,
            view,
            threads,
            cut_names: 0,
            waiting,
            window,
            ends,
        }
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

    /// What symbolizing did, and what it and opening files cost so far.
    pub(super) fn costs(&self) -> (Stats, OpenersCost) {
        (self.symbolizer.stats(), self.processes.openers_cost())
    }

    /// What was left out of processes and files.
    pub(super) fn limits(&self) -> LimitsMet {
        let mut met = self.processes.limits();
        met.merge(self.symbolizer.limits());
        met.note(Limit::ThreadNames, "", self.cut_names);
        met
    }

    /// The number of the window that is taken in next.
    pub(super) fn next_window(&self) -> u64 {
        self.window + 1
    }

    /// Takes in what happened to processes.
    pub(super) fn apply(&mut self, events: &[ProcessEvent]) {
        self.containers.notice(events);
        for event in events {
            self.processes.apply(event);
        }
    }

    /// Whose stacks wait for their names.
    pub(super) fn waiting(&self) -> HashSet<ProcessId> {
        self.waiting.processes()
    }

    /// Reads what JVMs say of their code. Those of these stacks, and of those that wait, have run.
    pub(super) fn read_logs(&mut self, stacks: &[(Stack, Count)]) -> Vec<(ProcessId, LogStats)> {
        let mut ran = self.waiting();
        ran.extend(stacks.iter().map(|(stack, _)| stack.key.process));
        self.symbolizer.read_logs(&ran)
    }

    /// Takes in a window whose events have been applied; `throttled`: if it ends a part, how JVMs were in that.
    pub(super) fn window(&mut self, batch: Batch, throttled: Throttled, jvms: &dyn Delay) {
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
        self.symbolizer.follow_kernel();
        let mut counted = window.stacks;
        // In the order of time: which program has a number is told by the first stack that has it, and those of an exec,
        // which come last, may be of the next one's time already.
        counted.sort_by_key(|(stack, _)| stack.at);
        for (stack, _) in &counted {
            self.processes.meet(stack.key.process, stack.at);
        }
        if self.view.per_thread {
            let processes = &mut self.processes;
            let own = |id, at| processes.info(id, at).map(|info| Arc::clone(&info.comm));
            self.threads.look(self.window, &counted, self.symbolizer.jvms(), own);
        }
        let (java, now): (Vec<_>, Vec<_>) =
            counted.into_iter().partition(|(stack, _)| jvms.is_jvm(stack.key.process.tgid));
        self.resolve(now, self.window);
        let over = self.parts.front().and_then(|part| part.end.as_ref()).map(|(last, _)| *last);
        let due = self.waiting.take_due(self.window, over, jvms);
        self.resolve_each(due);
        self.symbolizer.meet(java.iter().map(|(stack, _)| stack));
        let window = self.window;
        if let Some((totals, part)) = totals.zip(self.parts.back_mut()) {
            part.end = Some((window, totals));
            part.tally.java.throttled = throttled;
            self.parts.push_back(Part::new(self.view.first));
        }
        self.waiting.add(window, java);
        let oldest = self.waiting.oldest().unwrap_or(end);
        self.processes.retire(oldest.min(self.ends[0]));
        self.symbolizer.tidy(&self.processes);
        self.ends = [self.ends[1], end];
        log::debug!(
            "window {}: {new_ticks} samples, {stacks} stacks, {} events of processes; taken in within {:.1?}",
            self.window,
            events.len(),
            began.elapsed(),
        );
    }

    /// Resolves what still waits, whether its JVM is followed or not.
    pub(super) fn finish(&mut self) {
        let waiting = self.waiting.take_all();
        self.resolve_each(waiting);
    }

    /// Resolves stacks of any windows.
    fn resolve_each(&mut self, waiting: Vec<Waiting>) {
        let mut by_part: BTreeMap<usize, (u64, Vec<(Stack, Count)>)> = BTreeMap::new();
        for Waiting { window, stack, count } in waiting {
            let (_, counted) = by_part.entry(self.part_at(window)).or_insert_with(|| (window, Vec::new()));
            counted.push((stack, count));
        }
        for (window, counted) in by_part.into_values() {
            self.resolve(counted, window);
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
    fn resolve(&mut self, mut counted: Vec<(Stack, Count)>, window: u64) {
        // Neighbours share much of their stacks: what one has needed is at hand for the next.
        counted.sort_unstable_by(|(a, _), (b, _)| {
            owner(a).cmp(&owner(b)).then_with(|| root_first(a).cmp(root_first(b)))
        });
        let (stacks, counts): (Vec<Stack>, Vec<Count>) = counted.into_iter().unzip();
        // Good as long as no process changes its name.
        let mut last = Last::default();
        // Frames are many words for each of a stack: not those of a whole window at once.
        for (stacks, counts) in stacks.chunks(CHUNK).zip(counts.chunks(CHUNK)) {
            let named = self.symbolizer.symbolize(stacks, &mut self.processes);
            for ((stack, count), named) in stacks.iter().zip(counts).zip(named) {
                last.replace(named);
                self.add(stack, *count, &mut last, window);
            }
        }
    }

    /// Adds a stack, of which `last` has the frames.
    fn add(&mut self, stack: &Stack, count: Count, last: &mut Last, window: u64) {
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
            _ => self.show(stack, waits, last, window),
        };
        self.cut_names += if cut { count.ticks } else { 0 };
        let profile = &mut self.part(window).profile;
        let new = last.frames.iter().skip(last.path.len() - last.roots);
        last.path.extend(new.map(|frame| profile.intern_frame(frame)));
        let node = profile.stack_of(&last.path);
        profile.add_at(node, labels, event, Weight { count: count.ticks, value: count.weight });
    }

    /// Has the process and the thread of a stack shown. `waits`: nothing ran.
    fn show(&mut self, stack: &Stack, waits: bool, last: &mut Last, window: u64) -> (LabelsId, bool) {
        let id = stack.key.process;
        let process = match (id.is_idle(), waits) {
            (false, _) => self.process_name(stack),
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

    /// The name of the group leader; of a process that was never seen, that of the thread.
    fn process_name(&mut self, stack: &Stack) -> String {
        let comm = self.processes.info(stack.key.process, stack.at).map(|info| Arc::clone(&info.comm));
        let name = thread_name::text(comm.as_deref().unwrap_or(&stack.comm));
        if name.is_empty() { format!("[pid {}]", stack.key.process.tgid) } else { name }
    }
}

impl Part {
    fn note(&mut self, stack: &Stack, count: Count, frames: &[Arc<Frame>]) {
        let end = end(stack, frames);
        let tally = self.tally.of(stack.key.event);
        *tally.ends.entry(end).or_default() += count.ticks;
        if let Some(file) = ended_in(end, frames) {
            let (rows, key) = (&mut tally.ended_in, (file, end));
            if rows.len() < MAX_FILES || rows.contains_key(&key) {
                *rows.entry(key).or_default() += count.ticks;
            }
        }
        if stack.key.event != self.first {
            return;
        }
        let ticks = self.tally.java.ticks.entry(stack.key.process).or_default();
        ticks.all += count.ticks;
        if frames.iter().any(|frame| frame.kind.origin() == Origin::Java) {
            ticks.java += count.ticks;
            if end == End::Depth || !frames.first().is_some_and(|root| begins_thread(root)) {
                ticks.rootless += count.ticks;
            }
        }
    }
}
