//! The broker's part of unwinding from outside: the worker that reads the memory of processes whose threads are still
//! waiting.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::child::{MAX_DIVISOR, WorkerCost, WorkerProcess};
use super::message::{ThreadToUnwind, WorkerRequest, WorkerResponse};
use crate::outside::OutsideStack;
use crate::process::timed_calls::Tenant;

/// Deadline of a request. A process can block the reading of its memory, by pages behind a user-space file system.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Threads in one request.
const BATCH: usize = 256;

/// A process whose threads are to be unwound.
#[derive(Debug)]
pub struct OutsideProcess {
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// Its memory, `/proc/PID/mem`, open.
    pub memory: OwnedFd,
    /// The pages of its unwind tables and of its address space, numbered from 0.
    pub pages: Vec<u8>,
    /// The page where the address space begins; 0: the process has none.
    pub space: u32,
}

/// The worker for memory of processes whose threads are still waiting; started when it is first needed.
#[derive(Debug)]
pub(super) struct OutsideWorker {
    binary: PathBuf,
    child: Option<WorkerProcess>,
    /// Workers that were lost.
    pub(super) lost: u64,
}

impl OutsideWorker {
    pub(super) fn new(binary: PathBuf) -> OutsideWorker {
        OutsideWorker { binary, child: None, lost: 0 }
    }

    pub(super) fn cost(&self) -> WorkerCost {
        self.child.as_ref().map(WorkerProcess::cost).unwrap_or_default()
    }

    /// Unwinds threads of one process. `None` for those that could not be unwound.
    pub(super) fn unwind(
        &mut self,
        process: &OutsideProcess,
        threads: &[ThreadToUnwind],
    ) -> Vec<Option<OutsideStack>> {
        let mut stacks = Vec::with_capacity(threads.len());
        for threads in threads.chunks(BATCH) {
            match self.ask(process, threads) {
                Some(some) => stacks.extend(some),
                None => break,
            }
        }
        stacks.resize(threads.len(), None);
        stacks
    }

    fn ask(
        &mut self,
        process: &OutsideProcess,
        threads: &[ThreadToUnwind],
    ) -> Option<Vec<Option<OutsideStack>>> {
        let pages = memfd_create("unwind", MemfdFlags::CLOEXEC).ok()?;
        let mut file = File::from(pages);
        file.write_all(&process.pages).ok()?;
        // The worker shares the position.
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).ok()?;
        if self.child.is_none() {
            self.child = WorkerProcess::start(self.binary.clone(), TIMEOUT, MAX_DIVISOR).ok();
        }
        let child = self.child.as_mut()?;
        let request = WorkerRequest::Unwind { space: process.space, threads: threads.to_vec() };
        let with = [process.memory.as_fd(), file.as_fd()];
        match child.ask_about(&Tenant::of(process.tgid), &request, &with) {
            Ok(WorkerResponse::Unwound(stacks)) if stacks.len() == threads.len() => Some(stacks),
            Ok(_) => None,
            Err(how) => {
                self.lost += u64::from(how != super::child::WorkerLoss::NotAsked);
                None
            }
        }
    }
}
