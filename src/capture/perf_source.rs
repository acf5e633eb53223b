//! Perf events of one kind, one on each CPU. Each runs its BPF program once a period: nanoseconds of CPU time, or a
//! number of events. Events follow CPUs that go online or offline.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::Context;

use super::online::{OnlineCpuFile, among};
use super::perf_event::{self, EventReading, Liveness};
use super::source::{EventSource, ExpectedSamples, StopState};
use crate::failure::Failure;
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::unit::Expectation;
use crate::sample::{Event, MonoNs};

/// The perf events of one kind on all CPUs.
pub struct PerfEventSource {
    event: Event,
    /// The BPF program that runs at each overflow.
    program: OwnedFd,
    period: u64,
    /// Sample only these CPUs; `None`: all.
    chosen: Option<Vec<u32>>,
    events: BTreeMap<u32, CpuPerfEvent>,
    /// CPUs that are online without an open event, and since when.
    unsampled: BTreeMap<u32, MonoNs>,
    /// Expected samples of perf events that are closed, and of CPUs that were unsampled.
    closed_periods: u64,
}

struct CpuPerfEvent {
    fd: OwnedFd,
    pulse: Liveness,
}

impl PerfEventSource {
    /// Opens a stopped perf event on each CPU that is online (and chosen). `program` runs at each overflow.
    ///
    /// # Errors
    /// When an event cannot be opened, or a chosen CPU is not online: a [`Failure`] of the target.
    pub fn open(
        event: Event,
        period: u64,
        chosen: Option<Vec<u32>>,
        program: BorrowedFd<'_>,
    ) -> anyhow::Result<PerfEventSource> {
        let program = program.try_clone_to_owned().context("the BPF program")?;
        let (events, unsampled) = (BTreeMap::new(), BTreeMap::new());
        let mut all =
            PerfEventSource { event, program, period, chosen, events, unsampled, closed_periods: 0 };
        for cpu in OnlineCpuFile::open()?.chosen(all.chosen.as_deref())? {
            let opened = all.opened(cpu).map_err(|error| explained(event, cpu, error))?;
            all.events.insert(cpu, opened);
        }
        Ok(all)
    }

    /// Samples that an event with this reading should have given.
    fn expected_by(&self, reading: EventReading) -> u64 {
        match self.event.expected() {
            Expectation::Periodic => reading.unsampled_ns() / self.period,
            Expectation::OneIn => reading.count / self.period,
            Expectation::Counted => 0,
        }
    }

    /// Samples that are missing because a CPU was not sampled since `since`. Without a perf event only time is known:
    /// other events on the CPU are not counted.
    fn expected_since(&self, since: MonoNs, now: MonoNs) -> u64 {
        match self.event.expected() {
            Expectation::Periodic => now.0.saturating_sub(since.0) / self.period,
            Expectation::OneIn | Expectation::Counted => 0,
        }
    }

    /// Notes that a CPU that should be sampled has no perf event from now on.
    fn mark_unsampled(&mut self, cpu: u32, now: MonoNs, error: &io::Error) {
        let name = self.event.name();
        self.unsampled.entry(cpu).or_insert_with(|| {
            log::warn!("CPU {cpu} cannot be sampled: {error}; samples of {name} there count as missed");
            now
        });
    }

    /// Ends the unsampled time of CPUs that have an event now or went offline.
    fn resume(&mut self, which: impl Fn(u32) -> bool, now: MonoNs) {
        let resumed: Vec<MonoNs> =
            self.unsampled.extract_if(.., |cpu, _| which(*cpu)).map(|(_, since)| since).collect();
        self.closed_periods += resumed.into_iter().map(|since| self.expected_since(since, now)).sum::<u64>();
    }

    /// Adds the count of an event that is about to be closed.
    fn close(&mut self, opened: &CpuPerfEvent) {
        // Stops the event first: a sample after the reading would exceed the expected number.
        let _ = perf_event::disable(opened.fd.as_fd());
        self.closed_periods +=
            perf_event::read(opened.fd.as_fd()).map_or(0, |reading| self.expected_by(reading));
    }

    fn chosen_of(&self, online: &[u32]) -> Vec<u32> {
        among(online, self.chosen.as_deref())
    }

    fn start_on(&mut self, cpu: u32) -> io::Result<()> {
        let opened = self.opened(cpu)?;
        perf_event::enable(opened.fd.as_fd())?;
        self.events.insert(cpu, opened);
        Ok(())
    }

    /// Opens a stopped event.
    fn opened(&self, cpu: u32) -> io::Result<CpuPerfEvent> {
        let mut attr = perf_event::attributes(self.event, self.period).ok_or(io::ErrorKind::InvalidInput)?;
        let number = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        let fd = perf_event::open(&mut attr, -1, number)?;
        perf_event::set_bpf(fd.as_fd(), self.program.as_fd())?;
        Ok(CpuPerfEvent { fd, pulse: Liveness::default() })
    }
}

impl EventSource for PerfEventSource {
    fn event(&self) -> Event {
        self.event
    }

    fn period(&self) -> u64 {
        self.period
    }

    fn start(&self) -> anyhow::Result<()> {
        let mut all = self.events.values();
        all.try_for_each(|opened| perf_event::enable(opened.fd.as_fd())).context("starting the perf events")
    }

