//! The broker's side of Java: the agents' logs that are followed, the JVMs whose memory is read, and the workers that do
//! it.
//!
//! The logs have a worker of their own. The one for files may die at any time and is replaced to free memory; a log of
//! which the consumed part was given back to the kernel cannot be read a second time, so its reader should live long.
//! Memory has another: its owner can make a read of it wait for ever, and what is read can be had again.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::child::{Child, Cost, SHORTEST};
use super::frames::{Frames, Shared, unknown};
use super::java_cache::{JavaCache, Seen};
use super::message::{Follow, JavaPc, LogStats, Mark, Names, Request, Response, Watch};
use crate::jvm::code;
use crate::jvm::vm::{Blobs, Layout};
use crate::process::ProcessId;
use crate::profile::Why;

/// Addresses in one request.
const BATCH: usize = 1024;
/// How long the worker may take. Quotas bound its work, and what it knows may not be had again: patience is cheap.
const DEADLINE: Duration = Duration::from_secs(30);
/// JVMs that are followed at once.
const MAX_FOLLOWED: usize = 1024;

/// How long the worker may take that reads memory, and how often one JVM may cost its life.
const MEMORY_DEADLINE: Duration = Duration::from_secs(5);
const MEMORY_LOSSES: u32 = 2;

/// The log of a JVM's agent, and what is needed to read it.
#[derive(Debug)]
pub struct JvmLog {
    /// Open for reading and (to consume) writing.
    pub file: File,
    /// What the JVM's `CLOCK_MONOTONIC` shows more than the host's, nanoseconds.
    pub clock_offset_ns: i64,
    /// What was read is given back to the kernel: only for a log that nobody else reads.
    pub consume: bool,
    /// Generated code that the log does not tell of.
    pub blobs: Blobs,
}

/// Where the names of a JVM come from.
#[derive(Debug)]
enum Source {
    Log {
        log: JvmLog,
        /// What lies before this was given back to the kernel.
        released: u64,
    },
    Memory {
        file: File,
        layout: Box<Layout>,
        coarse: bool,
        /// Workers that were lost over it.
        losses: u32,
    },
}

#[derive(Debug)]
struct Followed {
    number: u64,
    source: Source,
    /// The worker that has it.
    generation: u64,
    stats: LogStats,
}

impl Followed {
    /// Gives back to the kernel what has been read, and tells the agent. The worker cannot: it may write no file.
    fn release(&mut self) {
        if let Source::Log { log, released } = &mut self.source
            && log.consume
            && self.stats.read_to > *released
        {
            // What cannot be given back stays: it costs the JVM memory, no more.
            let _ = code::release(&log.file, self.stats.read_to);
            *released = self.stats.read_to;
        }
    }

    fn file(&self) -> &File {
        match &self.source {
            Source::Log { log: JvmLog { file, .. }, .. } | Source::Memory { file, .. } => file,
        }
    }

    /// The request to read what there is now, for a worker that has it (`given`) or gets it with the request.
    fn reading(&self, given: bool, raw: bool) -> Request {
        let jvm = self.number;
        match &self.source {
            Source::Log { log: JvmLog { clock_offset_ns, blobs, .. }, .. } => {
                let follow = || Follow { clock_offset_ns: *clock_offset_ns, raw, blobs: blobs.clone() };
                Request::ReadLog { jvm, follow: (!given).then(follow) }
            }
            Source::Memory { layout, coarse, .. } => {
                let watch = || Box::new(Watch { layout: (**layout).clone(), coarse: *coarse, raw });
                Request::ReadMemory { jvm, watch: (!given).then(watch) }
            }
        }
    }

    /// Counts a worker that was lost over it.
    fn note_loss(&mut self) {
        if let Source::Memory { losses, .. } = &mut self.source {
            *losses += 1;
        }
    }

    /// Whether it has cost too many workers to be given to another.
    fn is_given_up(&self) -> bool {
        matches!(self.source, Source::Memory { losses, .. } if losses >= MEMORY_LOSSES)
    }
}

/// The workers: one for logs, one for memory, each started when it is first needed.
#[derive(Debug, Default)]
struct Children {
    logs: Option<Child>,
    memory: Option<Child>,
}

impl Children {
    fn of(&mut self, source: &Source, binary: &Path) -> Option<&mut Child> {
        let (child, deadline, shortest) = match source {
            Source::Log { .. } => (&mut self.logs, DEADLINE, 1),
            Source::Memory { .. } => (&mut self.memory, MEMORY_DEADLINE, SHORTEST),
        };
        if child.is_none() {
            *child = Child::start(binary.to_owned(), deadline, shortest).ok();
        }
        child.as_mut()
    }

