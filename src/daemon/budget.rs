//! The budget that the daemon keeps by itself: what it may use of the host, and what it does when that is too much.

use std::collections::VecDeque;

/// CPU time is judged over so much time at least, and at most: what begins on a host costs us in bursts.
const OVER_S: f64 = 60.0;
const OVER_MOST_S: f64 = 180.0;
/// Sampling begins with all processes of the host and the names of all that they run; that is no sign of what a rate costs.
const START_S: f64 = 60.0;
/// Caches that were just given back fill again; to do it again at once would cost CPU time and gain nothing.
const EVICT_EVERY_S: f64 = 60.0;
/// No rate is lower, unless it is wanted so: what is left of the cost is that of programs that begin, not of ticks (a tick
/// takes microseconds), and a profile of fewer says little.
const LEAST_HZ: f64 = 5.0;
/// The rate goes up again by so much, when there is room for it even if all of the cost grew with it.
const STEP_UP: f64 = 1.5;
const COMFORT: f64 = 0.6;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetLimits {
    /// Own CPU time as a share of all of the host's, 0 to 1.
    pub cpu: f64,
    /// Own memory, BPF maps included, bytes.
    pub memory: u64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// A new rate, ticks a second.
    pub(super) rate: Option<f64>,
    /// Caches are to be given back.
    pub(super) evict: bool,
}

/// How the budget was used.
#[derive(Debug)]
pub(super) struct BudgetUse {
    limits: BudgetLimits,
    wanted_hz: f64,
    hz: f64,
    /// When what it costs to start is paid; unknown before the end of the first window.
    started: Option<f64>,
    /// (time, own CPU time) at the ends of the last windows, seconds.
    points: VecDeque<(f64, f64)>,
    share: f64,
    evicted: Option<f64>,
}

impl BudgetUse {
    /// `wanted_hz` is the rate unless it costs too much.
    pub(super) fn new(limits: BudgetLimits, wanted_hz: f64) -> BudgetUse {
        let (hz, points) = (wanted_hz, VecDeque::new());
        BudgetUse { limits, wanted_hz, hz, started: None, points, share: 0.0, evicted: None }
    }

    pub(super) fn hz(&self) -> f64 {
        self.hz
    }

    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Sampling starts anew.
    pub(super) fn restart(&mut self) {
        self.started = None;
        self.points.clear();
    }

    /// Judges at the end of a window: `now` and own CPU time in seconds, own memory in bytes. What a rate costs is
    /// judged only when it has been in force for long enough.
    pub(super) fn judge(&mut self, now: f64, cpu: f64, cpus: u32, memory: u64) -> Verdict {
        let started = *self.started.get_or_insert(now + START_S);
        if now >= started {
            self.points.retain(|&(at, _)| at >= started);
        }
        self.points.push_back((now, cpu));
        while self.points.len() > 2 && self.points[1].0 <= now - OVER_MOST_S {
            self.points.pop_front();
        }
        let rested = self.evicted.is_none_or(|then| now - then >= EVICT_EVERY_S);
        let evict = memory > self.limits.memory && rested;
        if evict {
            self.evicted = Some(now);
        }
        let &(then, before) = &self.points[0];
        let span = now - then;
        if span <= 0.0 {
            return Verdict { rate: None, evict };
        }
        self.share = (cpu - before) / (span * f64::from(cpus.max(1)));
        if now < started || span < OVER_S {
            return Verdict { rate: None, evict };
        }
        let next = if self.share > self.limits.cpu {
            let least = LEAST_HZ.min(self.wanted_hz);
            (self.hz * (self.limits.cpu / self.share).clamp(0.5, 0.9)).max(least)
        } else if self.share < self.limits.cpu * COMFORT {
            (self.hz * STEP_UP).min(self.wanted_hz)
        } else {
            self.hz
        };
        let rate = (next != self.hz).then_some(next);
        if rate.is_some() {
            self.hz = next;
            self.points.clear();
        }
        Verdict { rate, evict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for some minutes at a cost of so much CPU time for each tick, on two CPUs, and gives the rates.
    fn rates(cost_of_tick: f64, fixed: f64) -> Vec<f64> {
        let mut budget = BudgetUse::new(BudgetLimits { cpu: 0.005, memory: 100 }, 19.0);
        let (mut cpu, mut rates) = (0.0, Vec::new());
        for window in 0..120 {
            cpu += 10.0 * (2.0 * budget.hz() * cost_of_tick + fixed);
            budget.judge(f64::from(window) * 10.0, cpu, 2, 0);
            rates.push(budget.hz());
        }
        rates
    }

    #[test]
    fn a_rate_that_costs_too_much_is_lowered_until_it_does_not() {
        // 19 Hz would cost 0.95 % of the host.
        let rates = rates(0.0005, 0.0);
        assert_eq!(rates[1], 19.0, "a start is no sign");
        let last = rates[119];
        assert!(last * 0.0005 <= 0.005 && last > LEAST_HZ, "{rates:?}");
        let steady = &rates[60..];
        assert!(steady.iter().all(|hz| (hz - last).abs() < 3.0), "it swings: {steady:?}");
    }

    #[test]
    fn what_it_costs_to_start_lowers_no_rate() {
        let mut budget = BudgetUse::new(BudgetLimits { cpu: 0.005, memory: 100 }, 19.0);
        let mut cpu = 0.0;
        for window in 0..120 {
            if window == 60 {
                budget.restart();
            }
            // Two seconds within the first forty, and 0.3 % of the host after that.
            cpu += if window % 60 < 4 { 0.5 } else { 0.06 };
            let verdict = budget.judge(f64::from(window) * 10.0, cpu, 2, 0);
            assert_eq!((verdict.rate, budget.hz()), (None, 19.0), "window {window}");
        }
    }

    #[test]
    fn what_costs_little_keeps_its_rate_and_what_costs_too_much_at_any_keeps_the_least() {
        assert!(rates(0.00001, 0.0).iter().all(|&hz| hz == 19.0));
        assert_eq!(rates(0.0, 0.2)[119], LEAST_HZ, "that it is lower would not help");
    }

    #[test]
    fn a_burst_passes_and_the_rate_comes_back() {
        let mut budget = BudgetUse::new(BudgetLimits { cpu: 0.005, memory: 100 }, 19.0);
        let mut cpu = 0.0;
        let mut lowest = f64::MAX;
        for window in 0..200 {
            cpu += if (10..30).contains(&window) { 2.0 } else { 0.01 };
            let verdict = budget.judge(f64::from(window) * 10.0, cpu, 2, 101);
            assert_eq!(verdict.evict, window % 6 == 0, "once a minute");
            lowest = lowest.min(budget.hz());
        }
        assert_eq!((lowest, budget.hz()), (LEAST_HZ, 19.0));
    }
}