    fn stop(&self) -> anyhow::Result<StopState> {
        let mut all = self.events.values();
        all.try_for_each(|opened| perf_event::disable(opened.fd.as_fd()))
            .context("stopping the perf events")?;
        // A tick runs in a timer's interrupt, which disabling cancels on its CPU (`perf_event::disable`). Another event
        // comes from code that runs with interrupts enabled: its program may have begun.
        Ok(match self.event.expected() {
            Expectation::Periodic => StopState::Quiescent,
            Expectation::OneIn | Expectation::Counted => StopState::RunsPending,
        })
    }

    /// Opens and starts events for CPUs that came online, and closes those of CPUs that went offline. Also renews
    /// events of CPUs that went offline and came back in between, because the kernel leaves such events off. A CPU
    /// whose event cannot be opened is tried again at the next call; until then its samples are missed, and the log has
    /// the reason.
    fn follow_hotplug(&mut self, online: &[u32]) {
        let stays = |cpu: &u32, opened: &mut CpuPerfEvent| {
            online.contains(cpu) && opened.pulse.has_advanced(opened.fd.as_fd())
        };
        let gone: Vec<CpuPerfEvent> =
            self.events.extract_if(.., |cpu, opened| !stays(cpu, opened)).map(|(_, opened)| opened).collect();
        gone.iter().for_each(|opened| self.close(opened));
        let now = MonoNs::now();
        self.resume(|cpu| !online.contains(&cpu), now);
        for cpu in self.chosen_of(online) {
            if self.events.contains_key(&cpu) {
                continue;
            }
            match self.start_on(cpu) {
                Ok(()) => self.resume(|resumed| resumed == cpu, now),
                // The CPU is offline again.
                Err(error) if perf_event::is_offline(&error) => {}
                Err(error) => self.mark_unsampled(cpu, now, &error),
            }
        }
    }

    /// Closes the events and opens new ones.
    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        let cpus: Vec<u32> = self.cpus();
        for opened in std::mem::take(&mut self.events).into_values() {
            self.close(&opened);
        }
        // Missed samples until now are counted with the old period.
        let now = MonoNs::now();
        let unsampled: Vec<MonoNs> =
            self.unsampled.values_mut().map(|since| std::mem::replace(since, now)).collect();
        self.closed_periods +=
            unsampled.into_iter().map(|since| self.expected_since(since, now)).sum::<u64>();
        self.period = period;
        let mut begun = Ok(());
        for cpu in cpus {
            begun = self.start_on(cpu);
            if let Err(error) = &begun {
                // `follow_hotplug` tries this CPU again.
                self.mark_unsampled(cpu, MonoNs::now(), error);
            }
        }
        if self.events.is_empty() {
            return begun.with_context(|| format!("no perf event has a period of {period}"));
        }
        Ok(())
    }

    fn cpus(&self) -> Vec<u32> {
        self.events.keys().copied().collect()
    }

    fn elapsed(&self) -> anyhow::Result<ExpectedSamples> {
        let mut periods = self.closed_periods;
        for opened in self.events.values() {
            periods +=
                self.expected_by(perf_event::read(opened.fd.as_fd()).context("reading the perf events")?);
        }
        let now = MonoNs::now();
        periods += self.unsampled.values().map(|since| self.expected_since(*since, now)).sum::<u64>();
        Ok(ExpectedSamples { periods, missed: 0 })
    }
}

/// The error of opening an event on a CPU.
fn explained(event: Event, cpu: u32, error: io::Error) -> anyhow::Error {
    let name = event.name();
    if perf_event::is_unknown(&error) {
        let instead = match event.origin() {
            Some(EventOrigin::Counter(counter)) if counter.is_hardware() => {
                ": neither the processor nor the virtual machine counts it; use -e cpu, which samples CPU time"
            }
            _ => ": 'jbpf-prof events' lists those that it has",
        };
        return Failure::host(format!("this host has no event {name}{instead}")).into();
    }
    anyhow::Error::new(error).context(format!("perf event {name} on CPU {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_samples_of_unsampled_cpus_are_kept() {
        const AGO_NS: u64 = 10_000_000_000;
        let since = MonoNs(MonoNs::now().0.saturating_sub(AGO_NS));
        let (events, unsampled) = (BTreeMap::new(), BTreeMap::from([(1, since)]));
        let program = io::stdin().as_fd().try_clone_to_owned().unwrap();
        let (event, period, chosen) = (Event::Cpu, 10_000_000, None);
        let mut clock =
            PerfEventSource { event, program, period, chosen, events, unsampled, closed_periods: 0 };
        let owed = (MonoNs::now().0 - since.0) / clock.period;
        assert!(owed > 0 && clock.elapsed().unwrap().periods >= owed);
        clock.set_period(100_000_000).unwrap_or_default();
        assert!(clock.elapsed().unwrap().periods >= owed, "by the period of that time");
        clock.resume(|cpu| cpu == 1, MonoNs::now());
        assert!(clock.unsampled.is_empty() && clock.elapsed().unwrap().periods >= owed);
    }

    #[test]
    fn uncounted_periods_are_not_expected() {
        let (events, unsampled) = (BTreeMap::new(), BTreeMap::from([(1, MonoNs(0))]));
        let program = io::stdin().as_fd().try_clone_to_owned().unwrap();
        let (event, chosen) = (Event::PageFaults, None);
        let faults =
            PerfEventSource { event, program, period: 10, chosen, events, unsampled, closed_periods: 7 };
        assert_eq!(faults.elapsed().unwrap().periods, 7);
        assert_eq!(faults.expected_by(EventReading { count: 99, enabled_ns: u64::MAX }), 9);
    }
}