    fn both(&self) -> impl Iterator<Item = &Child> {
        self.logs.iter().chain(&self.memory)
    }
}

/// How much of the time in Java falls into code with coarse debug records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JavaLeaves {
    /// Distinct stacks (of each window) whose leaf is compiled Java.
    pub all: u64,
    /// Of these, in code compiled before the agent came: only calls and safepoints have debug records there.
    pub before_attach: u64,
}

/// The frames of one Java address.
#[derive(Clone, Debug)]
pub(crate) struct JavaFrames {
    pub(crate) frames: Frames,
    pub(crate) before_attach: bool,
    /// Good until the code there changes.
    pub(crate) lasting: bool,
}

/// An answer of the worker.
enum Answer {
    Frames(JavaFrames),
    /// The code changed between the first and the last time.
    Split,
}

/// The JVMs whose logs are followed.
#[derive(Debug)]
pub(crate) struct Jvms {
    binary: PathBuf,
    raw: bool,
    children: Children,
    followed: HashMap<ProcessId, Followed>,
    next: u64,
    shared: Shared,
    cache: JavaCache,
    /// Workers that were lost.
    pub(crate) lost: u64,
}

impl Jvms {
    pub(crate) fn new(binary: PathBuf, raw: bool, cached: usize) -> Jvms {
        Jvms {
            binary,
            raw,
            children: Children::default(),
            followed: HashMap::new(),
            next: 0,
            shared: Shared::default(),
            cache: JavaCache::new(cached),
            lost: 0,
        }
    }

    pub(crate) fn follows(&self, id: ProcessId) -> bool {
        self.followed.contains_key(&id)
    }

    /// Follows a log from its start.
    pub(crate) fn follow(&mut self, id: ProcessId, log: JvmLog) {
        self.begin(id, Source::Log { log, released: 0 });
    }

    /// Reads names out of a JVM's memory.
    pub(crate) fn watch(&mut self, id: ProcessId, memory: OwnedFd, layout: Layout, coarse: bool) {
        self.begin(id, Source::Memory { file: memory.into(), layout: Box::new(layout), coarse, losses: 0 });
    }

    fn begin(&mut self, id: ProcessId, source: Source) {
        if self.followed.len() >= MAX_FOLLOWED && !self.follows(id) {
            return;
        }
        self.forget(id);
        self.next += 1;
        let (number, stats) = (self.next, LogStats::default());
        self.followed.insert(id, Followed { number, source, generation: 0, stats });
    }

