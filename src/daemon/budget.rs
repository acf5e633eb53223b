//! The daemon's budget: limits on its CPU time and memory, and what to do when it exceeds them.

use std::collections::VecDeque;

/// The CPU share is measured over at least and at most this time: new programs on a host cost CPU time in bursts.
const MIN_MEASURED_S: f64 = 60.0;
const MAX_MEASURED_S: f64 = 180.0;
/// Sampling starts with all processes of the host and the names of all their code. The cost of this phase does not show
/// the cost of a rate.
const START_S: f64 = 60.0;
/// Evicted caches fill again. Evicting them again at once would cost CPU time without lasting effect.
const EVICT_EVERY_S: f64 = 60.0;
/// The lowest automatic rate; a lower rate is used only if the user configured it. Below it the cost comes from
/// programs that start, not from ticks (a tick takes microseconds), and a profile has too few samples.
const MIN_HZ: f64 = 5.0;
/// The rate rises by this factor when the CPU share is below `COMFORT` of the limit. The share then stays within the
/// limit even if the whole cost grows with the rate.
const STEP_UP: f64 = 1.5;
const COMFORT: f64 = 0.6;

/// What the daemon may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetLimits {
    /// Own CPU time as a share (0 to 1) of the host's CPU time.
    pub cpu: f64,
    /// Own memory in bytes, including BPF maps.
    pub memory: u64,
}

/// The decision at the end of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RateDecision {
    /// A new rate in ticks per second.
    pub(super) rate: Option<f64>,
    /// Whether to evict caches.
    pub(super) evict: bool,
}

/// The own CPU time at the end of a window, in seconds.
#[derive(Clone, Copy, Debug)]
struct CpuPoint {
    at: f64,
    cpu: f64,
}

/// The use of the budget so far.
#[derive(Debug)]
pub(super) struct BudgetUse {
    limits: BudgetLimits,
    wanted_hz: f64,
    hz: f64,
    /// When the starting phase ends; `None` before the end of the first window.
    started: Option<f64>,
    /// At the ends of the last windows, the oldest first.
    points: VecDeque<CpuPoint>,
    share: f64,
    evicted: Option<f64>,
}

impl BudgetUse {
    /// `wanted_hz` is the configured rate.
    pub(super) fn new(limits: BudgetLimits, wanted_hz: f64) -> BudgetUse {
        BudgetUse {
            limits,
            wanted_hz,
            hz: wanted_hz,
            started: None,
            points: VecDeque::new(),
            share: 0.0,
            evicted: None,
        }
    }

    /// Whether this is the use of a budget with these limits and this configured rate.
    pub(super) fn is_of(&self, limits: BudgetLimits, wanted_hz: f64) -> bool {
        (self.limits, self.wanted_hz) == (limits, wanted_hz)
    }

    pub(super) fn hz(&self) -> f64 {
        self.hz
    }

    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// A new session starts.
    pub(super) fn restart(&mut self) {
        self.started = None;
        self.points.clear();
    }

    /// Decides at the end of a window: `now` and own CPU time in seconds, own memory in bytes. A rate is judged only
    /// after it has been in force for [`MIN_MEASURED_S`].
    pub(super) fn decide_rate(&mut self, now: f64, cpu: f64, cpus: u32, memory: u64) -> RateDecision {
        let started = *self.started.get_or_insert(now + START_S);
        if now >= started {
            self.points.retain(|point| point.at >= started);
        }
        self.points.push_back(CpuPoint { at: now, cpu });
        while self.points.len() > 2 && self.points[1].at <= now - MAX_MEASURED_S {
            self.points.pop_front();
        }
        let rested = self.evicted.is_none_or(|then| now - then >= EVICT_EVERY_S);
        let evict = memory > self.limits.memory && rested;
        if evict {
            self.evicted = Some(now);
        }
        let oldest = self.points[0];
        let span = now - oldest.at;
        if span <= 0.0 {
            return RateDecision { rate: None, evict };
        }
        self.share = (cpu - oldest.cpu) / (span * f64::from(cpus.max(1)));
        if now < started || span < MIN_MEASURED_S {
            return RateDecision { rate: None, evict };
        }
        let next = if self.share > self.limits.cpu {
            let least = MIN_HZ.min(self.wanted_hz);
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
        RateDecision { rate, evict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates twenty minutes on two CPUs and returns the rate after each window. Costs: CPU seconds for each tick,
    /// and fixed CPU seconds for each second.
    fn rates(cost_of_tick: f64, fixed: f64) -> Vec<f64> {
        let mut budget = BudgetUse::new(BudgetLimits { cpu: 0.005, memory: 100 }, 19.0);
        let (mut cpu, mut rates) = (0.0, Vec::new());
        for window in 0..120 {
            cpu += 10.0 * (2.0 * budget.hz() * cost_of_tick + fixed);
            budget.decide_rate(f64::from(window) * 10.0, cpu, 2, 0);
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
        assert!(last * 0.0005 <= 0.005 && last > MIN_HZ, "{rates:?}");
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
            // Two CPU seconds within the first forty, then 0.3 % of the host.
            cpu += if window % 60 < 4 { 0.5 } else { 0.06 };
            let verdict = budget.decide_rate(f64::from(window) * 10.0, cpu, 2, 0);
            assert_eq!((verdict.rate, budget.hz()), (None, 19.0), "window {window}");
        }
    }

    #[test]
    fn what_costs_little_keeps_its_rate_and_what_costs_too_much_at_any_keeps_the_least() {
        assert!(rates(0.00001, 0.0).iter().all(|&hz| hz == 19.0));
        assert_eq!(rates(0.0, 0.2)[119], MIN_HZ, "that it is lower would not help");
    }

    #[test]
    fn a_burst_passes_and_the_rate_comes_back() {
        let mut budget = BudgetUse::new(BudgetLimits { cpu: 0.005, memory: 100 }, 19.0);
        let mut cpu = 0.0;
        let mut lowest = f64::MAX;
        for window in 0..200 {
            cpu += if (10..30).contains(&window) { 2.0 } else { 0.01 };
            let verdict = budget.decide_rate(f64::from(window) * 10.0, cpu, 2, 101);
            assert_eq!(verdict.evict, window % 6 == 0, "once a minute");
            lowest = lowest.min(budget.hz());
        }
        assert_eq!((lowest, budget.hz()), (MIN_HZ, 19.0));
    }
}
