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
use super::overflow::PerCpu;
use super::program::{BpfProgram, Filter, Load};
use super::source::{Elapsed, EventSource, Stopped};
use super::stats::{self, RunStats};
use crate::sample::event::Expectation;
use crate::sample::{Count, Event, Stack, StackKey};

/// One window: its stacks with their counts, and where the other samples went.
#[derive(Debug, Default)]
pub struct Window {
    /// Distinct stacks that were counted.
    pub stacks: Vec<(Stack, Count)>,
    /// Of each event, in the order in which they were asked for.
    pub events: Vec<Counted>,
}

/// What became of an event's samples in a window.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Of what.
    pub event: Event,
    /// Samples that were counted for a stack whose frames never arrived; they are lost for this reason.
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
    program: BpfProgram,
    sources: Vec<Box<dyn EventSource>>,
    ring: RingBuffer<'static>,
    /// Readable when the program has found the ring half full, or code that it was not told of.
    woken: OwnedFd,
    arrivals: Arrivals,
    /// Whether a program may be running.
    running: bool,
    /// Keeps the kernel's run time statistics on; none where the kernel or a capability is missing.
    stats: Option<OwnedFd>,
}

/// What to capture.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// What is sampled, each at its period: nanoseconds of CPU time, or so many events.
    pub events: Vec<(Event, u64)>,
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
    pub fn prepare(options: &CaptureOptions) -> anyhow::Result<Capture> {
        ensure!(options.events.iter().all(|(_, period)| *period > 0), "a period of 0");
        let cpus = libbpf_rs::num_possible_cpus().context("number of CPUs")? as u64;
        let events = options.events.iter().map(|(event, _)| *event).collect();
        let rate = options.events.iter().map(|(event, period)| rate(*event, *period)).sum();
        let program = BpfProgram::load(&options.filter, &Load { events, rate, cpus }, options.btf.as_ref())?;
        let source = |(event, period): &(Event, u64)| -> anyhow::Result<Box<dyn EventSource>> {
            Ok(Box::new(PerCpu::open(*event, *period, options.cpus.clone(), program.fd(*event))?))
        };
        let sources = options.events.iter().map(source).collect::<anyhow::Result<_>>()?;
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
        Ok(Capture { program, sources, ring, woken, arrivals, running: false, stats: stats::enable().ok() })
    }

    /// Starts the ticks.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.running = true;
        self.sources.iter().try_for_each(|source| source.start())
    }

    /// Stops the ticks; the last window is still to be turned.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let mut running = false;
        for source in &self.sources {
            running |= source.stop()? == Stopped::ButForRuns;
        }
        self.running = running;
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
    pub fn take_window(&mut self) -> anyhow::Result<Window> {
        let old = self.program.flip()?;
        if self.running {
            self.program.wait_for_runs()?;
        }
        self.ring.consume().context("reading the ring of stacks")?;
        let arrived = std::mem::take(&mut self.arrivals.borrow_mut()[old as usize]);
        let counts = self.program.take_counts(old)?;
        let counters = self.program.events().iter().map(|event| {
            let counters = self.program.take_counters(old, *event)?;
            Ok(Counted { event: *event, counters, ..Counted::default() })
        });
        Ok(assemble(arrived, counts, counters.collect::<anyhow::Result<_>>()?))
    }

    /// Follows CPUs that came or went: `online` are there now.
    pub fn follow_hotplug(&mut self, online: &[u32]) {
        self.sources.iter_mut().for_each(|source| source.follow_hotplug(online));
    }

    /// Samples an event at another period from now on; each sample weighs what its own period was.
    ///
    /// # Errors
    /// When no CPU can be sampled so: what the kernel says. Of that event nothing is sampled any more then.
    pub fn set_period(&mut self, event: Event, period: u64) -> anyhow::Result<()> {
        ensure!(period > 0, "a period of 0");
        let mut of_it = self.sources.iter_mut().filter(|source| source.event() == event);
        of_it.try_for_each(|source| source.set_period(period))
    }

    /// CPUs that are sampled.
    #[must_use]
    pub fn cpus(&self) -> Vec<u32> {
        self.sources.first().map(|source| source.cpus()).unwrap_or_default()
    }

    /// What the sources themselves have counted, of each event.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn elapsed(&self) -> anyhow::Result<Vec<Elapsed>> {
        self.sources.iter().map(|source| source.elapsed()).collect()
    }

    /// What the BPF programs have cost; none where the kernel does not say.
    #[must_use]
    pub fn run_stats(&self) -> Option<RunStats> {
        self.stats.as_ref()?;
        let mut sum = RunStats::default();
        for event in self.program.events() {
            sum += stats::read(self.program.fd(*event)).ok()?;
        }
        Some(sum)
    }

    /// The program: its filters can change while it runs.
    #[must_use]
    pub fn program(&self) -> &BpfProgram {
        &self.program
    }
}

/// Samples a second on one CPU, at most, as far as sizes go by it. Of events that the kernel counts nobody knows: as many as a
/// busy program makes, and when there are more, what has no room is lost and said to be.
fn rate(event: Event, period: u64) -> u64 {
    const EVENTS: u64 = 10_000;
    let of_a_second = if event.expected() == Expectation::Periodic { 1_000_000_000 } else { EVENTS };
    of_a_second.div_ceil(period)
}

fn assemble(arrived: Vec<Stack>, counts: Vec<(abi::Key, abi::Value)>, events: Vec<Counted>) -> Window {
    let mut by_key: HashMap<StackKey, Stack, RandomState> = HashMap::default();
    by_key.reserve(arrived.len());
    for stack in arrived {
        // Two CPUs may announce the same stack; the earlier time is the safer one.
        let at = stack.at;
        let kept = by_key.entry(stack.key).or_insert(stack);
        kept.at = kept.at.min(at);
    }
    let mut window = Window { events, ..Window::default() };
    for (key, abi::Value { count, weight }) in counts {
        let Some(key) = key.stack_key() else { continue };
        let Some(of) = window.events.iter_mut().find(|of| of.event == key.event) else { continue };
        of.kept += count;
        match by_key.remove(&key) {
            Some(stack) => window.stacks.push((stack, Count { ticks: count, weight })),
            None => of.frameless += count,
        }
    }
    window
}
