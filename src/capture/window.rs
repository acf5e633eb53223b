//! A running capture, which returns window by window the stacks, their counts, and accounts that add up.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ahash::RandomState;
use anyhow::{Context, ensure};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::abi::{self, AllocationTotals, ArrivedStack, Counters, WaitTotals};
use super::arrivals::Arrivals;
use super::filter::Filter;
use super::numbers::EventNumbers;
use super::perf_source::PerfEventSource;
use super::probe_place::FunctionPlace;
use super::program::{BpfProgram, ExpectedLoad};
use super::run_meter::{Counted, RunMeter};
use super::source::{EventSource, ExpectedSamples, StopState};
use super::stats::{self, RunStats};
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::{CountedStack, Event, EventPeriod, MonoNs, Stack, StackKey};

/// One window: its stacks with their counts, and the accounts of its samples.
#[derive(Debug, Default)]
pub struct Window {
    /// Distinct stacks, each with its count.
    pub stacks: Vec<CountedStack>,
    /// The accounts of each event, in the order of the options.
    pub events: Vec<WindowCounts>,
    /// When the next window began. Samples of later windows are not older.
    pub next_from: MonoNs,
}

/// The accounts of an event's samples in a window.
#[derive(Clone, Debug, Default)]
pub struct WindowCounts {
    /// The event that was sampled.
    pub event: Event,
    /// Samples that were counted for a stack whose frames never arrived; they are lost for this reason.
    pub frameless: u64,
    /// Samples that were counted under a key that names no event of this capture; they are lost for this reason.
    pub misfiled: u64,
    /// The BPF program's counters, summed over CPUs.
    pub counters: Counters,
    /// Sum of all counts, with `frameless` and `misfiled`: `ticks = filtered + idle + kept + Σ lost`.
    pub kept: u64,
    /// Waiting time by state, of the event `wait`.
    pub waited: WaitTotals,
    /// What was allocated, of events of allocations.
    pub allocated: AllocationTotals,
}

/// New stacks from the ring, by the parity of their window.
type ArrivalsByParity = Rc<RefCell<[Arrivals; 2]>>;

/// A running capture. It belongs to one thread.
pub struct Capture {
    program: BpfProgram,
    sources: Vec<Box<dyn EventSource>>,
    ring: RingBuffer<'static>,
    /// Readable when the program woke us: the ring is half full, or a stack has code that is not loaded.
    woken: OwnedFd,
    arrivals: ArrivalsByParity,
    /// Whether a program may be running.
    running: bool,
    /// Measures what the programs cost. `None` before the start, and if the kernel or a missing capability does not allow
    /// its run time statistics.
    meter: Option<RunMeter>,
}

/// What [`Capture::prepare`] opens: events, filter, kernel types.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// The events to sample.
    pub events: Vec<EventPeriod>,
    /// Which samples are wanted.
    pub filter: Filter,
    /// Where the functions of events lie: of probes of functions and markers, all places.
    pub functions: BTreeMap<Event, Vec<FunctionPlace>>,
    /// A file with the kernel's types (BTF), instead of the kernel's own.
    pub btf: Option<PathBuf>,
}

