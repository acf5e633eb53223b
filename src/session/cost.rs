//! What the run itself cost: CPU time of the broker and of its children, and memory.

use std::fs;

use super::sampler::Totals;
use crate::profile::report::Cost;
use crate::symbolize::Stats;
use crate::unwind::Usage;

/// Adds up the cost until now.
pub(super) fn cost(totals: &Totals, symbols: &Stats, tables: Usage) -> Cost {
    let (broker_s, reaped_s) = cpu_seconds();
    let worker_s = (symbols.worker.cpu + symbols.java_worker.cpu).as_secs_f64();
    Cost {
        broker_s,
        worker_s,
        // Of the children that have ended; workers that were replaced are counted as workers.
        helpers_s: reaped_s,
        bpf_s: totals.program.map(|p| std::time::Duration::from_nanos(p.ns).as_secs_f64()),
        bpf_runs: totals.program.map_or(0, |p| p.runs),
        rss_bytes: peak_rss() + symbols.worker.resident + symbols.java_worker.resident,
        maps_bytes: totals.map_bytes + tables.bytes,
    }
}

/// CPU seconds of this process, and of its children that have ended and been waited for.
fn cpu_seconds() -> (f64, f64) {
    // proc_pid_stat(5), fields 14 to 17: utime, stime, cutime, cstime; the name before them may hold anything.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().skip(11).take(4).filter_map(|f| f.parse().ok()).collect())
        .unwrap_or_default();
    let [user, system, children_user, children_system] = fields[..] else { return (0.0, 0.0) };
    #[allow(clippy::cast_precision_loss)]
    let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    (seconds(user + system), seconds(children_user + children_system))
}

/// The most memory that this process had resident, bytes.
fn peak_rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_memory() {
        assert!(super::peak_rss() > 1 << 20);
    }
}
