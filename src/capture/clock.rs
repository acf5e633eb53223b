//! The clock: one cpu-clock event a CPU, each running the BPF program at every period. CPUs that come and go are
//! followed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, bail};

use super::perf_event::{self, Pulse};
use crate::sample::MonoNs;

/// The events, by CPU.
pub struct Clock {
    period_ns: u64,
    /// Only these CPUs, if any are named.
    chosen: Option<Vec<u32>>,
    events: BTreeMap<u32, Event>,
    /// CPUs that are online and have no event, and since when that is known.
    deaf: BTreeMap<u32, MonoNs>,
    /// Periods that ended in events that are closed, and on CPUs while they were deaf.
    closed_periods: u64,
}

/// A chosen CPU that is not online.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CPU {cpu} is not online (online are {online})")]
pub struct NotOnline {
    cpu: u32,
    online: String,
}

struct Event {
    fd: OwnedFd,
    pulse: Pulse,
}

/// The sum over all events so far, and over CPUs that should have had one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Whole periods, per event: the ticks that there should have been.
    pub periods: u64,
}

impl Clock {
    /// Opens a stopped event on each CPU that is online (and chosen), with `program` at its overflow.
    ///
    /// # Errors
    /// When no event can be opened, or a chosen CPU is [`NotOnline`].
    pub fn open(period_ns: u64, chosen: Option<Vec<u32>>, program: BorrowedFd<'_>) -> anyhow::Result<Clock> {
        let (events, deaf) = (BTreeMap::new(), BTreeMap::new());
        let mut clock = Clock { period_ns, chosen, events, deaf, closed_periods: 0 };
        let online = Online::open()?.cpus()?;
        if let Some(absent) = clock.chosen.iter().flatten().find(|cpu| !online.contains(cpu)) {
            bail!(NotOnline { cpu: *absent, online: ranges(&online) });
        }
        for cpu in clock.wanted(&online) {
            let event = clock.event(cpu, program).with_context(|| format!("perf event on CPU {cpu}"))?;
            clock.events.insert(cpu, event);
        }
        Ok(clock)
    }

    /// Starts all events.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(&self) -> io::Result<()> {
        self.events.values().try_for_each(|event| perf_event::enable(event.fd.as_fd()))
    }

    /// Stops all events; afterwards no tick runs.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&self) -> io::Result<()> {
        self.events.values().try_for_each(|event| perf_event::disable(event.fd.as_fd()))
    }

    /// Opens and starts events for CPUs that came online, closes those of CPUs that went, and renews those of CPUs that
    /// went and came back in between: an event stays off when its CPU comes back. What cannot be had of a CPU now is tried
    /// again at the next call; its ticks are owed until then, and the log says why.
    pub fn follow_hotplug(&mut self, online: &[u32], program: BorrowedFd<'_>) {
        let gone: Vec<u32> = self
            .events
            .iter_mut()
            .filter_map(|(cpu, event)| {
                let stays = online.contains(cpu) && event.pulse.beats(event.fd.as_fd());
                (!stays).then_some(*cpu)
            })
            .collect();
        for cpu in gone {
            if let Some(event) = self.events.remove(&cpu) {
                self.close(&event);
            }
        }
        let now = MonoNs::now();
        self.hear(|cpu| !online.contains(&cpu), now);
        for cpu in self.wanted(online) {
            if self.events.contains_key(&cpu) {
                continue;
            }
            match self.begin(cpu, program) {
                Ok(()) => self.hear(|heard| heard == cpu, now),
                // It is gone already.
                Err(error) if perf_event::is_offline(&error) => {}
                Err(error) => self.deafen(cpu, now, &error),
            }
        }
    }

    /// Ticks at another period from now on: the events are opened anew, and started.
    ///
    /// # Errors
    /// When no CPU can tick so: what the kernel says. Nothing ticks any more then.
    pub fn set_period(&mut self, period_ns: u64, program: BorrowedFd<'_>) -> anyhow::Result<()> {
        let cpus: Vec<u32> = self.cpus().collect();
        for event in std::mem::take(&mut self.events).into_values() {
            self.close(&event);
        }
        // What was owed was so by the period until now.
        let now = MonoNs::now();
        for since in self.deaf.values_mut() {
            self.closed_periods += owed(*since, now, self.period_ns);
            *since = now;
        }
        self.period_ns = period_ns;
        let mut begun = Ok(());
        for cpu in cpus {
            begun = self.begin(cpu, program);
            if let Err(error) = &begun {
                // `follow_hotplug` looks at it again.
                self.deafen(cpu, MonoNs::now(), error);
            }
        }
        if self.events.is_empty() {
            return begun.with_context(|| format!("no perf event ticks every {period_ns} ns"));
        }
        Ok(())
    }

    /// CPUs that have an event now.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.events.keys().copied()
    }

    /// What the events themselves counted since the start, and what is owed by CPUs without one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn elapsed(&self) -> io::Result<Elapsed> {
        let mut periods = self.closed_periods;
        for event in self.events.values() {
            periods += perf_event::read(event.fd.as_fd())?.owed_ns() / self.period_ns;
        }
        let now = MonoNs::now();
        periods += self.deaf.values().map(|since| owed(*since, now, self.period_ns)).sum::<u64>();
        Ok(Elapsed { periods })
    }

    /// What a CPU does from now on is not sampled, though it should be.
    fn deafen(&mut self, cpu: u32, now: MonoNs, error: &io::Error) {
        self.deaf.entry(cpu).or_insert_with(|| {
            log::warn!("CPU {cpu} cannot be sampled: {error}; its ticks are missed until it can");
            now
        });
    }

    /// Ends it for such CPUs: they have an event now, or have gone.
    fn hear(&mut self, which: impl Fn(u32) -> bool, now: MonoNs) {
        for (_, since) in self.deaf.extract_if(.., |cpu, _| which(*cpu)) {
            self.closed_periods += owed(since, now, self.period_ns);
        }
    }

    /// Keeps what an event has counted, which is about to be closed.
    fn close(&mut self, event: &Event) {
        // Stopped first: what ticks after the reading would be more than there should have been.
        let _ = perf_event::disable(event.fd.as_fd());
        let ns = perf_event::read(event.fd.as_fd()).map_or(0, |reading| reading.owed_ns());
        self.closed_periods += ns / self.period_ns;
    }

    fn wanted(&self, online: &[u32]) -> Vec<u32> {
        online.iter().copied().filter(|cpu| self.chosen.as_ref().is_none_or(|c| c.contains(cpu))).collect()
    }

    /// Opens and starts an event.
    fn begin(&mut self, cpu: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        let event = self.event(cpu, program)?;
        perf_event::enable(event.fd.as_fd())?;
        self.events.insert(cpu, event);
        Ok(())
    }

    /// A stopped event.
    fn event(&self, cpu: u32, program: BorrowedFd<'_>) -> io::Result<Event> {
        let mut attr = perf_event::cpu_clock(self.period_ns);
        let number = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        let fd = perf_event::open(&mut attr, -1, number)?;
        perf_event::set_bpf(fd.as_fd(), program)?;
        Ok(Event { fd, pulse: Pulse::default() })
    }
}

