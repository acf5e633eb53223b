//! The cost of the session itself: CPU time of the broker and of its children, and memory.

use std::fs;
use std::time::{Duration, Instant};

use super::batch::SessionTotals;
use crate::capture::RunStats;
use crate::process::opener::OpenersCost;
use crate::process::procfs;
use crate::profile::report::{Cost, Steady};
use crate::symbolize::Stats;
use crate::unwind::Usage;
use crate::world::ChildStats;

/// After this time caches are full and the names of most programs are known.
const WARM_UP: Duration = Duration::from_secs(10);

/// The whole cost until now.
pub(super) fn cost(totals: &SessionTotals, symbols: &Stats, openers: OpenersCost, tables: Usage) -> Cost {
    Cost {
        rss_bytes: peak_rss() + resident_of_children(symbols, openers),
        maps_bytes: totals.map_bytes + tables.bytes,
        ..times(totals.program, symbols, openers)
    }
}

/// CPU time until now.
fn times(program: Option<RunStats>, symbols: &Stats, openers: OpenersCost) -> Cost {
    let CpuSeconds { own: broker_s, children: reaped_s } = cpu_seconds();
    let worker_s = (symbols.worker.cpu + symbols.java_worker.cpu).as_secs_f64();
    // Children that have ended, without symbol workers that were replaced: those are in `worker_s`.
    let ended_s = (reaped_s - (symbols.worker.past + symbols.java_worker.past).as_secs_f64()).max(0.0);
    Cost {
        broker_s,
        worker_s,
        helpers_s: ended_s + openers.cpu.as_secs_f64(),
        bpf_s: program.map(|p| Duration::from_nanos(p.ns).as_secs_f64()),
        bpf_runs: program.map_or(0, |p| p.runs),
        ..Cost::default()
    }
}

/// Measures the cost of the steady state, while nothing begins or ends.
pub(super) struct SteadyMeter {
    begun: Instant,
    first: Option<SpentCpu>,
    last: Option<SpentCpu>,
}

/// The own CPU time at one time.
#[derive(Clone, Copy)]
struct SpentCpu {
    at: Instant,
    cpu_s: f64,
}

impl SteadyMeter {
    pub(super) fn begin() -> SteadyMeter {
        SteadyMeter { begun: Instant::now(), first: None, last: None }
    }

    /// A window has come. `busy`: a stage is still beginning with a process. `last`: the window ends a part.
    pub(super) fn observe(
        &mut self,
        busy: bool,
        last: bool,
        program: Option<RunStats>,
        children: impl FnOnce() -> ChildStats,
    ) {
        let begins = self.first.is_none() && !busy && self.begun.elapsed() >= WARM_UP;
        if begins || (last && self.first.is_some()) {
            let ChildStats { symbols, openers } = children();
            let at = Instant::now();
            let spent = Some(SpentCpu { at, cpu_s: times(program, &symbols, openers).cpu_s() });
            self.last = spent;
            self.first = self.first.or(spent);
        }
    }

    /// The cost in the steady state, if it lasted at least a second.
    pub(super) fn steady(&self) -> Option<Steady> {
        let (first, last) = self.first.zip(self.last)?;
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        let after_s = first.at.saturating_duration_since(self.begun).as_secs_f64();
        (seconds >= 1.0).then_some(Steady { seconds, cpu_s: last.cpu_s - first.cpu_s, after_s })
    }
}

/// CPU seconds of this process, and of its children that have ended and were waited for.
struct CpuSeconds {
    own: f64,
    children: f64,
}

fn cpu_seconds() -> CpuSeconds {
    let stat = procfs::stat(std::process::id()).unwrap_or_default();
    let seconds = |ticks| procfs::clock_ticks(ticks).as_secs_f64();
    CpuSeconds { own: seconds(stat.cpu_ticks), children: seconds(stat.children_cpu_ticks) }
}

/// The highest resident memory of this process, bytes.
fn peak_rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Resident memory of this process and its children now, bytes.
pub(super) fn resident(symbols: &Stats, openers: OpenersCost) -> u64 {
    procfs::resident(std::process::id()) + resident_of_children(symbols, openers)
}

fn resident_of_children(symbols: &Stats, openers: OpenersCost) -> u64 {
    symbols.worker.resident + symbols.java_worker.resident + openers.resident
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let (symbols, openers) = (Stats::default(), OpenersCost::default());
        assert!(resident(&symbols, openers) > 1 << 20 && peak_rss() > 1 << 20);
    }
}
