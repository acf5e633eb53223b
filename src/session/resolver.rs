//! From stacks to the profile: each window's stacks get their frames while their processes are still there; those of
//! JVMs wait one window, since a JVM reports what it compiled a little late.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::idle;
use super::sampler::Batch;
use super::thread_name::fold_numbers;
use crate::capture::abi::Counters;
use crate::capture::{Count, End, Stack};
use crate::process::{MonoNs, ProcessEvent, ProcessId, Processes};
use crate::profile::frame::clean;
use crate::profile::stripped::is_nameless;
use crate::profile::{Frame, Kind, Labels, Profile, Why};
use crate::symbolize::{LogStats, Symbolizer};

/// Characters of a process's or thread's name: the kernel keeps 15 bytes.
const MAX_COMM: usize = 64;

/// Stacks that are resolved at a time.
const CHUNK: usize = 512;

/// How stacks are shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// Idleness too.
    pub(super) idle: bool,
    /// A frame for each thread.
    pub(super) per_thread: bool,
    /// Thread names with their numbers.
    pub(super) raw_threads: bool,
}

/// Which processes' stacks wait for what their JVM has to say.
pub(super) trait Delay {
    /// Whether the process is a JVM that is or will be followed.
    fn is_jvm(&self, tgid: u32) -> bool;
    /// Whether it is not yet known if it can be followed.
    fn is_open(&self, tgid: u32) -> bool;
}

/// What was counted besides the profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Sum of all windows.
    pub(super) counters: Counters,
    /// Ticks that have a stack in the profile or were idle.
    pub(super) kept: u64,
    /// Of them, ticks in which nothing ran; they are in the profile only if idleness is shown.
    pub(super) idle: u64,
    /// Ticks whose frames never arrived.
    pub(super) frameless: u64,
    /// How the user walks ended, by ticks.
    pub(super) ends: HashMap<End, u64>,
    /// By process: ticks with Java frames, and those of them that do not reach the root.
    pub(super) java: HashMap<ProcessId, JavaTicks>,
}

/// Ticks of a JVM's Java threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JavaTicks {
    /// All ticks of the process.
    pub(super) all: u64,
    /// Ticks with at least one Java frame.
    pub(super) java: u64,
    /// Of those, ticks whose outermost frame is not one with which a thread begins.
    pub(super) rootless: u64,
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

/// A stack that waits, and the window that counted it.
struct Waiting {
    window: u64,
    stack: Stack,
    count: Count,
}

/// Turns batches into a profile.
pub(super) struct Resolver {
    pub(super) processes: Processes,
    pub(super) symbolizer: Symbolizer,
    pub(super) profile: Profile,
    pub(super) tally: Tally,
    view: View,
    waiting: Vec<Waiting>,
    window: u64,
    /// When the last windows ended, the latest last.
    ends: [MonoNs; 2],
}

impl Resolver {
    pub(super) fn new(processes: Processes, symbolizer: Symbolizer, view: View) -> Resolver {
        let (profile, tally) = (Profile::new(), Tally::default());
        let (waiting, window, ends) = (Vec::new(), 0, [MonoNs::default(); 2]);
        Resolver { processes, symbolizer, profile, tally, view, waiting, window, ends }
    }

    /// Takes in what happened to processes.
    pub(super) fn apply(&mut self, events: &[ProcessEvent]) {
        for event in events {
            self.processes.apply(event);
        }
    }

    /// Reads what the JVMs' agents have logged until now.
    pub(super) fn read_logs(&mut self) -> Vec<(ProcessId, LogStats)> {
        self.symbolizer.read_logs()
    }

    /// Takes in a window whose events have been applied.
    pub(super) fn window(&mut self, batch: Batch, jvms: &dyn Delay) {
        let Batch { window, events, end } = batch;
        self.window += 1;
        let (began, stacks, new_ticks) = (Instant::now(), window.stacks.len(), window.counters.ticks);
        self.tally.counters.add(&window.counters);
        self.tally.kept += window.kept - window.frameless;
        self.tally.frameless += window.frameless;
        let (java, now): (Vec<_>, Vec<_>) =
            window.stacks.into_iter().partition(|(stack, _)| jvms.is_jvm(stack.key.process.tgid));
        self.resolve(now);
        self.resolve_waiting(|waiting, window| waiting < window, jvms);
        let window = self.window;
        self.waiting.extend(java.into_iter().map(|(stack, count)| Waiting { window, stack, count }));
        let oldest = self.waiting.iter().map(|w| w.stack.at).min().unwrap_or(end);
        self.processes.retire(oldest.min(self.ends[0]));
        self.ends = [self.ends[1], end];
        log::debug!(
            "window {}: {new_ticks} ticks, {stacks} stacks, {} events of processes; taken in within {:.1?}",
            self.window,
            events.len(),
            began.elapsed(),
        );
    }

