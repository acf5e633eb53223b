//! The broker's handle on a worker process: started, asked with a deadline, ended and started anew.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Child as Process;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::message::{MAX_MESSAGE, WorkerObject, WorkerRequest, WorkerResponse};
use super::worker;
use crate::process::channel::ChannelError;
use crate::process::child::ChildProcess;
use crate::process::patience::{Hanging, Tenant};
use crate::process::procfs;

/// What a worker costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCost {
    /// CPU time of this worker and those before it.
    pub cpu: Duration,
    /// Of that, the time of those before it.
    pub past: Duration,
    /// Resident memory now, bytes.
    pub resident: u64,
}

/// How a worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It did not answer in time.
    TooSlow,
    /// It died, or said something that makes no sense.
    Died,
    /// None was asked: none could be started, or too many hang over what was asked for the same tenant before. That is
    /// no fault of what was asked for now.
    NotAsked,
}

/// Asks a worker, and waits for the answer to begin while it works or sleeps for no longer than `limit`: one that waits for a
/// CPU, on a busy host or since its cgroup has used up its time, is not slow.
fn ask(
    worker: &ChildProcess,
    request: &WorkerRequest,
    with: &[BorrowedFd<'_>],
    limit: Duration,
) -> Result<WorkerResponse, ChannelError> {
    let mut last = None;
    let counts = |part: Duration| {
        let Some(stat) = procfs::stat(worker.pid()) else { return true };
        let cpu = procfs::clock_ticks(stat.cpu_ticks);
        let before = last.replace(cpu);
        stat.sleeps() || before.is_none_or(|before| cpu.saturating_sub(before) * 2 >= part)
    };
    worker.ask(request, with, MAX_MESSAGE, limit, counts).map(|(response, _)| response)
}

/// Shortest deadline for files, as a part of the usual one.
pub(crate) const SHORTEST: u32 = 16;
/// A shortened deadline doubles in this time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);
/// How long a killed worker may take to go: one that hangs in a dead file system is left behind.
const GOES_WITHIN: Duration = Duration::from_millis(200);
/// Workers that were left behind, at most: then none is asked any more until one goes. A tenant over whose questions eight
/// of them hang has no answers before that; files, which are nobody's in particular, are as one tenant's.
const MAX_LEFT: usize = 32;

/// How long an answer may take. Files that are made to be slow must not hold up the others for long: each one that is
/// too slow halves the time for those after it.
#[derive(Debug)]
struct Deadline {
    usual: Duration,
    part: u32,
    /// The largest part: 1 if the deadline stays.
    shortest: u32,
    changed: Instant,
}

impl Deadline {
    fn next(&mut self) -> Duration {
        if self.part > 1 && self.changed.elapsed() > FORGIVEN_AFTER {
            self.part /= 2;
            self.changed = Instant::now();
        }
        self.usual / self.part
    }

    fn missed(&mut self) {
        self.part = (self.part * 2).min(self.shortest);
        self.changed = Instant::now();
    }
}

/// A worker process and its successors.
#[derive(Debug)]
pub(crate) struct Child {
    binary: PathBuf,
    deadline: Deadline,
    running: Option<ChildProcess>,
    generation: u64,
    descriptors: usize,
    past_cpu: Duration,
    left: Hanging<Process>,
}

impl Child {
    /// Starts the first worker. Missed deadlines shrink to one part in `shortest`.
    pub(crate) fn start(binary: PathBuf, deadline: Duration, shortest: u32) -> Result<Child> {
        let deadline = Deadline { usual: deadline, part: 1, shortest, changed: Instant::now() };
        let (running, left, past_cpu) = (None, Hanging::at_most(MAX_LEFT), Duration::ZERO);
        let mut child = Child { binary, deadline, running, generation: 0, descriptors: 0, past_cpu, left };
        child.spawn()?;
        Ok(child)
    }

    /// Which worker this is: 1, 2, …. What an earlier one was given, this one does not have.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Descriptors that this worker was given.
    pub(crate) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// Asks about what is of nobody in particular, and waits for the answer. If the worker is lost by it, the next one is
    /// started at once.
    pub(crate) fn ask(
        &mut self,
        request: &WorkerRequest,
        with: &[BorrowedFd<'_>],
    ) -> Result<WorkerResponse, Lost> {
        self.ask_about(&Tenant::unknown(), request, with)
    }

    /// Asks about what a tenant can hold up.
    pub(crate) fn ask_about(
        &mut self,
        tenant: &Tenant,
        request: &WorkerRequest,
        with: &[BorrowedFd<'_>],
    ) -> Result<WorkerResponse, Lost> {
        let hangs = |left: &mut Process| matches!(left.try_wait(), Ok(None));
        let limit = self.deadline.next();
        self.left.admit(limit, || tenant.clone(), hangs, |_| false).ok_or(Lost::NotAsked)?;
        if self.running.is_none() && self.spawn().is_err() {
            return Err(Lost::NotAsked);
        }
        let Some(running) = &self.running else { return Err(Lost::NotAsked) };
        let answer = ask(running, request, with, limit);
        self.descriptors += with.len();
        match answer {
            Ok(response) => Ok(response),
            Err(error) => {
                log::warn!("symbols: a worker crashed or timed out: {error}");
                self.replace(tenant);
                if matches!(error, ChannelError::TimedOut) {
                    self.deadline.missed();
                    return Err(Lost::TooSlow);
                }
                Err(Lost::Died)
            }
        }
    }

    /// Has the worker give back what it was given as the one of that `generation`: those after it never had it.
    pub(crate) fn forget(&mut self, generation: u64, kept: WorkerObject) {
        if generation == self.generation {
            // One that is lost over it has it no more.
            let _ = self.ask(&WorkerRequest::Forget(kept), &[]);
        }
    }

    /// Ends this worker and starts another, which knows nothing.
    pub(crate) fn restart(&mut self) {
        self.replace(&Tenant::unknown());
    }

    fn replace(&mut self, tenant: &Tenant) {
        self.end(tenant);
        // The next question tries again.
        if let Err(error) = self.spawn() {
            log::warn!("symbols: cannot start a worker now: {error:#}");
        }
    }

    /// CPU time and memory.
    pub(crate) fn cost(&self) -> WorkerCost {
        let past = self.past_cpu;
        let cpu = past + self.pid().map_or(Duration::ZERO, procfs::cpu);
        WorkerCost { cpu, past, resident: self.resident() }
    }

    /// Resident memory of the worker that runs now, bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.pid().map_or(0, procfs::resident)
    }

    /// Process id of the worker that runs now.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(ChildProcess::pid)
    }

    fn spawn(&mut self) -> Result<()> {
        let worker = ChildProcess::start(&self.binary, worker::ARGUMENT)
            .with_context(|| format!("starting the symbol worker, {}", self.binary.display()))?;
        self.running = Some(worker);
        self.generation += 1;
        self.descriptors = 0;
        Ok(())
    }

    /// Ends the worker, or leaves it behind if it hangs, over what that tenant holds up.
    fn end(&mut self, tenant: &Tenant) {
        let Some(running) = self.running.take() else { return };
        // Once it was waited for, nobody knows its times.
        self.past_cpu += procfs::cpu(running.pid());
        if let Some(left) = running.end(GOES_WITHIN) {
            self.left.put(tenant.clone(), left);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end(&Tenant::unknown());
    }
}
