//! The outcome of a session, or of a part of it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::profile::filter::Glob;
use crate::profile::{Profile, ProfileView, RunReport};
use crate::unwind::Usage;
use crate::waits::WaitFilter;

/// The outcome of a session, or of a part of it.
pub struct Outcome {
    /// The stacks of this time, with their accounts.
    pub profile: Profile,
    /// The report; its costs are those since the start of the session.
    pub report: RunReport,
    /// The state of the session itself.
    pub vitals: Vitals,
    /// When the session or part ended, by the monotonic clock.
    pub ended: Instant,
}

impl Outcome {
    /// The samples of each event, in the order in which the user named the events.
    #[must_use]
    pub fn views(&self) -> Vec<ProfileView<'_>> {
        let others = self.report.others.iter().map(|of| of.event);
        std::iter::once(self.report.first.event)
            .chain(others)
            .map(|event| self.profile.of_event(event))
            .collect()
    }

    /// Removes samples by the names of their frames (see [`Profile::filter`]), and by state and reason (see
    /// [`WaitFilter::apply`]). Afterwards accounts and unknown reasons count the remaining samples only. Stop reasons,
    /// rows of JVMs and sums of waiting time still count all samples.
    pub fn filter(&mut self, include: &[Glob], exclude: &[Glob], waits: &WaitFilter) {
        self.profile.filter(include, exclude);
        waits.apply(&mut self.profile);
        for of in std::iter::once(&mut self.report.first).chain(&mut self.report.others) {
            of.accounts = self.profile.accounts(of.event);
            of.unknown = self.profile.of_event(of.event).unknown();
        }
    }
}

/// The state of a session at the end of a part.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// Resident memory of this process and of its workers now, bytes.
    pub resident: u64,
    /// Native addresses in the cache of frames.
    pub cached: usize,
    /// The highest number of distinct stacks in a window of this part.
    pub most_stacks: usize,
    /// Capacity of a window, in distinct stacks.
    pub room_for_stacks: u32,
    /// Memory and number of unwind tables.
    pub tables: Usage,
    /// How often the names of a JVM were found, by result: `agent`, `memory`, or the name of the refusal.
    pub attached: BTreeMap<String, u64>,
}
