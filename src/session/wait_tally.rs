//! Waiting time of a part: measured by state, and sampled by state, reason and rule of idleness.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capture::abi::Waited;
use crate::profile::wait_report::{IdleRule, WaitLock, WaitReason, WaitReport, WaitState};
use crate::sample::ThreadState;
use crate::waits::{LockView, WaitView};

#[derive(Clone, Debug, Default)]
pub(super) struct WaitTally {
    /// Measured at the ends of waits, and at the end of the part.
    pub(super) times: Waited,
    /// Samples by state, with idle ones.
    states: BTreeMap<ThreadState, u64>,
    /// Samples that are not idle.
    reasons: BTreeMap<(ThreadState, Arc<str>), u64>,
    idle_rules: BTreeMap<Arc<str>, u64>,
    /// Samples that are not idle, by reason and lock.
    locks: BTreeMap<(Arc<str>, LockView), u64>,
}

impl WaitTally {
    pub(super) fn note(&mut self, state: ThreadState, view: &WaitView, samples: u64) {
        *self.states.entry(state).or_default() += samples;
        if let (None, Some(lock)) = (&view.idle, &view.lock) {
            *self.locks.entry((Arc::clone(&view.reason), lock.clone())).or_default() += samples;
        }
        *match &view.idle {
            Some(rule) => self.idle_rules.entry(Arc::clone(rule)).or_default(),
            None => self.reasons.entry((state, Arc::clone(&view.reason))).or_default(),
        } += samples;
    }

    /// The rows of the report, the most frequent first.
    pub(super) fn report(&self) -> WaitReport {
        let times = ThreadState::ALL.into_iter().zip(self.times.ns);
        let states = times.filter(|(state, _)| *state != ThreadState::Running).map(|(state, ns)| {
            let samples = self.states.get(&state).copied().unwrap_or(0);
            WaitState { state, ns, samples }
        });
        let reasons = self.reasons.iter().map(|((state, reason), &samples)| WaitReason {
            state: *state,
            reason: reason.to_string(),
            samples,
        });
        let idle =
            self.idle_rules.iter().map(|(rule, &samples)| IdleRule { rule: rule.to_string(), samples });
        let locks = self.locks.iter().map(|((reason, lock), &samples)| WaitLock {
            reason: reason.to_string(),
            class: lock.class.to_string(),
            owner: lock.owner.as_ref().map(ToString::to_string),
            samples,
        });
        let mut report = WaitReport {
            states: states.collect(),
            untimed: self.times.untimed,
            reasons: reasons.collect(),
            idle: idle.collect(),
            locks: locks.collect(),
        };
        report.reasons.sort_by_key(|row| Reverse(row.samples));
        report.idle.sort_by_key(|row| Reverse(row.samples));
        report.locks.sort_by_key(|row| Reverse(row.samples));
        report
    }
}
