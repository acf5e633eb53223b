//! The last seconds of a session, and the accounts since its beginning.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::profile::report::JvmReport;
use crate::profile::{Accounts, Profile, RunReport};
use crate::sample::Event;
use crate::text::clean;

/// The most seconds of a window: each has a profile of its own.
pub const MAX_SECONDS: usize = 60;
/// The most sentences of warnings that are shown.
const MAX_WARNINGS: usize = 20;
/// Characters of a warning.
const MAX_WARNING: usize = 400;

/// A second of a session.
#[derive(Debug)]
struct LiveSecond {
    profile: Profile,
    /// Its length: a second is as long as the sampler's window was.
    length_s: f64,
    jvms: Vec<JvmReport>,
    warnings: Vec<String>,
}

/// The last seconds of a session. Clones share the seconds.
#[derive(Clone, Debug)]
pub struct LiveWindow {
    most: usize,
    seconds: VecDeque<Arc<LiveSecond>>,
    totals: BTreeMap<Event, Accounts>,
    pushed: u64,
}

/// A window, summed up.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) profile: Profile,
    /// The length of the window; 0 before the first second.
    pub(super) length_s: f64,
    /// Accounts since the beginning of the session.
    pub(super) totals: BTreeMap<Event, Accounts>,
    /// JVMs of the window; their samples are those of the window.
    pub(super) jvms: Vec<JvmReport>,
    pub(super) warnings: Vec<String>,
}

impl LiveWindow {
    /// An empty window that keeps so many seconds: at least 1, at most 60.
    #[must_use]
    pub fn new(seconds: usize) -> LiveWindow {
        LiveWindow {
            most: seconds.clamp(1, MAX_SECONDS),
            seconds: VecDeque::new(),
            totals: BTreeMap::new(),
            pushed: 0,
        }
    }

    /// Adds a second, and drops the oldest one of a full window.
    pub fn push(&mut self, profile: Profile, report: RunReport) {
        for event in profile.events() {
            self.totals.entry(event).or_default().merge(&profile.accounts(event));
        }
        let RunReport { duration_s: length_s, jvms, warnings, .. } = report;
        self.seconds.push_back(Arc::new(LiveSecond { profile, length_s, jvms, warnings }));
        if self.seconds.len() > self.most {
            self.seconds.pop_front();
        }
        self.pushed += 1;
    }

    /// How many seconds were added so far.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The accounts of an event since the beginning of the session.
    #[must_use]
    pub fn totals(&self, event: Event) -> Accounts {
        self.totals.get(&event).cloned().unwrap_or_default()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot { totals: self.totals.clone(), ..Snapshot::default() };
        let mut jvms: BTreeMap<u32, JvmReport> = BTreeMap::new();
        for second in &self.seconds {
            sum.profile.merge(&second.profile);
            sum.length_s += second.length_s;
            for jvm in &second.jvms {
                let past = jvms.get(&jvm.pid);
                let (samples, java_samples) = past.map_or((0, 0), |past| (past.samples, past.java_samples));
                let (samples, java_samples) = (samples + jvm.samples, java_samples + jvm.java_samples);
                jvms.insert(jvm.pid, JvmReport { samples, java_samples, ..jvm.clone() });
            }
            for warning in second.warnings.iter().map(|text| clean(text.as_bytes(), MAX_WARNING)) {
                if sum.warnings.len() < MAX_WARNINGS && !sum.warnings.contains(&warning) {
                    sum.warnings.push(warning);
                }
            }
        }
        sum.jvms = jvms.into_values().collect();
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::LiveWindow;
    use crate::profile::report::JvmReport;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile, RunReport};
    use crate::sample::Event;

    #[test]
    fn a_window_forgets_seconds_and_no_accounts() {
        let mut window = LiveWindow::new(3);
        for second in 1..=5 {
            let mut profile = Profile::new();
            let frame = Arc::new(Frame::named(Kind::Native, format!("f{second}")));
            profile.add(&Labels::default(), &[frame], second, second * 10);
            *profile.accounts_mut(Event::Cpu) =
                Accounts { taken: second + 1, kept: second, ..Accounts::default() };
            profile.accounts_mut(Event::Cpu).lose("ring full", 1);
            let jvms = vec![JvmReport { pid: 7, samples: second, ..JvmReport::default() }];
            let warnings = vec![format!("w{}\u{1b}[2J", second / 5)];
            window.push(profile, RunReport { duration_s: 1.5, jvms, warnings, ..RunReport::default() });
        }
        let snapshot = window.snapshot();
        snapshot.profile.check().unwrap();
        assert_eq!(snapshot.profile.of_event(Event::Cpu).total().count, 3 + 4 + 5);
        assert_eq!(snapshot.profile.of_event(Event::Cpu).functions().len(), 3);
        assert_eq!((snapshot.length_s, snapshot.jvms.len(), snapshot.jvms[0].samples), (4.5, 1, 12));
        assert_eq!(snapshot.warnings, ["w0?[2J", "w1?[2J"]);
        let totals = window.totals(Event::Cpu);
        assert_eq!((totals.kept, totals.lost_total(), window.pushed()), (15, 5, 5));
    }
}
