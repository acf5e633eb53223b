//! Windows: the profile's beat. Each turn gives the stacks and counts of one window and accounts that add up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ahash::RandomState;
use anyhow::{Context, ensure};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::abi::{self, Counters};
use super::clock::{Clock, Elapsed};
use super::program::{Filter, Load, Program};
use super::stats::{self, RunStats};
use crate::sample::{Count, Stack, StackKey};

/// One window: its stacks with their counts, and where the other ticks went.
#[derive(Debug, Default)]
pub struct Window {
    /// Distinct stacks that were counted.
    pub stacks: Vec<(Stack, Count)>,
    /// Ticks that were counted for a stack whose frames never arrived; they are lost for this reason.
    pub frameless: u64,
    /// Sum over CPUs.
    pub counters: Counters,
    /// Sum of all counts: `ticks = filtered + idle + kept + Σ lost`.
    pub kept: u64,
}

/// New stacks that have arrived, by the parity of their window.
type Arrivals = Rc<RefCell<[Vec<Stack>; 2]>>;

/// A running capture. It belongs to one thread.
pub struct Capture {
    program: Program,
    clock: Clock,
    ring: RingBuffer<'static>,
    /// Readable when the program has found the ring half full, or code that it was not told of.
    woken: OwnedFd,
    arrivals: Arrivals,
    /// Whether the program may be running.
    ticking: bool,
    /// Keeps the kernel's run time statistics on; none where the kernel or a capability is missing.
    stats: Option<OwnedFd>,
}

/// What to capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nanoseconds of CPU time between two ticks of one CPU.
    pub period_ns: u64,
    /// Only these CPUs, if any are named.
    pub cpus: Option<Vec<u32>>,
    /// Whose ticks.
    pub filter: Filter,
    /// Kernel types from a file instead of the kernel.
    pub btf: Option<PathBuf>,
}

impl Capture {
    /// Loads the program and opens the events; nothing ticks yet.
    ///
    /// # Errors
    /// When this host does not allow it.
    pub fn prepare(options: &Options) -> anyhow::Result<Capture> {
        ensure!(options.period_ns > 0, "a period of 0 ns");
        let cpus = libbpf_rs::num_possible_cpus().context("number of CPUs")? as u64;
        let load = Load { rate: 1_000_000_000u64.div_ceil(options.period_ns), cpus };
        let program = Program::load(&options.filter, load, options.btf.as_ref())?;
        let clock = Clock::open(options.period_ns, options.cpus.clone(), program.fd())?;
        let arrivals = Arrivals::default();
        let sink = Rc::clone(&arrivals);
        let mut builder = RingBufferBuilder::new();
        builder.add(program.ring(), move |bytes| {
            if let Some((stack, window)) = abi::parse_record(bytes) {
                sink.borrow_mut()[(window & 1) as usize].push(stack);
            }
            0
        })?;
        let ring = builder.build().context("ring buffer")?;
        // By itself the ring is readable as soon as there is anything in it.
        let woken = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        let (data, at_once) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&woken, program.ring().as_fd(), data, at_once).context("ring buffer")?;
        Ok(Capture { program, clock, ring, woken, arrivals, ticking: false, stats: stats::enable().ok() })
    }

    /// Starts the ticks.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.ticking = true;
        self.clock.start().context("starting the perf events")
    }

    /// Stops the ticks; the last window is still to be turned.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.clock.stop().context("stopping the perf events")?;
        self.ticking = false;
        Ok(())
    }

    /// Waits up to `timeout`; less if the ring is half full, then takes what has arrived, if a walk came to code that the
    /// program was not told of (true; at most twenty times a second), or if one of `others` is readable.
    ///
    /// # Errors
    /// What the kernel says; an interrupting signal is none.
    pub fn wait(&self, timeout: Duration, others: &[BorrowedFd<'_>]) -> anyhow::Result<bool> {
        let descriptors = std::iter::once(self.woken.as_fd()).chain(others.iter().copied());
        let mut ready: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = Timespec::try_from(timeout).ok();
        match poll(&mut ready, limit.as_ref()) {
            Err(Errno::INTR) => return Ok(false),
            polled => polled.context("waiting for the ring of stacks")?,
        };
        if ready[0].revents().is_empty() {
            return Ok(false);
        }
        // Told once each time: that it was told is taken back before the ring is read.
        let mut told =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(&self.woken, &mut told[..], Some(&Timespec::default()))
            .context("waiting for the ring of stacks")?;
        self.ring.consume().context("reading the ring of stacks")?;
        Ok(true)
    }

    /// Ends the window and gives it: its counts are final.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn turn(&mut self) -> anyhow::Result<Window> {
        let old = self.program.flip()?;
        // Stopped events have no run left to wait for: see `perf_event::disable`.
        if self.ticking {
            self.program.wait_for_runs()?;
        }
        self.ring.consume().context("reading the ring of stacks")?;
        let arrived = std::mem::take(&mut self.arrivals.borrow_mut()[old as usize]);
        let counts = self.program.take_counts(old)?;
        let counters = self.program.take_counters(old)?;
        Ok(assemble(arrived, counts, counters))
    }

    /// Follows CPUs that came or went: `online` are there now.
    pub fn follow_hotplug(&mut self, online: &[u32]) {
        self.clock.follow_hotplug(online, self.program.fd());
    }

    /// Ticks at another period from now on; each tick weighs what its own period was.
    ///
    /// # Errors
    /// When no CPU can tick so: what the kernel says. Nothing ticks any more then.
    pub fn set_period(&mut self, period_ns: u64) -> anyhow::Result<()> {
        ensure!(period_ns > 0, "a period of 0 ns");
        self.clock.set_period(period_ns, self.program.fd())
    }

    /// CPUs that tick.
    #[must_use]
    pub fn cpus(&self) -> Vec<u32> {
        self.clock.cpus().collect()
    }

    /// What the events themselves counted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn elapsed(&self) -> anyhow::Result<Elapsed> {
        self.clock.elapsed().context("reading the perf events")
    }

    /// What the BPF program has cost; none where the kernel does not say.
    #[must_use]
    pub fn run_stats(&self) -> Option<RunStats> {
        self.stats.as_ref().and_then(|_| stats::read(self.program.fd()).ok())
    }

    /// The program: its filters can change while it runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}

fn assemble(arrived: Vec<Stack>, counts: Vec<(abi::Key, abi::Value)>, counters: Counters) -> Window {
    let mut by_key: HashMap<StackKey, Stack, RandomState> = HashMap::default();
    by_key.reserve(arrived.len());
    for stack in arrived {
        // Two CPUs may announce the same stack; the earlier time is the safer one.
        let at = stack.at;
        let kept = by_key.entry(stack.key).or_insert(stack);
        kept.at = kept.at.min(at);
    }
    let mut window = Window { counters, ..Window::default() };
    for (key, abi::Value { count, weight }) in counts {
        window.kept += count;
        match by_key.remove(&key.stack_key()) {
            Some(stack) => window.stacks.push((stack, Count { ticks: count, weight_ns: weight })),
            None => window.frameless += count,
        }
    }
    window
}
