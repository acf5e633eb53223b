//! The broker's side of Java: the logs that are followed, and the worker that reads them.
//!
//! The logs have a worker of their own. The one for files may die at any time and is replaced to free memory; a log of
//! which the consumed part was given back to the kernel cannot be read a second time, so its reader should live long.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use jvm_symbols_log::header::HEADER_LEN;
use jvm_symbols_log::log_file::write_consumed;
use rustix::fs::{FallocateFlags, fallocate};

use super::child::{Child, Cost};
use super::frames::{Frames, Texts, unknown};
use super::message::{Follow, JavaPc, LogStats, Request, Response};
use crate::process::ProcessId;
use crate::profile::Why;

/// Addresses in one request.
const BATCH: usize = 8192;
/// JVMs that are followed at once.
const MAX_FOLLOWED: usize = 1024;

#[derive(Debug)]
struct Followed {
    number: u64,
    log: File,
    clock_offset_ns: i64,
    consume: bool,
    /// What lies before this was given back to the kernel.
    released: u64,
    /// The worker that has it.
    generation: u64,
    stats: LogStats,
}

impl Followed {
    /// Gives back to the kernel what has been read, and tells the agent. The worker cannot: it may write no file.
    fn release(&mut self) {
        if !self.consume || self.stats.read_to <= self.released {
            return;
        }
        let page = rustix::param::page_size() as u64;
        let (start, end) = (
            HEADER_LEN.next_multiple_of(page).max(self.released / page * page),
            self.stats.read_to / page * page,
        );
        if end > start {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // What cannot be given back stays: it costs the JVM memory, no more.
            let _ = fallocate(&self.log, flags, start, end - start);
        }
        let _ = write_consumed(&self.log, self.stats.read_to);
        self.released = self.stats.read_to;
    }
}

/// Java stacks of one JVM, by how much their leaves are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JavaLeaves {
    /// Distinct stacks (of each window) whose leaf is Java.
    pub all: u64,
    /// Of these, in code compiled before the agent came: only calls and safepoints have debug records there.
    pub before_attach: u64,
}

/// The frames of one Java address.
#[derive(Clone, Debug)]
pub(crate) struct JavaFrames {
    pub(crate) frames: Frames,
    pub(crate) before_attach: bool,
}

/// The JVMs whose logs are followed.
#[derive(Debug)]
pub(crate) struct Jvms {
    binary: PathBuf,
    deadline: Duration,
    raw: bool,
    child: Option<Child>,
    followed: HashMap<ProcessId, Followed>,
    next: u64,
    texts: Texts,
    /// Workers that were lost.
    pub(crate) lost: u64,
}

impl Jvms {
    pub(crate) fn new(binary: PathBuf, deadline: Duration, raw: bool) -> Jvms {
        let (followed, texts) = (HashMap::new(), Texts::default());
        Jvms { binary, deadline, raw, child: None, followed, next: 0, texts, lost: 0 }
    }

    pub(crate) fn follows(&self, id: ProcessId) -> bool {
        self.followed.contains_key(&id)
    }

    /// Follows a log from its start. The worker is started with the first one.
    pub(crate) fn follow(&mut self, id: ProcessId, log: OwnedFd, clock_offset_ns: i64, consume: bool) {
        if self.followed.len() >= MAX_FOLLOWED && !self.follows(id) {
            return;
        }
        if let Some(before) = self.followed.remove(&id) {
            self.tell(&Request::Forget { jvm: before.number });
        }
        self.next += 1;
        let (number, stats) = (self.next, LogStats::default());
        self.followed.insert(
            id,
            Followed {
                number,
                log: File::from(log),
                clock_offset_ns,
                consume,
                released: 0,
                generation: 0,
                stats,
            },
        );
    }

