//! Waiting time of a part: measured by state, and sampled by state, reason and rule of idleness.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capture::abi::WaitTotals;
use crate::profile::wait_report::{IdleRule, LockMethod, WaitLock, WaitReason, WaitReport, WaitState};
use crate::sample::{Count, Estimate, ThreadState};
use crate::waits::{LockView, WaitView};

#[derive(Clone, Debug, Default)]
pub(super) struct WaitTally {
    /// Measured at the ends of waits, and at the end of the part.
    pub(super) times: WaitTotals,
    /// Samples by state, with idle ones.
    states: BTreeMap<ThreadState, u64>,
    /// Waits that are not idle.
    reasons: BTreeMap<(ThreadState, Arc<str>), WaitSum>,
    idle_rules: BTreeMap<Arc<str>, u64>,
    /// Waits that are not idle, by reason and lock.
    locks: BTreeMap<(Arc<str>, LockView), WaitSum>,
    /// The same waits by the method that waited.
    lock_methods: BTreeMap<LockPlace, WaitSum>,
}

/// Where threads wait for locks of one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockPlace {
    reason: Arc<str>,
    class: Arc<str>,
    method: Arc<str>,
}

/// The waits of one row.
#[derive(Clone, Copy, Debug, Default)]
struct WaitSum {
    samples: u64,
    waits: Estimate,
    longest_ns: u64,
}

impl WaitSum {
    fn add(&mut self, count: Count) {
        self.samples += count.samples;
        self.waits += count.estimate;
        self.longest_ns = self.longest_ns.max(count.longest_ns);
    }

    /// The estimated number of waits; at least one, because a sample is one of a wait.
    fn waits(self) -> u64 {
        self.waits.rounded().max(1)
    }
}

impl WaitTally {
    pub(super) fn note(&mut self, state: ThreadState, view: &WaitView, count: Count) {
        *self.states.entry(state).or_default() += count.samples;
        if let (None, Some(lock)) = (&view.idle, &view.lock) {
            self.locks.entry((Arc::clone(&view.reason), lock.clone())).or_default().add(count);
            if let Some(method) = &view.waiting_method {
                let [reason, class, method] = [&view.reason, &lock.class, method].map(Arc::clone);
                self.lock_methods.entry(LockPlace { reason, class, method }).or_default().add(count);
            }
        }
        match &view.idle {
            Some(rule) => *self.idle_rules.entry(Arc::clone(rule)).or_default() += count.samples,
            None => self.reasons.entry((state, Arc::clone(&view.reason))).or_default().add(count),
        }
    }

    /// The rows of the report, the most frequent first.
    pub(super) fn report(&self) -> WaitReport {
        let times = ThreadState::ALL.into_iter().zip(self.times.ns);
        let states = times.filter(|(state, _)| *state != ThreadState::Running).map(|(state, ns)| {
            let samples = self.states.get(&state).copied().unwrap_or(0);
            WaitState { state, ns, samples }
        });
        let reasons = self.reasons.iter().map(|((state, reason), sum)| WaitReason {
            state: *state,
            reason: reason.to_string(),
            samples: sum.samples,
            waits: sum.waits(),
            longest_ns: sum.longest_ns,
        });
        let idle =
            self.idle_rules.iter().map(|(rule, &samples)| IdleRule { rule: rule.to_string(), samples });
        let locks = self.locks.iter().map(|((reason, lock), sum)| WaitLock {
            reason: reason.to_string(),
            class: lock.class.to_string(),
            owner: lock.owner.as_ref().map(ToString::to_string),
            samples: sum.samples,
            waits: sum.waits(),
            longest_ns: sum.longest_ns,
        });
        let lock_methods = self.lock_methods.iter().map(|(place, sum)| LockMethod {
            reason: place.reason.to_string(),
            class: place.class.to_string(),
            method: place.method.to_string(),
            samples: sum.samples,
            waits: sum.waits(),
            longest_ns: sum.longest_ns,
        });
        let mut report = WaitReport {
            states: states.collect(),
            untimed: self.times.untimed,
            reasons: reasons.collect(),
            idle: idle.collect(),
            locks: locks.collect(),
            lock_methods: lock_methods.collect(),
        };
        report.reasons.sort_by_key(|row| Reverse(row.samples));
        report.idle.sort_by_key(|row| Reverse(row.samples));
        report.locks.sort_by_key(|row| Reverse(row.samples));
        report.lock_methods.sort_by_key(|row| Reverse(row.samples));
        report
    }
}
