//! The broker's part of Java names: the agents' logs that are followed, the JVMs whose memory is read, and their
//! workers.
//!
//! A log names compiled code if there is one, else the memory does, if that is requested. The memory always names
//! interpreted methods. Memory is read only for lookups.
//!
//! The logs have a worker of their own. The worker for files may die at any time, and is replaced to free memory. A log
//! cannot be read again after its consumed part was given back to the kernel, so its reader should live long. Memory
//! has another worker: its owner can block a read for ever, and its data can be read again.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;

use super::address_cache::{JavaFrames, LookupAddress, TimedResult};
use super::changes::CodeChanges;
use super::child::{MAX_DIVISOR, WorkerCost, WorkerLoss, WorkerProcess};
use super::followed::{Followed, FollowedKey, FollowedSource, JvmData, JvmLog, JvmMemory};
use super::frames::{FrameChain, FrameInterner, unknown};
use super::message::{
    Changed, InterpretedFrameRequest, JavaLookup, ProcessLogStats, WorkerObject, WorkerRequest,
    WorkerResponse,
};
use super::method_cache::{InterpretedFrame, MethodCache};
use super::name_answers::{AnswerMark, NameAnswers};
use crate::process::timed_calls::Tenant;
use crate::profile::UnknownReason;
use crate::sample::{MonoNs, ProcessId};

/// Addresses in one request.
const BATCH: usize = 1024;
/// Logs and memories that are followed at once; a JVM has one of each.
const MAX_FOLLOWED: usize = 2048;
/// Cached interpreter frames, as a part of the cached frames of other addresses.
const INTERPRETED_CACHE_DIVISOR: usize = 4;

/// Timeout of the worker for logs. Quotas bound its work, and its data may not come again, so waiting is cheap.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Memory that the worker may hold for all logs, bytes, by its own count. The worker dies at 1 GiB (`sandbox`), and one
/// more reading can add what one JVM may have.
const MAX_LOG_BYTES: u64 = 576 << 20;
/// Timeout of the worker for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// The workers: one for logs, one for memory, each started when it is first needed.
#[derive(Debug, Default)]
struct JvmWorkers {
    logs: Option<WorkerProcess>,
    memory: Option<WorkerProcess>,
}

impl JvmWorkers {
    fn of(&mut self, source: &FollowedSource, binary: &Path) -> Option<&mut WorkerProcess> {
        let (child, timeout, max_divisor) = match source {
            FollowedSource::Log { .. } => (&mut self.logs, TIMEOUT, 1),
            FollowedSource::Memory(_) => (&mut self.memory, MEMORY_TIMEOUT, MAX_DIVISOR),
        };
        if child.is_none() {
            *child = WorkerProcess::start(binary.to_owned(), timeout, max_divisor).ok();
        }
        child.as_mut()
    }

    fn both(&self) -> impl Iterator<Item = &WorkerProcess> {
        self.logs.iter().chain(&self.memory)
    }
}

/// How much of the time in Java is spent in code with coarse debug records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JavaLeafCounts {
    /// Distinct stacks (of each window) whose leaf is compiled Java.
    pub all: u64,
    /// The part of `all` in code compiled before the agent came: only calls and safepoints have debug records there.
    pub before_attach: u64,
}

enum NameResult {
    Frames(JavaFrames),
    /// The code changed between the first and the last time of the lookup.
    Split,
}

#[derive(Debug)]
pub(crate) struct JvmNames {
    binary: PathBuf,
    raw: bool,
    children: JvmWorkers,
    followed: HashMap<FollowedKey, Followed, RandomState>,
    next: u64,
    shared: FrameInterner,
    methods: MethodCache,
    /// Workers that were lost.
    pub(crate) lost: u64,
}

impl JvmNames {
    pub(crate) fn new(binary: PathBuf, raw: bool, cached: usize) -> JvmNames {
        JvmNames {
            binary,
            raw,
            children: JvmWorkers::default(),
            followed: HashMap::default(),
            next: 0,
            shared: FrameInterner::default(),
            methods: MethodCache::new(cached / INTERPRETED_CACHE_DIVISOR),
            lost: 0,
        }
    }