    /// Forgets a JVM that has ended and whose stacks are all named.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        if let Some(followed) = self.followed.get(&id) {
            let (number, given) = (followed.number, followed.generation > 0);
            self.cache.forget(id);
            if given {
                let _ = self.ask(id, &Request::Forget { jvm: number }, false);
            }
            self.followed.remove(&id);
        }
    }

    /// Lets the worker read what the logs have now.
    pub(crate) fn read_logs(&mut self) -> Vec<(ProcessId, LogStats)> {
        let ids: Vec<ProcessId> = self.followed.keys().copied().collect();
        for &id in &ids {
            // Once more if the worker was lost; what it knew is then read again from the start.
            if !self.read_log(id) {
                self.read_log(id);
            }
        }
        ids.iter().filter_map(|&id| Some((id, self.followed.get(&id)?.stats))).collect()
    }

    /// The frames of an address if they are known from before and the code has not changed since.
    pub(crate) fn cached(&mut self, id: ProcessId, seen: Seen, at: u64) -> Option<JavaFrames> {
        self.cache.get(id, seen, at)
    }

    /// The frames of addresses, each at the times it was seen; in the order of the times.
    pub(crate) fn frames(&mut self, id: ProcessId, wanted: &[(Seen, Vec<u64>)]) -> Vec<Vec<JavaFrames>> {
        let lookups: Vec<JavaPc> = wanted.iter().map(|(seen, times)| lookup(*seen, times)).collect();
        let answers = self.answers(id, &lookups);
        let mut frames = Vec::with_capacity(wanted.len());
        for ((seen, times), answer) in wanted.iter().zip(answers) {
            frames.push(match answer {
                Answer::Frames(one) => {
                    if one.lasting {
                        let from = times.iter().copied().min().unwrap_or(u64::MAX);
                        self.cache.insert(id, *seen, from, one.clone());
                    }
                    vec![one; times.len()]
                }
                Answer::Split => {
                    let each: Vec<JavaPc> = times.iter().map(|&at| lookup(*seen, &[at])).collect();
                    let moved = || lost(seen.pc, Why::CodeMoved);
                    let answers = self.answers(id, &each).into_iter();
                    answers.map(|a| if let Answer::Frames(f) = a { f } else { moved() }).collect()
                }
            });
        }
        frames
    }

    pub(crate) fn cost(&self) -> Cost {
        self.children.both().map(Child::cost).fold(Cost::default(), |sum, cost| Cost {
            cpu: sum.cpu + cost.cpu,
            resident: sum.resident + cost.resident,
        })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.children.both().find_map(Child::pid)
    }

    /// An answer to each.
    fn answers(&mut self, id: ProcessId, lookups: &[JavaPc]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(lookups.len());
        let mut losses = 0;
        while answers.len() < lookups.len() {
            let rest = &lookups[answers.len()..];
            match self.attempt(id, &rest[..rest.len().min(BATCH)]) {
                Some(more) if !more.is_empty() => answers.extend(more),
                // The worker was lost: once more with the next one.
                None if losses == 0 => losses += 1,
                _ => break,
            }
        }
        let missing = lookups[answers.len()..].iter();
        let missing: Vec<Answer> = missing.map(|l| Answer::Frames(lost(l.pc, Why::WorkerFailed))).collect();
        answers.extend(missing);
        answers
    }

    /// `None`: the worker was lost.
    fn attempt(&mut self, id: ProcessId, lookups: &[JavaPc]) -> Option<Vec<Answer>> {
        if !self.is_given(id) && !self.read_log(id) {
            return None;
        }
        let number = self.followed.get(&id)?.number;
        match self.ask(id, &Request::Java { jvm: number, lookups: lookups.to_vec() }, false)? {
            Response::Names(names) => Some(self.unfold(&names, lookups)),
            _ => Some(Vec::new()),
        }
    }

    fn unfold(&mut self, names: &Names, lookups: &[JavaPc]) -> Vec<Answer> {
        let addresses: Vec<u64> = lookups.iter().map(|l| l.pc).collect();
        let frames = self.shared.frames(names, &addresses, None).into_iter().zip(addresses);
        let mut answers: Vec<Answer> = frames
            .map(|(frames, pc)| frames.unwrap_or_else(|why| unknown(why, None, pc)))
            .map(|frames| Answer::Frames(JavaFrames { frames, before_attach: false, lasting: true }))
            .collect();
        for &(place, mark) in &names.marks {
            match (answers.get_mut(place as usize), mark) {
                (Some(Answer::Frames(frames)), Mark::BeforeAttach) => frames.before_attach = true,
                (Some(Answer::Frames(frames)), Mark::Passing) => frames.lasting = false,
                (Some(answer), Mark::Split) => *answer = Answer::Split,
                _ => {}
            }
        }
        answers
    }

    /// Whether the worker of today has what names this JVM.
    fn is_given(&mut self, id: ProcessId) -> bool {
        let Some(followed) = self.followed.get(&id) else { return false };
        let child = self.children.of(&followed.source, &self.binary);
        child.is_some_and(|child| child.generation() == followed.generation)
    }

    /// Gives the log or the memory to the worker if it does not have it, and lets it read; false if the worker was lost.
    fn read_log(&mut self, id: ProcessId) -> bool {
        let given = self.is_given(id);
        let Some(followed) = self.followed.get(&id) else { return true };
        let request = followed.reading(given, self.raw);
        match self.ask(id, &request, !given) {
            Some(Response::Log(stats, changed)) => {
                self.cache.changed(id, &changed);
                if let Some(followed) = self.followed.get_mut(&id) {
                    followed.stats = stats;
                    let child = self.children.of(&followed.source, &self.binary);
                    followed.generation = child.map_or(0, |child| child.generation());
                    followed.release();
                }
                true
            }
            other => other.is_some(),
        }
    }

    /// Asks the worker of a JVM, handing it what names it if it is to have it; `None` if it was lost.
    fn ask(&mut self, id: ProcessId, request: &Request, give: bool) -> Option<Response> {
        let followed = self.followed.get_mut(&id).filter(|followed| !followed.is_given_up())?;
        let child = self.children.of(&followed.source, &self.binary)?;
        let answer = match give {
            true => child.ask(request, &[followed.file().as_fd()]),
            false => child.ask(request, &[]),
        };
        if answer.is_err() {
            followed.note_loss();
            self.lost += 1;
        }
        answer.ok()
    }
}

fn lookup(seen: Seen, times: &[u64]) -> JavaPc {
    let from = times.iter().copied().min().unwrap_or_default();
    let to = times.iter().copied().max().unwrap_or_default();
    JavaPc { pc: seen.pc, leaf: seen.leaf, from, to }
}

fn lost(pc: u64, why: Why) -> JavaFrames {
    JavaFrames { frames: unknown(why, None, pc), before_attach: false, lasting: false }
}
