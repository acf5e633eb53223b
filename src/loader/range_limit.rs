//! Chooses ranges for processes with more ranges of code than the BPF program can hold of one process. Ranges with
//! samples come first, then ranges with an unwind table.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::limits::{Limit, ReachedLimits};
use crate::unwind::space::MAX_RANGES;
use crate::unwind::{RangeCode, TableKey, UnwindRange};

#[derive(Debug, Default)]
pub(super) struct RangeLimit(HashMap<u32, OmittedRanges>);

#[derive(Debug, Default)]
struct OmittedRanges {
    /// Ranges that are not loaded, sorted.
    left_out: Vec<Range<u64>>,
    /// First addresses of ranges that had samples while they were left out.
    ran: BTreeSet<u64>,
}

impl RangeLimit {
    /// Removes the least useful ranges of a process, with their tables, until there is room for the others.
    pub(super) fn limit_ranges(
        &mut self,
        tgid: u32,
        ranges: &mut Vec<UnwindRange>,
        tables: &mut Vec<Option<TableKey>>,
    ) {
        let excess = ranges.len().saturating_sub(MAX_RANGES);
        if excess == 0 {
            self.0.remove(&tgid);
            return;
        }
        let process = self.0.entry(tgid).or_default();
        let there: BTreeSet<u64> = ranges.iter().map(|range| range.start).collect();
        process.ran.retain(|start| there.contains(start));
        let worth = |at: &usize| {
            let range = &ranges[*at];
            let heap = matches!(range.code, RangeCode::Heap(_));
            (heap, process.ran.contains(&range.start), tables[*at].is_some())
        };
        let mut by_worth: Vec<usize> = (0..ranges.len()).collect();
        by_worth.sort_by_key(worth);
        let out: BTreeSet<usize> = by_worth.into_iter().take(excess).collect();
        process.left_out = out.iter().map(|&at| ranges[at].start..ranges[at].end).collect();
        let mut at = 0..;
        ranges.retain(|_| at.next().is_none_or(|at| !out.contains(&at)));
        let mut at = 0..;
        tables.retain(|_| at.next().is_none_or(|at| !out.contains(&at)));
    }

    /// Notes the addresses of a stack. Returns whether code ran, for the first time, in a range that is left out.
    pub(super) fn note(&mut self, tgid: u32, stack: impl Iterator<Item = u64>) -> bool {
        let Some(OmittedRanges { left_out, ran }) = self.0.get_mut(&tgid) else { return false };
        let mut missed = false;
        for pc in stack {
            let at = left_out.partition_point(|range| range.end <= pc);
            if let Some(range) = left_out.get(at).filter(|range| range.contains(&pc)) {
                missed |= ran.insert(range.start);
            }
        }
        missed
    }

    pub(super) fn remove(&mut self, tgid: u32) {
        self.0.remove(&tgid);
    }

    /// Notes how many ranges of each process are left out.
    pub(super) fn limits(&self, reached: &mut ReachedLimits) {
        for (tgid, process) in &self.0 {
            reached.note(Limit::CodeRanges, &format!("process {tgid}"), process.left_out.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(at: u64, code: RangeCode) -> UnwindRange {
        UnwindRange { start: at * 0x1000, end: (at + 1) * 0x1000, code, table: 0 }
    }

    /// `count` ranges of files without tables, then a code heap.
    fn many(count: u64) -> (Vec<UnwindRange>, Vec<Option<TableKey>>) {
        let files = (0..count).map(|at| range(at, RangeCode::File(0)));
        let ranges: Vec<UnwindRange> = files.chain([range(count, RangeCode::Heap(0))]).collect();
        let tables = vec![None; ranges.len()];
        (ranges, tables)
    }

    #[test]
    fn a_process_of_ordinary_size_has_all() {
        let mut crowded = RangeLimit::default();
        let (mut ranges, mut tables) = many(MAX_RANGES as u64 - 1);
        crowded.limit_ranges(7, &mut ranges, &mut tables);
        assert_eq!((ranges.len(), tables.len()), (MAX_RANGES, MAX_RANGES));
        assert!(!crowded.note(7, [0x10].into_iter()));
    }

    #[test]
    fn what_runs_comes_first() {
        let mut crowded = RangeLimit::default();
        let limit_ranges = |crowded: &mut RangeLimit| {
            let (mut ranges, mut tables) = many(MAX_RANGES as u64 + 99);
            crowded.limit_ranges(7, &mut ranges, &mut tables);
            assert_eq!((ranges.len(), tables.len()), (MAX_RANGES, MAX_RANGES));
            assert!(ranges.is_sorted_by_key(|range| range.start));
            assert!(matches!(ranges.last().unwrap().code, RangeCode::Heap(_)), "the JVM's is never left out");
            ranges
        };
        let first = limit_ranges(&mut crowded);
        let left_out = range(3, RangeCode::File(0));
        assert!(!first.contains(&left_out));
        assert!(crowded.note(7, [0x500_0000, left_out.start + 1].into_iter()));
        assert!(!crowded.note(7, [left_out.start + 2].into_iter()), "it is known");
        assert!(!crowded.note(8, [left_out.start].into_iter()), "another process");
        assert!(limit_ranges(&mut crowded).contains(&left_out));
        let mut reached = ReachedLimits::default();
        crowded.limits(&mut reached);
        assert_eq!((reached.rows()[0].limit, reached.rows()[0].left_out), (Limit::CodeRanges, 100));
        crowded.remove(7);
        assert!(!crowded.note(7, [left_out.start].into_iter()));
    }
}
