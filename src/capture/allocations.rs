//! The sources of allocations: BPF programs at the functions that HotSpot calls for new TLABs and large objects, and at the
//! functions of native allocators. They are attached to each file or process as it is found, also while sampling goes on.

use std::cell::Cell;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, ensure};

use super::controls::{ControlMap, EventControl};
use super::online::SampledCpus;
use super::perf_event;
use super::source::{EventSource, ExpectedSamples, StopState};
use super::stats;
use crate::sample::Event;

/// The kernel's kind of perf events for uprobes.
const UPROBES: &str = "/sys/bus/event_source/devices/uprobe/type";
/// The longest interval in bytes; `bpf/marks.h` multiplies it by 32 bits.
pub const MAX_INTERVAL: u64 = u32::MAX as u64;

/// The arguments of a function at which allocations are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocationArguments {
    /// The class, the object, and its bytes.
    ClassObjectBytes,
    /// The class, the object, the bytes of the TLAB, and those of the object.
    ClassObjectTlabBytes,
    /// The class and the bytes of the object.
    ClassBytes,
    /// The class, the bytes of the TLAB, and those of the object.
    ClassTlabBytes,
    /// The agent's function: a `jclass`, where its mirror has the class, the bytes that the object stands for, and its own.
    SampledObject,
    /// `malloc`: the bytes.
    Malloc,
    /// `calloc`: a number and the bytes of one.
    Calloc,
    /// `realloc`: the memory and the bytes.
    Realloc,
    /// `reallocarray`: the memory, a number and the bytes of one.
    Reallocarray,
    /// `posix_memalign`: the result, the alignment, and the bytes.
    PosixMemalign,
    /// `memalign` and `aligned_alloc`: the alignment and the bytes.
    Memalign,
    /// `valloc` and `pvalloc`: the bytes.
    Valloc,
}

/// The program for functions with these arguments.
#[derive(Debug)]
struct AllocationProgram {
    arguments: AllocationArguments,
    program: OwnedFd,
}

/// The programs of an event of allocations, which can be attached to files while they run. A clone is cheap.
#[derive(Clone, Debug)]
pub struct AllocationProbes {
    event: Event,
    programs: Arc<[AllocationProgram]>,
    kind: u32,
}

/// An attached program. It is detached when this is dropped.
#[derive(Debug)]
pub struct AllocationLink {
    _event: OwnedFd,
}

impl AllocationProbes {
    pub(super) fn new(
        event: Event,
        programs: Vec<(AllocationArguments, BorrowedFd<'_>)>,
    ) -> anyhow::Result<AllocationProbes> {
        let own = |(arguments, program): (AllocationArguments, BorrowedFd<'_>)| {
            let program = program.try_clone_to_owned().context("a program of allocations")?;
            Ok(AllocationProgram { arguments, program })
        };
        let programs = programs.into_iter().map(own).collect::<anyhow::Result<_>>()?;
        let kind = fs::read_to_string(UPROBES).ok().and_then(|text| text.trim().parse().ok());
        let kind = kind.context("this kernel has no uprobes (CONFIG_UPROBE_EVENTS)")?;
        Ok(AllocationProbes { event, programs, kind })
    }

    /// The event whose programs these are.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// Attaches the program to a function: in all processes that map the file, or in the process of one thread, as long as
    /// this thread lives. The call may read the file.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` if there is no instruction at the offset, `ESRCH` if the thread has ended.
    pub fn attach(
        &self,
        file: &OwnedFd,
        offset: u64,
        arguments: AllocationArguments,
        thread: Option<u32>,
    ) -> io::Result<AllocationLink> {
        let program = self.programs.iter().find(|one| one.arguments == arguments);
        let program = program.ok_or(io::ErrorKind::InvalidInput)?;
        // The kernel keeps the file's inode, so the descriptor may be closed afterwards.
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let event = perf_event::open_uprobe(self.kind, &path, offset, thread)?;
        perf_event::set_bpf(event.as_fd(), program.program.as_fd())?;
        perf_event::enable(event.as_fd())?;
        Ok(AllocationLink { _event: event })
    }
}

/// The programs of allocations, which sample all of one interval.
pub struct AllocationSource {
    probes: AllocationProbes,
    control: ControlMap,
    interval: u64,
    /// Allocations at which the kernel had skipped the programs when sampling began: the programs are attached earlier.
    past: Cell<u64>,
    cpus: SampledCpus,
}

impl AllocationSource {
    pub(super) fn new(
        probes: AllocationProbes,
        control: ControlMap,
        interval: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<AllocationSource> {
        ensure!((1..=MAX_INTERVAL).contains(&interval), "a sample for each {interval} bytes");
        let cpus = SampledCpus::open(chosen)?;
        Ok(AllocationSource { probes, control, interval, past: Cell::new(0), cpus })
    }

    fn skipped(&self) -> anyhow::Result<u64> {
        let programs = self.probes.programs.iter();
        let skipped = programs.map(|one| stats::skipped(one.program.as_fd()));
        skipped.sum::<io::Result<u64>>().context("statistics of the BPF program")
    }

    fn publish(&self, period: u64) -> anyhow::Result<()> {
        self.control.publish(EventControl { period, ..EventControl::default() })
    }
}

impl EventSource for AllocationSource {
    fn event(&self) -> Event {
        self.probes.event
    }

    fn period(&self) -> u64 {
        self.interval
    }

    fn start(&self) -> anyhow::Result<()> {
        self.past.set(self.skipped()?);
        self.publish(self.interval)
    }

    fn stop(&self) -> anyhow::Result<StopState> {
        self.publish(0)?;
        Ok(StopState::RunsPending)
    }

    fn follow_hotplug(&mut self, online: &[u32]) {
        self.cpus.follow(online);
    }

    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        ensure!((1..=MAX_INTERVAL).contains(&period), "a sample for each {period} bytes");
        self.interval = period;
        self.publish(period)
    }

    fn cpus(&self) -> Vec<u32> {
        self.cpus.now()
    }

    /// An allocation at which the kernel skipped the program counts as one missed sample: its bytes are not known.
    fn elapsed(&self) -> anyhow::Result<ExpectedSamples> {
        let missed = self.skipped()?.saturating_sub(self.past.get());
        Ok(ExpectedSamples { periods: 0, missed })
    }
}