    /// Resolves what still waits, whether its JVM is followed or not.
    pub(super) fn finish(&mut self) {
        struct Nothing;
        impl Delay for Nothing {
            fn is_jvm(&self, _: u32) -> bool {
                false
            }
            fn is_open(&self, _: u32) -> bool {
                false
            }
        }
        self.resolve_waiting(|_, _| true, &Nothing);
    }

    fn resolve_waiting(&mut self, due: impl Fn(u64, u64) -> bool, jvms: &dyn Delay) {
        let window = self.window;
        let (due, still): (Vec<_>, Vec<_>) = mem::take(&mut self.waiting)
            .into_iter()
            .partition(|w| due(w.window, window) && !jvms.is_open(w.stack.key.process.tgid));
        self.waiting = still;
        if !due.is_empty() {
            self.resolve(due.into_iter().map(|w| (w.stack, w.count)).collect());
        }
    }

    fn resolve(&mut self, counted: Vec<(Stack, Count)>) {
        let (stacks, counts): (Vec<Stack>, Vec<Count>) = counted.into_iter().unzip();
        // Frames are many words for each of a stack: not those of a whole window at once.
        for (stacks, counts) in stacks.chunks(CHUNK).zip(counts.chunks(CHUNK)) {
            let frames = self.symbolizer.symbolize(stacks, &mut self.processes);
            for ((stack, count), frames) in stacks.iter().zip(counts).zip(frames) {
                self.add(stack, *count, frames);
            }
        }
    }

    fn add(&mut self, stack: &Stack, count: Count, frames: Vec<Arc<Frame>>) {
        let id = stack.key.process;
        self.note(stack, count, &frames);
        let mut path = Vec::with_capacity(frames.len() + 2);
        let process = if !id.is_idle() {
            self.process_name(stack)
        } else if frames.last().is_none_or(|leaf| idle::is_wait(&leaf.name)) {
            self.tally.idle += count.ticks;
            if !self.view.idle {
                return;
            }
            "[idle]".to_owned()
        } else {
            "[interrupts while idle]".to_owned()
        };
        let mut thread = clean(&stack.comm, MAX_COMM);
        if !self.view.raw_threads {
            thread = fold_numbers(&thread);
        }
        path.push(Arc::new(Frame::named(Kind::Process, process.as_str())));
        if self.view.per_thread && !id.is_idle() {
            let name = match stack.key.tid {
                0 => thread.clone(),
                tid => format!("{thread} tid={tid}"),
            };
            path.push(Arc::new(Frame::named(Kind::Thread, name)));
        }
        path.extend(frames);
        let labels = Labels {
            pid: id.tgid,
            process: process.into(),
            thread: thread.into(),
            tid: stack.key.tid,
            cgroup: stack.key.cgroup,
        };
        self.profile.add(&labels, &path, count.ticks, count.weight_ns);
    }

    fn note(&mut self, stack: &Stack, count: Count, frames: &[Arc<Frame>]) {
        let end = end(stack, frames);
        *self.tally.ends.entry(end).or_default() += count.ticks;
        let java = |kind| matches!(kind, Kind::Java | Kind::JavaInlined | Kind::JavaInterpreted);
        let ticks = self.tally.java.entry(stack.key.process).or_default();
        ticks.all += count.ticks;
        if frames.iter().any(|frame| java(frame.kind)) {
            ticks.java += count.ticks;
            if end == End::Depth || !frames.first().is_some_and(|root| begins_thread(root)) {
                ticks.rootless += count.ticks;
            }
        }
    }

    /// The name of the group leader; of a process that was never seen, that of the thread.
    fn process_name(&mut self, stack: &Stack) -> String {
        let comm = self.processes.info(stack.key.process, stack.at).map(|info| Arc::clone(&info.comm));
        let name = clean(comm.as_deref().unwrap_or(&stack.comm), MAX_COMM);
        if name.is_empty() { format!("[pid {}]", stack.key.process.tgid) } else { name }
    }
}
