//! The source of waiting time: BPF programs at context switches and wakeups, and an iterator over the waits that are
//! not over.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};

use anyhow::{Context, ensure};
use libbpf_rs::{Iter, Link, MapCore as _, MapFlags, MapHandle};
use zerocopy::IntoBytes as _;

use super::controls::WaitControl;
use super::online::SampledCpus;
use super::source::{EventSource, ExpectedSamples, StopState};
use crate::sample::{Event, MonoNs};

/// The least and the greatest number of threads whose waits can be measured at a time.
const THREADS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 18;
/// The longest period in nanoseconds; `bpf/marks.h` multiplies it by 32 bits.
pub const MAX_PERIOD: u64 = u32::MAX as u64;

/// Where the kernel runs a program after a context switch, in the thread that has the CPU again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchHook {
    /// The tracepoint `sched_exit_tp` (Linux 6.15).
    SchedExit,
    /// A kprobe on this function.
    FinishSwitch(String),
}

/// Why the waits of threads cannot be sampled on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSwitchHook {
    /// The kernel has neither the tracepoint nor kprobes.
    #[error("this kernel has neither the tracepoint sched_exit_tp (Linux 6.15) nor kprobes (CONFIG_KPROBES)")]
    Neither,
    /// The kernel has no function of the expected names.
    #[error("this kernel has no function finish_task_switch for a kprobe, and no tracepoint sched_exit_tp")]
    NoFunction,
    /// `/proc/kallsyms` cannot be read.
    #[error("/proc/kallsyms cannot be read")]
    NoSymbols,
}

impl SwitchHook {
    /// Finds the hook of this kernel.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find() -> Result<SwitchHook, NoSwitchHook> {
        let symbols = fs::File::open("/proc/kallsyms").map_err(|_| NoSwitchHook::NoSymbols)?;
        let has_kprobes = fs::exists("/sys/bus/event_source/devices/kprobe/type").unwrap_or(false);
        SwitchHook::choose(BufReader::with_capacity(1 << 16, symbols), has_kprobes)
    }

    fn choose(symbols: impl BufRead, has_kprobes: bool) -> Result<SwitchHook, NoSwitchHook> {
        let mut function = None;
        for line in symbols.lines() {
            let line = line.map_err(|_| NoSwitchHook::NoSymbols)?;
            match line.split_ascii_whitespace().nth(2) {
                Some("__traceiter_sched_exit_tp") => return Ok(SwitchHook::SchedExit),
                Some(name) if is_finish_switch(name) => function = Some(name.to_owned()),
                _ => {}
            }
        }
        match function {
            _ if !has_kprobes => Err(NoSwitchHook::Neither),
            Some(name) => Ok(SwitchHook::FinishSwitch(name)),
            None => Err(NoSwitchHook::NoFunction),
        }
    }
}

/// Whether this is the function that ends a context switch: the compiler adds `.isra.0` where it removed a parameter,
/// and has rare code in a function `….cold`.
fn is_finish_switch(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("finish_task_switch") else { return false };
    let number = rest.strip_prefix(".isra.");
    rest.is_empty() || number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The number of threads on this host now; 0 if it is not known.
pub(super) fn threads() -> u64 {
    fs::read_to_string("/proc/loadavg").ok().and_then(|text| threads_in(&text)).unwrap_or(0)
}

/// How many threads `thread_waits` has room for.
pub(super) fn room_for_threads() -> u32 {
    u32::try_from((2 * threads()).next_power_of_two().clamp(*THREADS.start(), *THREADS.end()))
        .unwrap_or(u32::MAX)
}

/// The number of threads in `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn threads_in(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The programs that measure and sample waits.
pub struct WaitSource {
    control: MapHandle,
    /// Attached programs. They do nothing until `start`.
    _attached: Vec<Link>,
    /// The iterator over waits that are not over.
    unfinished: Link,
    times: std::cell::Cell<WaitControl>,
    cpus: SampledCpus,
}

impl WaitSource {
    pub(super) fn new(
        control: MapHandle,
        attached: Vec<Link>,
        unfinished: Link,
        period: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<WaitSource> {
        ensure!((1..=MAX_PERIOD).contains(&period), "a period of {period} ns of waiting time");
        let times = WaitControl { period, ..WaitControl::default() };
        let cpus = SampledCpus::open(chosen)?;
        Ok(WaitSource { control, _attached: attached, unfinished, times: times.into(), cpus })
    }

    fn publish(&self, times: WaitControl) -> anyhow::Result<()> {
        self.control
            .update(&0u32.to_ne_bytes(), times.as_bytes(), MapFlags::ANY)
            .context("times of waits")?;
        self.times.set(times);
        Ok(())
    }

    fn read_iterator(&self) -> anyhow::Result<()> {
        let mut iterator = Iter::new(&self.unfinished).context("the iterator of waits")?;
        let mut nothing = Vec::new();
        iterator.read_to_end(&mut nothing).context("reading the iterator of waits")?;
        Ok(())
    }
}

impl EventSource for WaitSource {
    fn event(&self) -> Event {
        Event::Wait
    }

    fn period(&self) -> u64 {
        self.times.get().period
    }

    fn start(&self) -> anyhow::Result<()> {
        let begun = WaitControl { begin: MonoNs::now().0, ..self.times.get() };
        self.publish(WaitControl { noting: 1, ..begun })?;
        self.read_iterator()?;
        self.publish(begun)
    }

    fn stop(&self) -> anyhow::Result<StopState> {
        // A second call, after a failure, must not move the end.
        if self.times.get().end == 0 {
            self.publish(WaitControl { end: MonoNs::now().0, ..self.times.get() })?;
        }
        Ok(StopState::RunsPending)
    }

    fn sample_unfinished(&self) -> anyhow::Result<()> {
        self.read_iterator()
    }

    fn follow_hotplug(&mut self, online: &[u32]) {
        self.cpus.follow(online);
    }

    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        ensure!((1..=MAX_PERIOD).contains(&period), "a period of {period} ns of waiting time");
        self.publish(WaitControl { period, ..self.times.get() })
    }

    fn cpus(&self) -> Vec<u32> {
        self.cpus.now()
    }

    fn elapsed(&self) -> anyhow::Result<ExpectedSamples> {
        // Threads wait or do not: only the programs know how many samples there should be.
        Ok(ExpectedSamples::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_is_what_the_kernel_has() {
        let old = "0000000000000000 T schedule\n0000000000000000 t finish_task_switch.isra.0\n\
                   0000000000000000 t finish_task_switch.isra.0.cold\n";
        let plain = "0000000000000000 t finish_task_switch\n0000000000000000 t finish_task_switchX\n";
        let new = format!("{old}0000000000000000 T __traceiter_sched_exit_tp\n");
        let find = |symbols: &str, kprobes| SwitchHook::choose(symbols.as_bytes(), kprobes);
        let function = |name: &str| Ok(SwitchHook::FinishSwitch(name.to_owned()));
        assert_eq!(find(&new, false), Ok(SwitchHook::SchedExit));
        assert_eq!(find(old, true), function("finish_task_switch.isra.0"));
        assert_eq!(find(plain, true), function("finish_task_switch"));
        assert_eq!(find(old, false), Err(NoSwitchHook::Neither));
        assert_eq!(find("", true), Err(NoSwitchHook::NoFunction));
    }

    #[test]
    fn there_is_room_for_twice_the_threads() {
        assert_eq!(threads_in("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(threads_in(""), None);
        assert!(THREADS.contains(&u64::from(room_for_threads())));
    }
}
