//! What a session gives, for all of its time or for a part of it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::profile::filter::Glob;
use crate::profile::{Profile, ProfileView, RunReport};
use crate::unwind::Usage;

/// What a session gives: for all of its time, or for a part of it.
pub struct Outcome {
    /// What ran.
    pub profile: Profile,
    /// What else the report tells; costs are those since the start.
    pub report: RunReport,
    /// How the session itself does.
    pub vitals: Vitals,
    /// When it was over, by a clock that nobody sets.
    pub ended: Instant,
}

impl Outcome {
    /// The samples of each event, in the order in which they were asked for.
    #[must_use]
    pub fn views(&self) -> Vec<ProfileView<'_>> {
        let others = self.report.others.iter().map(|of| of.event);
        std::iter::once(self.report.first.event)
            .chain(others)
            .map(|event| self.profile.of_event(event))
            .collect()
    }

    /// Leaves out samples by the names of their frames (see [`Profile::filter`]). What the report tells of
    /// the profile's stacks is told of those that are left; how walks ended and what JVMs did stays that of all.
    pub fn filter(&mut self, include: &[Glob], exclude: &[Glob]) {
        self.profile.filter(include, exclude);
        for of in std::iter::once(&mut self.report.first).chain(&mut self.report.others) {
            of.accounts = self.profile.accounts(of.event);
            of.unknown = self.profile.of_event(of.event).unknown();
        }
    }
}

/// How a session does at the end of a part.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// Memory of this process and of the workers that is resident now, bytes.
    pub resident: u64,
    /// Native addresses whose frames are kept.
    pub cached: usize,
    /// Most distinct stacks of a window, and how many there can be.
    pub most_stacks: usize,
    /// Distinct stacks that there can be in a window.
    pub room_for_stacks: u32,
    /// Unwind tables.
    pub tables: Usage,
    /// How often names of a JVM were had, or were not, by result: `agent`, `memory`, or the name of the refusal.
    pub attached: BTreeMap<String, u64>,
}