impl Capture {
    /// Loads the program and opens the events; sampling begins with [`start`](Self::start).
    ///
    /// # Errors
    /// When this host does not allow the capture.
    pub fn prepare(options: &CaptureOptions) -> anyhow::Result<Capture> {
        ensure!(options.events.iter().all(|sampled| sampled.period > 0), "a period of 0");
        let cpus = libbpf_rs::num_possible_cpus().context("number of CPUs")? as u64;
        let events = options.events.iter().map(|sampled| sampled.event).collect();
        let rate = options.events.iter().map(|sampled| rate(*sampled)).sum();
        let load = ExpectedLoad { events, rate, cpus };
        let mut program = BpfProgram::load(&options.filter, &load, options.btf.as_ref())?;
        let chosen = &options.filter.cpus;
        let none = Vec::new();
        let source = |&EventPeriod { event, period }: &EventPeriod| -> anyhow::Result<Box<dyn EventSource>> {
            Ok(match (event, event.origin()) {
                (Event::Wait, _) => Box::new(program.attach_wait(period, chosen.clone())?),
                (event, _) if event.allocates() => {
                    Box::new(program.allocations(event, period, chosen.clone())?)
                }
                (Event::Rss, _) => Box::new(program.attach_rss(period, chosen.clone())?),
                (_, Some(EventOrigin::Probe(_))) => {
                    let functions = options.functions.get(&event).unwrap_or(&none);
                    Box::new(program.attach_probe(event, period, functions, chosen.clone())?)
                }
                _ => Box::new(PerfEventSource::open(event, period, chosen.clone(), program.fd(event))?),
            })
        };
        let sources = options.events.iter().map(source).collect::<anyhow::Result<_>>()?;
        let arrivals = ArrivalsByParity::default();
        let sink = Rc::clone(&arrivals);
        let numbers = program.numbers().clone();
        let mut builder = RingBufferBuilder::new();
        builder.add(program.ring(), move |bytes| {
            if let Some(ArrivedStack { stack, parity }) = abi::parse_record(bytes, &numbers) {
                sink.borrow_mut()[(parity & 1) as usize].add(stack);
            }
            0
        })?;
        let ring = builder.build().context("ring buffer")?;
        // Edge-triggered epoll, because the ring itself is readable as soon as it has any data.
        let woken = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        let (data, at_once) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&woken, program.ring().as_fd(), data, at_once).context("ring buffer")?;
        Ok(Capture { program, sources, ring, woken, arrivals, running: false, meter: None })
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// When a source cannot start its events.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.running = true;
        self.meter = self.counted().and_then(|counted| RunMeter::start(self.runs_at_switches(), counted));
        self.sources.iter().try_for_each(|source| source.start())
    }

    /// Stops sampling. The last window is still to be taken.
    ///
    /// # Errors
    /// When a source cannot stop its events; the sources after it are then not stopped.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let mut running = false;
        for source in &self.sources {
            running |= source.stop()? == StopState::RunsPending;
        }
        self.running = running;
        Ok(())
    }

    /// Waits up to `timeout`, or until the BPF program wakes us or one of `others` is readable. Returns whether the
    /// program woke us: the ring is half full, or a stack has code that is not loaded (at most twenty times a second).
    /// Then this reads the ring.
    ///
    /// # Errors
    /// The kernel's error; an interrupting signal is not an error.
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
        // Clears the wake-up before the ring is read, so that a later one is reported again.
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(&self.woken, &mut events[..], Some(&Timespec::default()))
            .context("waiting for the ring of stacks")?;
        self.ring.consume().context("reading the ring of stacks")?;
        Ok(true)
    }

    /// Ends the current window and returns it with its final counts. `last`: the window is the last of a profile, so that
    /// it also gets samples of waits that are not over.
    ///
    /// # Errors
    /// When bpf(2) cannot change the parity or drain the counts, or the ring or an iterator cannot be read.
    pub fn take_window(&mut self, last: bool) -> anyhow::Result<Window> {
        if last && self.runs_at_switches() {
            // After the end of sampling no program may change a wait while the iterator reads it.
            self.program.wait_for_runs()?;
            self.sources.iter().try_for_each(|source| source.sample_unfinished())?;
        }
        let next_from = MonoNs::now();
        let old = self.program.flip()?;
        if self.running {
            self.program.wait_for_runs()?;
        }
        self.ring.consume().context("reading the ring of stacks")?;
        let arrived = self.arrivals.borrow_mut()[old as usize].take();
        let now = Instant::now();
        if self.meter.as_mut().is_some_and(|meter| meter.is_due(now))
            && let (Some(counted), Some(meter)) = (self.counted(), &mut self.meter)
        {
            meter.turn(counted, now);
        }
        let counts = self.program.take_counts(old)?;
        let counters = self.program.events().iter().map(|event| {
            let counters = self.program.take_counters(old, *event)?;
            Ok(WindowCounts { event: *event, counters, ..WindowCounts::default() })
        });
        let mut counted = counters.collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(of) = counted.iter_mut().find(|of| of.event == Event::Wait) {
            of.waited = self.program.take_waited(old)?;
        }
        for of in counted.iter_mut().filter(|of| of.event.allocates()) {
            of.allocated = self.program.take_allocated(old, of.event)?;
        }
        Ok(Window { next_from, ..assemble(arrived, counts, counted, self.program.numbers()) })
    }

    /// Follows CPUs that went online or offline: `online` are online now.
    pub fn follow_hotplug(&mut self, online: &[u32]) {
        self.sources.iter_mut().for_each(|source| source.follow_hotplug(online));
    }

    /// Samples an event at another period from now on. The weight of a sample is the period at its time.
    ///
    /// # Errors
    /// The kernel's error, when no CPU can be sampled at this period. Then the event is not sampled any more.
    pub fn set_period(&mut self, event: Event, period: u64) -> anyhow::Result<()> {
        ensure!(period > 0, "a period of 0");
        let mut of_it = self.sources.iter_mut().filter(|source| source.event() == event);
        of_it.try_for_each(|source| source.set_period(period))
    }

    /// The CPUs that are sampled now.
    #[must_use]
    pub fn cpus(&self) -> Vec<u32> {
        self.sources.first().map(|source| source.cpus()).unwrap_or_default()
    }

    /// What the source of each event has counted since the start.
    ///
    /// # Errors
    /// When a source cannot read its events.
    pub fn elapsed(&self) -> anyhow::Result<Vec<ExpectedSamples>> {
        self.sources.iter().map(|source| source.elapsed()).collect()
    }

    /// The cost of the BPF programs so far; with waits most of it is estimated (`RunMeter`). `None` without the kernel's
    /// statistics.
    #[must_use]
    pub fn run_stats(&self) -> Option<RunStats> {
        Some(self.meter.as_ref()?.cost(self.counted()?))
    }

    /// The cost of the BPF programs, as far as the kernel has timed their runs, and the switches at which they ran.
    fn counted(&self) -> Option<Counted> {
        let mut runs = RunStats::default();
        for program in self.program.events().iter().flat_map(|event| self.program.fds(*event)) {
            runs += stats::read(program).ok()?;
        }
        Some(Counted {
            runs,
            switches: if self.runs_at_switches() { self.program.switches().ok()? } else { 0 },
        })
    }

    fn runs_at_switches(&self) -> bool {
        self.program.events().contains(&Event::Wait)
    }

    /// The BPF program, whose filters can change while it runs.
    #[must_use]
    pub fn program(&self) -> &BpfProgram {
        &self.program
    }
}