    /// Forgets a JVM that has ended and whose stacks are all named.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        if let Some(followed) = self.followed.remove(&id) {
            self.tell(&Request::Forget { jvm: followed.number });
        }
    }

    /// Lets the worker read what the logs have now.
    pub(crate) fn read_logs(&mut self) -> Vec<(ProcessId, LogStats)> {
        let ids: Vec<ProcessId> = self.followed.keys().copied().collect();
        for &id in &ids {
            // Once more if the worker was lost; what it knew is then read again from the start.
            let _ = self.read_log(id).or_else(|()| self.read_log(id));
        }
        ids.iter().filter_map(|&id| Some((id, self.followed.get(&id)?.stats))).collect()
    }

    pub(crate) fn frames(&mut self, id: ProcessId, lookups: &[JavaPc]) -> Vec<JavaFrames> {
        let mut answers = Vec::with_capacity(lookups.len());
        let mut losses = 0;
        while answers.len() < lookups.len() {
            let rest = &lookups[answers.len()..];
            match self.attempt(id, &rest[..rest.len().min(BATCH)]) {
                Some(more) if !more.is_empty() => answers.extend(more),
                None if losses == 0 => losses += 1,
                _ => break,
            }
        }
        let lost =
            |l: &JavaPc| JavaFrames { frames: unknown(Why::WorkerFailed, None, l.pc), before_attach: false };
        let missing: Vec<JavaFrames> = lookups[answers.len()..].iter().map(lost).collect();
        answers.extend(missing);
        answers
    }

    pub(crate) fn cost(&self) -> Cost {
        self.child.as_ref().map(Child::cost).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::pid)
    }

    /// `None`: the worker was lost.
    fn attempt(&mut self, id: ProcessId, lookups: &[JavaPc]) -> Option<Vec<JavaFrames>> {
        let generation = self.child.as_ref().map_or(0, Child::generation);
        let followed = self.followed.get(&id)?;
        if followed.generation != generation || generation == 0 {
            self.read_log(id).ok()?;
        }
        let followed = self.followed.get(&id)?;
        let request = Request::Java { jvm: followed.number, lookups: lookups.to_vec(), raw: self.raw };
        let names = match self.ask(&request, None)? {
            Response::Names(names) => names,
            _ => return Some(Vec::new()),
        };
        let addresses: Vec<u64> = lookups.iter().map(|l| l.pc).collect();
        let frames = self.texts.frames(&names, &addresses, None).into_iter().zip(addresses);
        let mut frames: Vec<JavaFrames> = frames
            .map(|(frames, pc)| frames.unwrap_or_else(|why| unknown(why, None, pc)))
            .map(|frames| JavaFrames { frames, before_attach: false })
            .collect();
        for place in names.before_attach {
            if let Some(frames) = frames.get_mut(place as usize) {
                frames.before_attach = true;
            }
        }
        Some(frames)
    }

    /// Gives the log to the worker if it does not have it, and lets it read.
    fn read_log(&mut self, id: ProcessId) -> Result<(), ()> {
        self.start_child()?;
        let generation = self.child.as_ref().map_or(0, Child::generation);
        let Some(followed) = self.followed.get(&id) else { return Ok(()) };
        let given = followed.generation == generation;
        let follow = Follow { clock_offset_ns: followed.clock_offset_ns, from: followed.released };
        let request = Request::ReadLog { jvm: followed.number, follow: Some(follow).filter(|_| !given) };
        match self.ask(&request, Some(id).filter(|_| !given)) {
            Some(Response::Log(stats)) => {
                if let Some(followed) = self.followed.get_mut(&id) {
                    followed.stats = stats;
                    followed.generation = generation;
                    followed.release();
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(()),
        }
    }

    fn start_child(&mut self) -> Result<(), ()> {
        if self.child.is_none() {
            self.child = Child::start(self.binary.clone(), self.deadline).ok();
        }
        if self.child.is_some() { Ok(()) } else { Err(()) }
    }

    /// Asks the worker, with the log of `with`; `None` if it was lost.
    fn ask(&mut self, request: &Request, with: Option<ProcessId>) -> Option<Response> {
        let child = self.child.as_mut()?;
        let log = with.and_then(|id| self.followed.get(&id)).map(|f| f.log.as_fd());
        let answer = match log {
            Some(log) => child.ask(request, &[log]),
            None => child.ask(request, &[]),
        };
        if answer.is_err() {
            self.lost += 1;
        }
        answer.ok()
    }

    fn tell(&mut self, request: &Request) {
        let _ = self.ask(request, None);
    }
}
