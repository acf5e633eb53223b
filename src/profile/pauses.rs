//! How often and how long JVMs stood still: in all, and by the second.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How often and how long a JVM stood still in one second of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseMark {
    /// Process id of the JVM.
    pub pid: u32,
    /// Number of the second since the begin of the profile; 0 in a profile that does not distinguish seconds.
    pub second: u16,
    /// The pauses in this second.
    pub totals: PauseTotals,
}

/// How often and how long a JVM stood still, as the JVM counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseTotals {
    /// Safepoints: times at which all Java threads stood still.
    pub safepoints: u64,
    /// Time until all threads stood still and in which they did, microseconds.
    pub safepoint_usec: u64,
    /// Garbage collections; of collectors that run beside the program, each of their pauses.
    pub collections: u64,
    /// Time of the collections, microseconds.
    pub collection_usec: u64,
}

impl PauseTotals {
    /// The sum of two times.
    #[must_use]
    pub fn plus(self, other: PauseTotals) -> PauseTotals {
        PauseTotals {
            safepoints: self.safepoints.saturating_add(other.safepoints),
            safepoint_usec: self.safepoint_usec.saturating_add(other.safepoint_usec),
            collections: self.collections.saturating_add(other.collections),
            collection_usec: self.collection_usec.saturating_add(other.collection_usec),
        }
    }
}

/// The pauses of the JVMs of a profile, by process and second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JvmPauses(BTreeMap<PausePlace, PauseTotals>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PausePlace {
    pid: u32,
    second: u16,
}

impl JvmPauses {
    /// Adds pauses to those of the same process and second.
    pub fn add(&mut self, PauseMark { pid, second, totals }: PauseMark) {
        if totals != PauseTotals::default() {
            let sum = self.0.entry(PausePlace { pid, second }).or_default();
            *sum = sum.plus(totals);
        }
    }

    /// Adds all pauses of another profile, which began `later` seconds later.
    pub fn add_later(&mut self, other: &JvmPauses, later: u16) {
        for mark in other.marks() {
            self.add(PauseMark { second: mark.second.saturating_add(later), ..mark });
        }
    }

    /// The pauses of each second, by process and then by second. No mark is empty.
    pub fn marks(&self) -> impl Iterator<Item = PauseMark> {
        self.0.iter().map(|(&PausePlace { pid, second }, &totals)| PauseMark { pid, second, totals })
    }

    /// The sums of each process over all seconds.
    #[must_use]
    pub fn by_process(&self) -> BTreeMap<u32, PauseTotals> {
        let mut sums: BTreeMap<u32, PauseTotals> = BTreeMap::new();
        for PauseMark { pid, totals, .. } in self.marks() {
            let sum = sums.entry(pid).or_default();
            *sum = sum.plus(totals);
        }
        sums
    }

    /// Keeps only the pauses of processes for which `keep` is true.
    pub fn keep(&mut self, keep: impl Fn(u32) -> bool) {
        self.0.retain(|place, _| keep(place.pid));
    }

    /// Whether no JVM stood still.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<PauseMark> for JvmPauses {
    fn from_iter<I: IntoIterator<Item = PauseMark>>(marks: I) -> JvmPauses {
        let mut pauses = JvmPauses::default();
        marks.into_iter().for_each(|mark| pauses.add(mark));
        pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(pid: u32, second: u16, safepoints: u64) -> PauseMark {
        let totals = PauseTotals { safepoints, safepoint_usec: 100 * safepoints, ..PauseTotals::default() };
        PauseMark { pid, second, totals }
    }

    #[test]
    fn pauses_of_one_process_and_second_are_one_mark() {
        let mut pauses: JvmPauses =
            [mark(7, 2, 1), mark(3, 0, 5), mark(7, 2, 2), mark(7, 1, 0)].into_iter().collect();
        assert_eq!(pauses.marks().collect::<Vec<_>>(), [mark(3, 0, 5), mark(7, 2, 3)]);
        pauses.add_later(&pauses.clone(), 2);
        pauses.add_later(&[mark(7, u16::MAX, 9)].into_iter().collect(), 2);
        let all = [mark(3, 0, 5), mark(3, 2, 5), mark(7, 2, 3), mark(7, 4, 3), mark(7, u16::MAX, 9)];
        assert_eq!(pauses.marks().collect::<Vec<_>>(), all);
        let sums: Vec<_> = pauses.by_process().into_iter().collect();
        assert_eq!(sums, [(3, mark(3, 0, 10).totals), (7, mark(7, 0, 15).totals)]);
        pauses.keep(|pid| pid == 3);
        assert_eq!(pauses.marks().count(), 2);
        pauses.keep(|pid| pid == 7);
        assert!(pauses.is_empty());
    }
}