    /// Whether a log or memory names compiled code of this process.
    pub(crate) fn follows(&self, id: ProcessId) -> bool {
        self.code_of(id).is_some()
    }

    /// Whether methods that its interpreter runs can be named.
    pub(crate) fn reads_memory(&self, id: ProcessId) -> bool {
        self.followed.contains_key(&FollowedKey::memory(id))
    }

    /// The source that names the compiled code of a JVM.
    fn code_of(&self, id: ProcessId) -> Option<(FollowedKey, &Followed)> {
        let keys = [FollowedKey::log(id), FollowedKey::memory(id)];
        keys.into_iter().find_map(|key| Some((key, self.followed.get(&key).filter(|f| f.names_code())?)))
    }

    /// Follows a log from its start. Returns false if there is no room for another one.
    pub(crate) fn follow(&mut self, id: ProcessId, log: JvmLog) -> bool {
        self.add(FollowedKey::log(id), FollowedSource::Log { log, released: 0 })
    }

    /// Reads names from a JVM's memory. Returns false if there is no room for another one.
    pub(crate) fn watch(&mut self, id: ProcessId, memory: JvmMemory) -> bool {
        self.add(FollowedKey::memory(id), FollowedSource::Memory(Box::new(memory)))
    }

    fn add(&mut self, key: FollowedKey, source: FollowedSource) -> bool {
        if self.followed.len() >= MAX_FOLLOWED && !self.followed.contains_key(&key) {
            return false;
        }
        self.remove(key);
        self.next += 1;
        // The tenant is read while the process exists: an ended process has none.
        self.followed.insert(key, Followed::new(self.next, source, Tenant::of(key.process.tgid)));
        true
    }

