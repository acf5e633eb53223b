//! What BPF programs cost, measured at a small cost.
//!
//! To time a run costs the kernel up to 0.1 µs, as much as some programs take that run at each context switch. So the runs of
//! such programs are timed only in one window of [`RunMeter::BLOCK`], and those of the other windows are taken to have cost as
//! much for each context switch. Chance says in which one, or a load with a period of its own would always be there.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::stats::{self, RunStats};

/// Measures what programs cost.
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

    /// Begins to time runs; `None` where the kernel cannot. `counted`: until now.
    pub(super) fn start(in_turns: bool, counted: Counted) -> Option<RunMeter> {
        Some(RunMeter::new(in_turns, stats::enable().ok()?, counted, Instant::now()))
    }

    fn new(in_turns: bool, timing: OwnedFd, counted: Counted, since: Instant) -> RunMeter {
        RunMeter {
            in_turns,
            left: 1,
            place: 0,
            timing: Some(timing),
            since,
            counted,
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

    /// A window ends at `at`. Returns whether the present state ends, too: [`RunMeter::turn`] begins the next one.
    pub(super) fn is_due(&mut self, at: Instant) -> bool {
        self.left = self.left.saturating_sub(1);
        self.in_turns && self.left == 0 && at.saturating_duration_since(self.since) >= RunMeter::SHORTEST
    }

    /// Begins to time runs, or ends it.
    pub(super) fn turn(&mut self, now: Counted, at: Instant) {
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
            self.timing = stats::enable().ok();
            self.left = 1;
        }
        (self.since, self.counted) = (at, now);
    }
}

/// A number by chance.
fn chance() -> u32 {
    RandomState::new().hash_one(()) as u32
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use super::{Counted, RunMeter, RunStats};

    fn timed(runs: u64) -> RunStats {
        RunStats { ns: 200 * runs, runs }
    }

    /// Three runs for a switch, of which so many were timed. There were 50 switches before the start.
    fn counted(runs: u64, switches: u64) -> Counted {
        Counted { runs: timed(runs), switches: 50 + switches }
    }

    fn meter(in_turns: bool, begin: Instant) -> RunMeter {
        RunMeter::new(in_turns, File::open("/dev/null").unwrap().into(), counted(0, 0), begin)
    }

    fn end_window(meter: &mut RunMeter, now: Counted, at: Instant) {
        if meter.is_due(at) {
            meter.turn(now, at);
        }
    }

    #[test]
    fn switches_that_are_not_timed_cost_as_much_as_those_of_the_last_timed_window() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut meter = meter(true, begin);
        assert_eq!(meter.cost(counted(70, 30)), timed(70));
        end_window(&mut meter, counted(300, 100), begin + second);
        assert_eq!(meter.cost(counted(300, 100)), timed(300));
        // A load that comes later counts, too.
        assert_eq!(meter.cost(counted(300, 10_100)), timed(30_300));
        // The next timed window is in the next block.
        for window in 2..RunMeter::BLOCK {
            end_window(&mut meter, counted(300, 100 * u64::from(window)), begin + window * second);
            assert!(meter.timing.is_none());
        }
        assert_eq!(meter.cost(counted(300, 800)), timed(2400));
    }

    #[test]
    fn a_short_window_says_nothing_about_the_next_ones() {
        let (begin, ms) = (Instant::now(), Duration::from_millis(1));
        let mut meter = meter(true, begin);
        end_window(&mut meter, counted(5, 1), begin + ms);
        assert!(meter.timing.is_some());
        end_window(&mut meter, counted(300, 100), begin + 1000 * ms);
        assert_eq!(meter.cost(counted(300, 200)), timed(600));
    }

    #[test]
    fn events_that_are_rare_are_timed_all_the_time() {
        let begin = Instant::now();
        let mut meter = meter(false, begin);
        for window in 1..20 {
            end_window(&mut meter, counted(window, 0), begin + Duration::from_secs(window));
            assert_eq!(meter.cost(counted(window, 0)), timed(window));
        }
    }
}