/// Whole periods from one time to another.
fn owed(since: MonoNs, now: MonoNs, period_ns: u64) -> u64 {
    now.0.saturating_sub(since.0) / period_ns
}

/// Which CPUs are online: read again and again, also when no descriptor is left for another file.
#[derive(Debug)]
pub struct Online(File);

impl Online {
    const PATH: &str = "/sys/devices/system/cpu/online";

    /// # Errors
    /// What the kernel says.
    pub fn open() -> anyhow::Result<Online> {
        Ok(Online(File::open(Online::PATH).with_context(|| format!("CPUs: {}", Online::PATH))?))
    }

    /// Those that are online now.
    ///
    /// # Errors
    /// What the kernel says, or when it says no list.
    pub fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let path = Online::PATH;
        // No file of sysfs is larger.
        let mut page = [0; 4096];
        let length = self.0.read_at(&mut page, 0).with_context(|| format!("CPUs: {path}"))?;
        let text = String::from_utf8_lossy(&page[..length]);
        parse_ranges(text.trim()).with_context(|| format!("CPUs: {path} says {text:?}"))
    }
}

/// Reads `0-3,5`; `None` if it is not of this form.
pub(crate) fn parse_ranges(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn ranges(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cpu_owes_that_cannot_be_sampled_stays_owed() {
        const AGO_NS: u64 = 10_000_000_000;
        let since = MonoNs(MonoNs::now().0.saturating_sub(AGO_NS));
        let (events, deaf) = (BTreeMap::new(), BTreeMap::from([(1, since)]));
        let mut clock = Clock { period_ns: 10_000_000, chosen: None, events, deaf, closed_periods: 0 };
        let owed = (MonoNs::now().0 - since.0) / clock.period_ns;
        assert!(owed > 0 && clock.elapsed().unwrap().periods >= owed);
        clock.set_period(100_000_000, io::stdin().as_fd()).unwrap();
        assert!(clock.elapsed().unwrap().periods >= owed, "by the period of that time");
        clock.hear(|cpu| cpu == 1, MonoNs::now());
        assert!(clock.deaf.is_empty() && clock.elapsed().unwrap().periods >= owed);
    }

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_ranges("0"), Some(vec![0]));
        assert_eq!(parse_ranges("0-3,5"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(parse_ranges(""), Some(vec![]));
        assert_eq!(parse_ranges("0-4000000000"), None);
        assert_eq!(parse_ranges("a"), None);
    }
}