    /// Forgets a JVM that has ended and whose stacks are all symbolized.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        self.remove(FollowedKey::log(id));
        self.remove(FollowedKey::memory(id));
    }

    fn remove(&mut self, key: FollowedKey) {
        self.ask_worker_to_forget(key);
        self.followed.remove(&key);
    }

    /// Makes the worker forget a JVM.
    fn ask_worker_to_forget(&mut self, key: FollowedKey) {
        if let Some(number) = self.followed.get(&key).filter(|f| f.generation > 0).map(|f| f.number) {
            // A worker that is lost over this request does not have it either.
            let _ = self.ask(key, &WorkerRequest::Forget(WorkerObject::Jvm(number)), false);
        }
    }

    /// If all logs together take too much of the worker's memory, drops the largest one. Otherwise the worker would
    /// die, and its data of the other logs cannot be read again.
    fn bound_logs(&mut self) {
        while let Some(key) = largest_excess_log(&self.followed, MAX_LOG_BYTES) {
            log::warn!("symbols: the log of JVM {} takes too much memory and is given up", key.process.tgid);
            self.ask_worker_to_forget(key);
            if let Some(followed) = self.followed.get_mut(&key) {
                followed.drop_for_good();
            }
        }
    }

    /// Makes the workers read the new records of logs, and check the memory of JVMs that ran.
    pub(crate) fn refresh_sources(&mut self, ran: &HashSet<ProcessId>) -> Vec<ProcessLogStats> {
        let now = MonoNs::now();
        let due = |(key, followed): (&FollowedKey, &Followed)| {
            followed.is_due(ran.contains(&key.process), now).then_some(*key)
        };
        let keys: Vec<FollowedKey> = self.followed.iter().filter_map(due).collect();
        for key in keys {
            // Try once more if the worker was lost. The next one reads everything again from the start.
            if !self.refresh(key) {
                self.refresh(key);
            }
            self.bound_logs();
        }
        let of_code =
            self.followed.keys().filter_map(|&key| self.code_of(key.process).filter(|(of, _)| *of == key));
        of_code
            .map(|(key, followed)| ProcessLogStats { process: key.process, stats: followed.stats })
            .collect()
    }

    /// The changes of a JVM's code.
    pub(crate) fn changes(&self, id: ProcessId) -> Option<&CodeChanges> {
        self.code_of(id).map(|(_, followed)| &followed.changes)
    }

    /// The frames of addresses, one for each time at which the address was seen, in the order of the times.
    pub(crate) fn frames(
        &mut self,
        id: ProcessId,
        wanted: &[(LookupAddress, Vec<u64>)],
    ) -> Vec<Vec<JavaFrames>> {
        let lookups: Vec<JavaLookup> = wanted.iter().map(|(seen, times)| lookup(*seen, times)).collect();
        let answers = self.code(id, &lookups);
        let mut frames = Vec::with_capacity(wanted.len());
        for ((seen, times), answer) in wanted.iter().zip(answers) {
            frames.push(match answer {
                NameResult::Frames(one) => vec![one; times.len()],
                NameResult::Split => {
                    let each: Vec<JavaLookup> = times.iter().map(|&at| lookup(*seen, &[at])).collect();
                    let moved = || lost(seen.pc, UnknownReason::CodeMoved);
                    let answers = self.code(id, &each).into_iter();
                    let frames = answers.map(|a| if let NameResult::Frames(f) = a { f } else { moved() });
                    // The code came or went in between, so the answer is not valid for other times.
                    frames.map(|frames| JavaFrames { lasting: false, ..frames }).collect()
                }
            });
        }
        frames
    }

    /// The cached frames of an interpreted method at `time`.
    pub(crate) fn known_method(
        &mut self,
        id: ProcessId,
        at: InterpretedFrame,
        time: MonoNs,
    ) -> Option<TimedResult<FrameChain>> {
        self.methods.get(id, at, time)
    }

    /// The frames of interpreted methods, each with the first time at which it was seen. Must be called soon after the
    /// last of the times. The answers are valid for all times until now.
    pub(crate) fn methods(&mut self, id: ProcessId, wanted: &[(InterpretedFrame, u64)]) -> Vec<FrameChain> {
        let lookups: Vec<InterpretedFrameRequest> = wanted
            .iter()
            .map(|&(InterpretedFrame { method, bcp }, from)| InterpretedFrameRequest { method, bcp, from })
            .collect();
        let until = MonoNs::now().0;
        let request =
            |jvm, asked: &[InterpretedFrameRequest]| WorkerRequest::Methods { jvm, lookups: asked.to_vec() };
        let mut answers = Vec::with_capacity(wanted.len());
        self.ask_all(FollowedKey::memory(id), &lookups, request, |jvms, names, asked| {
            let methods: Vec<u64> = asked.iter().map(|lookup| lookup.method).collect();
            let frames = jvms.shared.frames(names, &methods, None).into_iter().zip(methods);
            answers.extend(
                frames.map(|(frames, method)| frames.unwrap_or_else(|why| unknown(why, None, method))),
            );
        });
        for (&(at, from), frames) in wanted.iter().zip(&answers) {
            self.methods.insert(id, at, from, until, Arc::clone(frames));
        }
        let missing = wanted.iter().skip(answers.len());
        answers.extend(missing.map(|(at, _)| unknown(UnknownReason::WorkerFailed, None, at.method)));
        answers
    }

    /// Sends `lookups` to the worker in batches. `read` gets the results from a response. Returns one result for each
    /// lookup: `None` if the worker was lost, or sent no result.
    pub(super) fn ask_in_batches<T, R: Clone>(
        &mut self,
        key: FollowedKey,
        lookups: &[T],
        request: impl Fn(u64, &[T]) -> WorkerRequest,
        read: impl Fn(WorkerResponse) -> Option<Vec<Option<R>>>,
    ) -> Vec<Option<R>> {
        let mut all = Vec::with_capacity(lookups.len());
        for lookups in lookups.chunks(BATCH) {
            if !self.is_given(key) && !self.refresh(key) {
                break;
            }
            let Some(jvm) = self.followed.get(&key).map(|followed| followed.number) else { break };
            match self.ask(key, &request(jvm, lookups), false).and_then(&read) {
                Some(some) if some.len() == lookups.len() => all.extend(some),
                _ => break,
            }
        }
        all.resize(lookups.len(), None);
        all
    }

    /// Evicts names that are no longer used.
    pub(crate) fn evict_unused(&mut self) {
        self.shared.evict_unused();
    }

    pub(crate) fn cost(&self) -> WorkerCost {
        self.children.both().map(WorkerProcess::cost).fold(WorkerCost::default(), WorkerCost::plus)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.children.both().find_map(WorkerProcess::pid)
    }

    /// The code at addresses, at the times of the lookups.
    fn code(&mut self, id: ProcessId, lookups: &[JavaLookup]) -> Vec<NameResult> {
        let mut answers = Vec::with_capacity(lookups.len());
        if let Some((key, _)) = self.code_of(id) {
            let request =
                |jvm, lookups: &[JavaLookup]| WorkerRequest::Java { jvm, lookups: lookups.to_vec() };
            let logged = key.data == JvmData::Log;
            self.ask_all(key, lookups, request, |jvms, names, asked| {
                answers.extend(jvms.unfold(names, asked, logged));
            });
        }
        let missing = lookups.iter().skip(answers.len());
        answers.extend(missing.map(|l| NameResult::Frames(lost(l.pc, UnknownReason::WorkerFailed))));
        answers
    }

    /// Sends `lookups` in requests, as long as there are answers. Passes each answer to `take`, with the lookups that
    /// it covers.
    fn ask_all<T>(
        &mut self,
        key: FollowedKey,
        lookups: &[T],
        request: impl Fn(u64, &[T]) -> WorkerRequest,
        mut take: impl FnMut(&mut JvmNames, &NameAnswers, &[T]),
    ) {
        let (mut rest, mut losses) = (lookups, 0);
        while !rest.is_empty() {
            match self.attempt(key, |jvm| request(jvm, &rest[..rest.len().min(BATCH)])) {
                Some(names) if !names.answers.is_empty() => {
                    let (now, later) = rest.split_at(names.answers.len().min(rest.len()));
                    take(self, &names, now);
                    rest = later;
                }
                // The worker was lost: try once more with the next one.
                None if losses == 0 => losses += 1,
                _ => break,
            }
        }
    }

    /// `None`: the worker was lost.
    fn attempt(
        &mut self,
        key: FollowedKey,
        request: impl FnOnce(u64) -> WorkerRequest,
    ) -> Option<NameAnswers> {
        if !self.is_given(key) && !self.refresh(key) {
            return None;
        }
        let number = self.followed.get(&key)?.number;
        match self.ask(key, &request(number), false)? {
            WorkerResponse::Names(names) => Some(names),
            _ => Some(NameAnswers::default()),
        }
    }

    fn unfold(&mut self, names: &NameAnswers, lookups: &[JavaLookup], logged: bool) -> Vec<NameResult> {
        let addresses: Vec<u64> = lookups.iter().map(|l| l.pc).collect();
        let frames = self.shared.frames(names, &addresses, None).into_iter().zip(addresses);
        let mut answers: Vec<NameResult> = frames
            .map(|(frames, pc)| frames.unwrap_or_else(|why| unknown(why, None, pc)))
            .map(|frames| {
                NameResult::Frames(JavaFrames { chain: frames, before_attach: false, lasting: true, logged })
            })
            .collect();
        for &(place, mark) in &names.marks {
            match (answers.get_mut(place as usize), mark) {
                (Some(NameResult::Frames(frames)), AnswerMark::BeforeAttach) => frames.before_attach = true,
                (Some(NameResult::Frames(frames)), AnswerMark::Passing) => frames.lasting = false,
                (Some(answer), AnswerMark::Split) => *answer = NameResult::Split,
                _ => {}
            }
        }
        answers
    }

    /// Whether the current worker has this source.
    fn is_given(&mut self, key: FollowedKey) -> bool {
        let Some(followed) = self.followed.get(&key) else { return false };
        let child = self.children.of(&followed.source, &self.binary);
        child.is_some_and(|child| child.generation() == followed.generation)
    }

    /// Gives the source to the worker if needed, and makes the worker read it. Returns false if the worker was lost.
    fn refresh(&mut self, key: FollowedKey) -> bool {
        let given = self.is_given(key);
        let Some(followed) = self.followed.get(&key) else { return true };
        let request = followed.reading(given, self.raw);
        match self.ask(key, &request, !given) {
            Some(WorkerResponse::Log(stats, changed)) => {
                if let Some(followed) = self.followed.get_mut(&key) {
                    // A new worker cannot know what has changed since the last one looked.
                    followed.changes.note(if given { &changed } else { &Changed::Everywhere });
                    followed.stats = stats;
                    followed.read = MonoNs::now();
                    let child = self.children.of(&followed.source, &self.binary);
                    followed.generation = child.map_or(0, |child| child.generation());
                    followed.release();
                }
                true
            }
            other => other.is_some(),
        }
    }

    /// Sends a request to a JVM's worker, with the source's descriptor if `give`. `None`: it was lost, or not asked.
    fn ask(&mut self, key: FollowedKey, request: &WorkerRequest, give: bool) -> Option<WorkerResponse> {
        let now = MonoNs::now();
        let followed = self.followed.get_mut(&key).filter(|followed| !followed.is_given_up(now))?;
        let child = self.children.of(&followed.source, &self.binary)?;
        let answer = match give {
            true => child.ask_about(&followed.tenant, request, &[followed.file().as_fd()]),
            false => child.ask_about(&followed.tenant, request, &[]),
        };
        if let Err(how) = &answer {
            // Without another check, nothing is known of the code.
            followed.changes.note(&Changed::Everywhere);
            if *how != WorkerLoss::NotAsked {
                followed.note_loss(MonoNs::now());
                self.lost += 1;
            }
        }
        answer.ok()
    }
}

