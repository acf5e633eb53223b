//! How long a JVM stood still in each part of a session, by its own counters.

use std::ops::Range;

use crate::jvm::pauses::{MAX_BYTES, PauseCounters, is_counters};
use crate::process::{Processes, procfs};
use crate::profile::pauses::PauseTotals;

/// How often a JVM is searched for its counters: a JVM that has just begun has not mapped them yet.
const MAX_SEARCHES: u8 = 3;

/// The counters of one JVM.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Where they lie in the memory of the process.
    place: Option<Range<u64>>,
    searches: u8,
    last: Option<PauseCounters>,
    /// The pauses since the part of the session began; `None` if no reading in it has found any counters.
    part: Option<PauseTotals>,
}

impl Pauses {
    /// The counters of a JVM. `is_new`: it began during the run, and all its pauses are in the run.
    pub(super) fn new(is_new: bool) -> Pauses {
        Pauses { last: is_new.then(PauseCounters::default), ..Pauses::default() }
    }

    /// Ends a part: the pauses of all readings within it. `None` without such a reading, or if the JVM has no counters.
    pub(super) fn end_part(&mut self) -> Option<PauseTotals> {
        self.part.take()
    }

    /// The pauses since the last reading. `None` at the first reading, or if the JVM has no counters or has ended.
    pub(super) fn read(&mut self, tgid: u32, processes: &mut Processes) -> Option<PauseTotals> {
        if self.place.is_none() {
            if self.searches >= MAX_SEARCHES {
                return None;
            }
            self.searches += 1;
        }
        let known = self.place.clone();
        let read = processes.look_at_memory(tgid, move |memory| {
            let place = known.or_else(|| {
                let ns_pid = procfs::status(&format!("/proc/{tgid}/status"))?.ns_pid;
                memory.mapped_at(|path| is_counters(path, ns_pid))
            })?;
            let range = place.start..place.end.min(place.start.saturating_add(MAX_BYTES));
            Some((place, PauseCounters::parse(&memory.bytes(&range)).ok()?))
        });
        let (place, now) = read.flatten()?;
        self.place = Some(place);
        let PauseCounters { safepoints, safepoint_ns, collections, collection_ns } =
            now.since(&self.last.replace(now)?);
        let usec = |ns: u64| ns / 1000;
        let pauses = PauseTotals {
            safepoints,
            safepoint_usec: usec(safepoint_ns),
            collections,
            collection_usec: usec(collection_ns),
        };
        self.part = Some(self.part.unwrap_or_default().plus(pauses));
        Some(pauses)
    }
}
