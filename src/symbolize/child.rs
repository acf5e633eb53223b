//! The broker's handle on a worker process: starts it, sends requests with a deadline, ends and replaces it.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Child as Process;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::message::{MAX_MESSAGE, WorkerObject, WorkerRequest, WorkerResponse};
use super::worker;
use crate::process::channel::ChannelError;
use crate::process::child::ChildProcess;
use crate::process::procfs;
use crate::process::timed_calls::{HungCalls, Tenant};

/// CPU time and memory of a worker and its predecessors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCost {
    /// CPU time of this worker and its predecessors.
    pub cpu: Duration,
    /// The part of `cpu` that the predecessors used.
    pub past: Duration,
    /// Resident memory now, bytes.
    pub resident: u64,
}

impl WorkerCost {
    /// The cost of two workers.
    pub(super) fn plus(self, other: WorkerCost) -> WorkerCost {
        WorkerCost {
            cpu: self.cpu + other.cpu,
            past: self.past + other.past,
            resident: self.resident + other.resident,
        }
    }
}

/// How a worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerLoss {
    /// The worker did not answer before the deadline.
    TooSlow,
    /// The worker died, or sent a malformed answer.
    Died,
    /// No request was sent: no worker could be started, or too many workers hang over earlier requests for the same
    /// tenant. The object of this request is not at fault.
    NotAsked,
}

/// Sends a request and waits for the answer to begin. Only time in which the worker works or sleeps counts towards
/// `timeout`. Time in which it waits for a CPU does not count: the host may be busy, or its cgroup's quota used up.
fn ask(
    worker: &ChildProcess,
    request: &WorkerRequest,
    with: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<WorkerResponse, ChannelError> {
    let mut last = None;
    let counts = |part: Duration| {
        let Some(stat) = procfs::stat(worker.pid()) else { return true };
        let cpu = procfs::clock_ticks(stat.cpu_ticks);
        let before = last.replace(cpu);
        stat.sleeps() || before.is_none_or(|before| cpu.saturating_sub(before) * 2 >= part)
    };
    worker.ask(request, with, MAX_MESSAGE, timeout, counts).map(|received| received.message)
}

/// The usual timeout divided by this is the shortest one for files.
pub(crate) const MAX_DIVISOR: u32 = 16;
/// A shortened timeout doubles after this time.
const TIMEOUT_DOUBLES_AFTER: Duration = Duration::from_secs(60);
/// How long a killed worker may take to exit. A worker that hangs in a dead file system is left behind.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);
/// Workers that are left behind, at most: at this number, no request is sent until one of them exits. A tenant whose
/// requests left eight of them behind gets no answers until one exits. All files count as one tenant.
const MAX_LEFT: usize = 32;

/// How long an answer may take. Files that are made to be slow must not delay other files for long, so each missed
/// timeout halves the next one.
#[derive(Debug)]
struct AdaptiveTimeout {
    usual: Duration,
    divisor: u32,
    /// The largest divisor of the usual timeout; 1 if the timeout never shrinks.
    max_divisor: u32,
    changed: Instant,
}

impl AdaptiveTimeout {
    fn next(&mut self) -> Duration {
        if self.divisor > 1 && self.changed.elapsed() > TIMEOUT_DOUBLES_AFTER {
            self.divisor /= 2;
            self.changed = Instant::now();
        }
        self.usual / self.divisor
    }

    fn missed(&mut self) {
        self.divisor = (self.divisor * 2).min(self.max_divisor);
        self.changed = Instant::now();
    }
}

/// A worker process and its successors.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    binary: PathBuf,
    timeout: AdaptiveTimeout,
    running: Option<ChildProcess>,
    generation: u64,
    descriptors: usize,
    past_cpu: Duration,
    left: HungCalls<Process>,
}

impl WorkerProcess {
    /// Starts the first worker. Each missed timeout halves the next one, at most to `timeout` divided by `max_divisor`.
    pub(crate) fn start(binary: PathBuf, timeout: Duration, max_divisor: u32) -> Result<WorkerProcess> {
        let mut child = WorkerProcess {
            binary,
            timeout: AdaptiveTimeout { usual: timeout, divisor: 1, max_divisor, changed: Instant::now() },
            running: None,
            generation: 0,
            descriptors: 0,
            past_cpu: Duration::ZERO,
            left: HungCalls::at_most(MAX_LEFT),
        };
        child.spawn()?;
        Ok(child)
    }

    /// Number of this worker: 1, 2, …. The worker does not have the objects of earlier ones.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Descriptors that this worker was given.
    pub(crate) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// Sends a request of no particular tenant and waits for the answer. If the worker is lost, the next one is started
    /// at once.
    pub(crate) fn ask(
        &mut self,
        request: &WorkerRequest,
        with: &[BorrowedFd<'_>],
    ) -> Result<WorkerResponse, WorkerLoss> {
        self.ask_about(&Tenant::unknown(), request, with)
    }

    /// Sends a request about an object that `tenant` can make hang.
    pub(crate) fn ask_about(
        &mut self,
        tenant: &Tenant,
        request: &WorkerRequest,
        with: &[BorrowedFd<'_>],
    ) -> Result<WorkerResponse, WorkerLoss> {
        let hangs = |left: &mut Process| matches!(left.try_wait(), Ok(None));
        let timeout = self.timeout.next();
        self.left.admit(timeout, || tenant.clone(), hangs, |_| false).ok_or(WorkerLoss::NotAsked)?;
        if self.running.is_none() && self.spawn().is_err() {
            return Err(WorkerLoss::NotAsked);
        }
        let Some(running) = &self.running else { return Err(WorkerLoss::NotAsked) };
        let answer = ask(running, request, with, timeout);
        self.descriptors += with.len();
        match answer {
            Ok(response) => Ok(response),
            Err(error) => {
                log::warn!("symbols: a worker crashed or timed out: {error}");
                self.replace(tenant);
                if matches!(error, ChannelError::TimedOut) {
                    self.timeout.missed();
                    return Err(WorkerLoss::TooSlow);
                }
                Err(WorkerLoss::Died)
            }
        }
    }

    /// Makes the worker drop an object that it was given as the worker of `generation`. Later workers never had the
    /// object.
    pub(crate) fn forget(&mut self, generation: u64, kept: WorkerObject) {
        if generation == self.generation {
            // A worker that is lost over this request no longer has the object either.
            let _ = self.ask(&WorkerRequest::Forget(kept), &[]);
        }
    }

    /// Replaces this worker by a new one, which has no objects yet.
    pub(crate) fn restart(&mut self) {
        self.replace(&Tenant::unknown());
    }

    fn replace(&mut self, tenant: &Tenant) {
        self.end(tenant);
        // The next request tries again.
        if let Err(error) = self.spawn() {
            log::warn!("symbols: cannot start a worker now: {error:#}");
        }
    }

    pub(crate) fn cost(&self) -> WorkerCost {
        let past = self.past_cpu;
        let cpu = past + self.pid().map_or(Duration::ZERO, procfs::cpu);
        WorkerCost { cpu, past, resident: self.resident() }
    }

    /// Resident memory of the current worker, bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.pid().map_or(0, procfs::resident)
    }

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

    /// Ends the worker. If it hangs over an object of `tenant`, it is left behind.
    fn end(&mut self, tenant: &Tenant) {
        let Some(running) = self.running.take() else { return };
        // The CPU time of a process cannot be read after the process was waited for.
        self.past_cpu += procfs::cpu(running.pid());
        if let Some(left) = running.end(EXIT_TIMEOUT) {
            self.left.add(tenant.clone(), left);
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end(&Tenant::unknown());
    }
}
