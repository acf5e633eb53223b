//! The outcome of a session, or of a part of it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::profile::filter::Glob;
use crate::profile::{Profile, ProfileView, RunReport};
use crate::sample::TraceId;
use crate::unwind::Usage;
use crate::waits::WaitFilter;

/// The warning if `-I` leaves nothing.
const NOTHING_INCLUDED: &str = "no stack has a frame that -I names; a pattern must match the whole name of a function, and \
    Java names have dots: try -I '*NAME*', or -I 'com.shop.*'";

/// The outcome of a session, or of a part of it.
pub struct Outcome {
    /// The stacks of this time, with their accounts.
    pub profile: Profile,
    /// The report; its costs are those since the start of the session.
    pub report: RunReport,
    /// The state of the session itself.
    pub resource_use: ResourceUse,
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

    /// Removes samples by the names of their frames (see [`Profile::filter`]), by state and reason (see
    /// [`WaitFilter::apply`]), and all but those of one trace. Afterwards accounts and unknown reasons count the remaining
    /// samples only. Stop reasons, rows of JVMs and sums of waiting time and of traces still count all samples.
    pub fn filter(&mut self, include: &[Glob], exclude: &[Glob], waits: &WaitFilter, trace: Option<TraceId>) {
        let kept = |profile: &Profile| profile.views().iter().map(|view| view.accounts().kept).sum::<u64>();
        let before = kept(&self.profile);
        self.profile.filter(include, exclude);
        if !include.is_empty() && before > 0 && kept(&self.profile) == 0 {
            self.report.warnings.push(NOTHING_INCLUDED.to_owned());
        }
        waits.apply(&mut self.profile);
        trace.into_iter().for_each(|trace| self.profile.keep_trace(trace));
        for of in std::iter::once(&mut self.report.first).chain(&mut self.report.others) {
            of.accounts = self.profile.accounts(of.event);
            of.unknown = self.profile.of_event(of.event).unknown();
        }
    }
}

/// The state of a session at the end of a part.
#[derive(Clone, Debug, Default)]
pub struct ResourceUse {
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
