//! How JVMs were kept from running, and the rows of JVMs in the report of a part.

use std::collections::{BTreeMap, HashSet};

use super::jvm::StopTimesByJvm;
use super::jvm_entries::JvmEntries;
use crate::process::Processes;
use crate::process::cgroup::CgroupMembership;
use crate::process::hierarchies::Hierarchies;
use crate::process::throttling::CpuSnapshot;
use crate::profile::report::JvmReport;
use crate::world::{PartEnd, WindowPauses, World};

/// What was measured of JVMs in parts that are not reported yet.
pub(super) struct JvmReports {
    hierarchies: Hierarchies,
    /// Whether the profile distinguishes seconds.
    keeps_seconds: bool,
    /// By the last window of the part.
    stop_times: BTreeMap<u64, StopTimesByJvm>,
    /// In the order of windows.
    window_pauses: Vec<WindowPauses>,
}

impl JvmReports {
    pub(super) fn new(keeps_seconds: bool) -> JvmReports {
        JvmReports {
            hierarchies: Hierarchies::mounted(),
            keeps_seconds,
            stop_times: BTreeMap::new(),
            window_pauses: Vec::new(),
        }
    }

    /// How the cgroup of a process was throttled until now.
    pub(super) fn throttling_until_now(&self, tgid: u32) -> CpuSnapshot {
        CgroupMembership::of(tgid).map(|of| self.hierarchies.snapshot(&of)).unwrap_or_default()
    }

    /// Begins to measure how JVMs are kept from running: what was before belongs to no part.
    pub(super) fn begin(&self, entries: &mut JvmEntries, processes: &mut Processes) {
        read_pauses(entries, 0, processes).for_each(drop);
        self.take_stop_times(entries);
    }

    /// Records how each JVM stood still in a window: in each window if the profile distinguishes seconds, and otherwise
    /// in the last window of a part for the whole part.
    pub(super) fn record_pauses(&mut self, entries: &mut JvmEntries, world: &mut World, ends_part: bool) {
        if !self.keeps_seconds && !ends_part {
            return;
        }
        let pauses: Vec<WindowPauses> = read_pauses(entries, world.window, &mut world.processes).collect();
        if let Some(new) = &mut world.new_pauses {
            new.extend(&pauses);
        }
        self.window_pauses.extend(pauses);
    }

    /// Ends the part whose last window is `window`: records how each JVM was kept from running in it. Of a JVM that has
    /// exited this is unknown, except for its pauses in earlier windows of the part.
    pub(super) fn end_part(&mut self, entries: &mut JvmEntries, window: u64) {
        let stop_times = self.take_stop_times(entries);
        self.stop_times.insert(window, stop_times);
    }

    /// How each JVM was kept from running since the last call.
    fn take_stop_times(&self, entries: &mut JvmEntries) -> StopTimesByJvm {
        entries.all_mut().map(|entry| (entry.id(), entry.measure(&self.hierarchies))).collect()
    }

    /// The report's rows of all JVMs that were attached to or ran, the busiest first.
    pub(super) fn take_rows(&mut self, entries: &JvmEntries, part: &PartEnd<'_>) -> Vec<JvmReport> {
        let later = self.stop_times.split_off(&(part.window + 1));
        let stop_times =
            std::mem::replace(&mut self.stop_times, later).remove(&part.window).unwrap_or_default();
        let mut rows: Vec<JvmReport> =
            entries.all().filter_map(|entry| entry.report(part, &stop_times)).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.samples), row.pid));
        rows
    }

    /// The pauses in the windows of a part, of the JVMs that the report has.
    pub(super) fn take_pauses(&mut self, part: &PartEnd<'_>, reported: &[JvmReport]) -> Vec<WindowPauses> {
        let pids: HashSet<u32> = reported.iter().map(|jvm| jvm.pid).collect();
        let own = self.window_pauses.extract_if(.., |pauses| pauses.window <= part.window);
        own.filter(|pauses| pids.contains(&pauses.pid)).collect()
    }
}

/// The pauses of each running JVM since the last call, for `window`.
fn read_pauses(
    entries: &mut JvmEntries,
    window: u64,
    processes: &mut Processes,
) -> impl Iterator<Item = WindowPauses> {
    entries.running.values_mut().filter_map(move |entry| entry.read_pauses(window, processes))
}
