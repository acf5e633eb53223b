//! What the kernel counts of a BPF program: its run time, and how often it was skipped. `unsafe` is allowed here because libbpf-rs 0.27
//! has no call for one program's counters.
#![allow(unsafe_code)]

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Run time of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Run time in nanoseconds.
    pub ns: u64,
    /// Number of runs.
    pub runs: u64,
}

impl RunStats {
    fn scale(self, by: f64) -> RunStats {
        let scale = |n: u64| (n as f64 * by) as u64;
        RunStats { ns: scale(self.ns), runs: scale(self.runs) }
    }

    /// What was added since `before`.
    fn since(self, before: RunStats) -> RunStats {
        RunStats { ns: self.ns.saturating_sub(before.ns), runs: self.runs.saturating_sub(before.runs) }
    }
}

impl std::ops::AddAssign for RunStats {
    fn add_assign(&mut self, other: RunStats) {
        self.ns += other.ns;
        self.runs += other.runs;
    }
}

/// Measures what programs cost. To time a run costs the kernel up to 0.1 µs, as much as some programs take that run at each
/// context switch. So the runs of such programs are timed only in one window of [`RunMeter::BLOCK`], and those of the other
/// windows are taken to have cost as much for each context switch. Chance says in which one, or a load with a period of its own would always be there.
#[derive(Debug)]
pub(super) struct RunMeter {
    /// Whether runs are timed in some windows only.
    in_turns: bool,
    /// How many windows end before the present state does.
    left: u32,
    /// The place of the last timed window in its block.
    place: u32,
    /// The kernel times the runs while this is open.
    timing: Option<OwnedFd>,
    /// When the present state began, and what was counted then.
    since: Instant,
    counted: Counted,
    /// What was measured or estimated before.
    total: RunStats,
    /// The last timed part.
    last: Counted,
}

/// What the kernel and the programs have counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Runs that were timed.
    pub(super) runs: RunStats,
    /// Context switches; 0 if the programs do not run at switches.
    pub(super) switches: u64,
}

impl RunMeter {
    /// Windows of which one is timed.
    const BLOCK: u32 = 8;
    /// A window is shorter if the one before took too long to read. Then the next one is timed, too.
    const SHORTEST: Duration = Duration::from_millis(500);

    /// Begins to time runs; `None` where the kernel cannot.
    pub(super) fn start(in_turns: bool) -> Option<RunMeter> {
        Some(RunMeter::new(in_turns, enable().ok()?, Instant::now()))
    }

    fn new(in_turns: bool, timing: OwnedFd, since: Instant) -> RunMeter {
        RunMeter {
            in_turns,
            left: 1,
            place: 0,
            timing: Some(timing),
            since,
            counted: Counted::default(),
            total: RunStats::default(),
            last: Counted::default(),
        }
    }

    /// The cost up to now.
    pub(super) fn cost(&self, now: Counted) -> RunStats {
        let mut cost = self.total;
        cost += self.present(now);
        cost
    }

    /// The cost of the present state.
    fn present(&self, now: Counted) -> RunStats {
        if self.timing.is_some() {
            return now.runs.since(self.counted.runs);
        }
        let switches = now.switches.saturating_sub(self.counted.switches);
        self.last.runs.scale(switches as f64 / self.last.switches.max(1) as f64)
    }

    /// A window ends at `at`.
    pub(super) fn on_window(&mut self, now: Counted, at: Instant) {
        self.left = self.left.saturating_sub(1);
        if !self.in_turns || self.left > 0 || at.saturating_duration_since(self.since) < RunMeter::SHORTEST {
            return;
        }
        let runs = self.present(now);
        self.total += runs;
        if self.timing.take().is_some() {
            self.last = Counted { runs, switches: now.switches.saturating_sub(self.counted.switches) };
            let next = chance() % RunMeter::BLOCK;
            self.left = RunMeter::BLOCK - 1 - self.place + next;
            self.place = next;
        }
        if self.left == 0 {
            // If the kernel refuses, the estimate goes on.
            self.timing = enable().ok();
            self.left = 1;
        }
        (self.since, self.counted) = (at, now);
    }
}

/// A number by chance.
fn chance() -> u32 {
    RandomState::new().hash_one(()) as u32
}

/// Enables the kernel's run time statistics of BPF programs until the descriptor is closed.
///
/// # Errors
/// `EINVAL` before 5.8, `EPERM` without `CAP_SYS_ADMIN`.
fn enable() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and returns a descriptor.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads a program's run time.
///
/// # Errors
/// When bpf(2) refuses `BPF_OBJ_GET_INFO_BY_FD`.
pub(super) fn read(program: BorrowedFd<'_>) -> io::Result<RunStats> {
    let info = info(program)?;
    Ok(RunStats { ns: info.run_time_ns, runs: info.run_cnt })
}

/// How often the kernel skipped a program, because the program or another one ran on the CPU already. 0 where the kernel
/// does not count that: before 6.1 for raw tracepoints, where it skips none, and before 6.7 for kprobes.
///
/// # Errors
/// When bpf(2) refuses `BPF_OBJ_GET_INFO_BY_FD`.
pub(super) fn skipped(program: BorrowedFd<'_>) -> io::Result<u64> {
    info(program).map(|info| info.recursion_misses)
}

fn info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is `len` bytes and lives through the call; all its pointers are null, so nothing else is written.
    let rc = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) };
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(-rc));
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use super::{Counted, RunMeter, RunStats};

    fn timed(runs: u64) -> RunStats {
        RunStats { ns: 200 * runs, runs }
    }

    /// Three runs for a switch, of which so many were timed.
    fn counted(runs: u64, switches: u64) -> Counted {
        Counted { runs: timed(runs), switches }
    }

    fn meter(in_turns: bool, begin: Instant) -> RunMeter {
        RunMeter::new(in_turns, File::open("/dev/null").unwrap().into(), begin)
    }

    #[test]
    fn switches_that_are_not_timed_cost_as_much_as_those_of_the_last_timed_window() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut meter = meter(true, begin);
        assert_eq!(meter.cost(counted(70, 30)), timed(70));
        meter.on_window(counted(300, 100), begin + second);
        assert_eq!(meter.cost(counted(300, 100)), timed(300));
        // A load that comes later counts, too.
        assert_eq!(meter.cost(counted(300, 10_100)), timed(30_300));
        // The next timed window is in the next block.
        for window in 2..RunMeter::BLOCK {
            meter.on_window(counted(300, 100 * u64::from(window)), begin + window * second);
            assert!(meter.timing.is_none());
        }
        assert_eq!(meter.cost(counted(300, 800)), timed(2400));
    }

    #[test]
    fn a_short_window_says_nothing_about_the_next_ones() {
        let (begin, ms) = (Instant::now(), Duration::from_millis(1));
        let mut meter = meter(true, begin);
        meter.on_window(counted(5, 1), begin + ms);
        assert!(meter.timing.is_some());
        meter.on_window(counted(300, 100), begin + 1000 * ms);
        assert_eq!(meter.cost(counted(300, 200)), timed(600));
    }

    #[test]
    fn events_that_are_rare_are_timed_all_the_time() {
        let begin = Instant::now();
        let mut meter = meter(false, begin);
        for window in 1..20 {
            meter.on_window(counted(window, 0), begin + Duration::from_secs(window));
            assert_eq!(meter.cost(counted(window, 0)), timed(window));
        }
    }
}