/// The largest log, if all logs together take more than `most` bytes.
fn largest_excess_log(
    followed: &HashMap<FollowedKey, Followed, RandomState>,
    most: u64,
) -> Option<FollowedKey> {
    let logs = || followed.iter().filter(|(key, _)| key.data == JvmData::Log);
    let memory = |(_, followed): (&FollowedKey, &Followed)| followed.stats.memory;
    let all: u64 = logs().map(memory).sum();
    let largest = || logs().max_by_key(|&log| memory(log)).map(|(key, _)| *key);
    (all > most).then(largest)?
}

fn lookup(seen: LookupAddress, times: &[u64]) -> JavaLookup {
    let from = times.iter().copied().min().unwrap_or_default();
    let to = times.iter().copied().max().unwrap_or_default();
    JavaLookup { pc: seen.pc, leaf: seen.leaf, from, to }
}

fn lost(pc: u64, why: UnknownReason) -> JavaFrames {
    JavaFrames { chain: unknown(why, None, pc), before_attach: false, lasting: false, logged: false }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::jvm::vm::StubBlobs;

    fn log() -> JvmLog {
        let file = File::open("/dev/null").unwrap();
        JvmLog { file, clock_offset_ns: 0, consume: true, blobs: StubBlobs::default() }
    }

    fn process(tgid: u32) -> ProcessId {
        ProcessId { tgid, start: 1, exec: 1 }
    }

    #[test]
    fn follow_returns_false_when_full() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
        let mut jvms = JvmNames::new(PathBuf::from("/nowhere"), false, 1);
        let most = u32::try_from(MAX_FOLLOWED).unwrap();
        assert!((1..=most).all(|tgid| jvms.follow(process(tgid), log())));
        assert!(!jvms.follow(process(most + 1), log()) && !jvms.follows(process(most + 1)));
        assert!(jvms.follow(process(1), log()), "it has room");
        jvms.forget(process(2));
        assert!(jvms.follow(process(most + 1), log()));
    }

    #[test]
    fn of_logs_that_take_too_much_the_largest_is_given_up() {
        let mut jvms = JvmNames::new(PathBuf::from("/nowhere"), false, 1);
        for (tgid, memory) in [(1, MAX_LOG_BYTES / 2), (2, MAX_LOG_BYTES), (3, MAX_LOG_BYTES / 2), (4, 1)] {
            jvms.follow(process(tgid), log());
            jvms.followed.get_mut(&FollowedKey::log(process(tgid))).unwrap().stats.memory = memory;
        }
        jvms.bound_logs();
        let given_up = |tgid| jvms.followed[&FollowedKey::log(process(tgid))].is_given_up(MonoNs(0));
        let first_or_third = [1, 3].into_iter().filter(|&tgid| given_up(tgid)).count();
        assert!(given_up(2) && first_or_third == 1 && !given_up(4));
        assert_eq!(largest_excess_log(&jvms.followed, MAX_LOG_BYTES), None);
    }
}