/// The highest number of samples a second on one CPU, for the sizes of maps. Events other than time have no bound: this
/// assumes as many as a busy program causes. Samples beyond the room are lost, and the accounts show them.
fn rate(EventPeriod { event, period }: EventPeriod) -> u64 {
    const EVENTS: u64 = 10_000;
    /// Waits that have a sample: at most one for each switch.
    const WAITS: u64 = 4_000;
    /// Occurrences a second that a processor counts: its cycles.
    const CYCLES: u64 = 4_000_000_000;
    /// Bytes a second that a busy program allocates.
    const ALLOCATED: u64 = 4 << 30;
    match (event, event.origin()) {
        (Event::Cpu, _) => 1_000_000_000_u64.div_ceil(period),
        (Event::Wait, _) => WAITS,
        (event, _) if event.allocates() => ALLOCATED.div_ceil(period).min(EVENTS),
        // However many samples they are: the kernel changes its counts by many pages at a time.
        (Event::Rss, _) => EVENTS,
        (_, Some(EventOrigin::Counter(counter))) if counter.is_hardware() => {
            CYCLES.div_ceil(period).min(EVENTS)
        }
        _ => EVENTS.div_ceil(period),
    }
}

fn assemble(
    arrived: Vec<Stack>,
    counts: Vec<(abi::CountKey, abi::CountValue)>,
    events: Vec<WindowCounts>,
    numbers: &EventNumbers,
) -> Window {
    let mut by_key: HashMap<StackKey, Stack, RandomState> = HashMap::default();
    by_key.reserve(arrived.len());
    for stack in arrived {
        // Two CPUs may send the same stack; the earlier time is the safer one.
        let at = stack.at;
        let kept = by_key.entry(stack.key).or_insert(stack);
        kept.at = kept.at.min(at);
    }
    let mut window = Window { events, ..Window::default() };
    let mut misfiled = 0;
    for (key, value) in counts {
        let key = key.stack_key(numbers);
        let of = key.and_then(|key| window.events.iter_mut().find(|of| of.event == key.event));
        let (Some(key), Some(of)) = (key, of) else {
            misfiled += value.count;
            continue;
        };
        of.kept += value.count;
        match by_key.remove(&key) {
            Some(stack) => window.stacks.push(CountedStack { stack, count: value.to_count() }),
            None => of.frameless += value.count,
        }
    }
    add_misfiled(&mut window.events, misfiled);
    window
}

/// Adds counts without a known event to the events whose counters say that counts are missing.
fn add_misfiled(events: &mut [WindowCounts], mut misfiled: u64) {
    for of in &mut *events {
        let Counters { ticks, filtered, idle, lost } = of.counters;
        let found = filtered + idle + of.kept + lost.iter().sum::<u64>();
        let missing = ticks.saturating_sub(found).min(misfiled);
        of.kept += missing;
        of.misfiled += missing;
        misfiled -= missing;
    }
    // What no event misses is shown too: sums that do not match are a fault to report, and not to hide.
    if let Some(first) = events.first_mut() {
        first.kept += misfiled;
        first.misfiled += misfiled;
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes as _;

    use super::*;

    #[test]
    fn a_count_without_a_known_event_is_lost_by_the_event_that_misses_it() {
        let of = |event, ticks, filtered| {
            let counters = Counters { ticks, filtered, ..Counters::default() };
            WindowCounts { event, counters, ..WindowCounts::default() }
        };
        let events = || vec![of(Event::Cpu, 10, 10), of(Event::Wait, 12, 5)];
        let numbers = EventNumbers::of(&[Event::Cpu, Event::Wait]);
        // No event has this number, and no state either.
        let key = abi::CountKey::read_from_bytes(&[0xff; size_of::<abi::CountKey>()]).unwrap();
        let counts = |count| vec![(key, abi::CountValue::of_samples(count))];
        let split = |window: &Window| -> Vec<(u64, u64, u64)> {
            window.events.iter().map(|of| (of.misfiled, of.kept, of.frameless)).collect()
        };
        assert_eq!(split(&assemble(Vec::new(), counts(7), events(), &numbers)), [(0, 0, 0), (7, 7, 0)]);
        assert_eq!(split(&assemble(Vec::new(), counts(9), events(), &numbers)), [(2, 2, 0), (7, 7, 0)]);
    }
}
