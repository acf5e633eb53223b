//! Where and when the code of a JVM changed.

use std::collections::HashMap;
use std::ops::Range;

use ahash::RandomState;

use super::message::Changed;

/// Size of the pages for which changes are recorded, as a power of two.
const PAGE_BITS: u32 = 12;
/// Pages with changes that are kept for one JVM: 1 GiB of code. Beyond that, all code counts as changed.
const MAX_PAGES: usize = 256 << 10;

/// When the code of one JVM last changed. Time is counted in readings of its log or memory that reported changes.
#[derive(Debug, Default)]
pub(crate) struct CodeChanges {
    now: u64,
    everywhere: u64,
    pages: HashMap<u64, u64, RandomState>,
}

impl CodeChanges {
    /// Number of the last such reading.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Records the changes that one reading reported.
    pub(crate) fn note(&mut self, changed: &Changed) {
        if matches!(changed, Changed::Ranges(ranges) if ranges.is_empty()) {
            return;
        }
        self.now += 1;
        let all = match changed {
            Changed::Everywhere => true,
            Changed::Ranges(ranges) => {
                for &Range { start, end } in ranges {
                    let last = end.saturating_sub(1) >> PAGE_BITS;
                    // The return address of a call at the end of a page lies in the next one.
                    let pages = (start >> PAGE_BITS..=last + 1).take(MAX_PAGES + 1);
                    self.pages.extend(pages.map(|page| (page, self.now)));
                }
                self.pages.len() > MAX_PAGES
            }
        };
        if all {
            self.everywhere = self.now;
            self.pages.clear();
        }
    }

    /// Whether the code at `pc` changed after the reading with number `then`.
    pub(crate) fn changed_after(&self, pc: u64, then: u64) -> bool {
        then != self.now
            && (self.everywhere > then || self.pages.get(&(pc >> PAGE_BITS)).is_some_and(|&when| when > then))
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are ranges of addresses")]
mod tests {
    use super::*;

    #[test]
    fn readings_without_changes_are_none() {
        let mut changes = CodeChanges::default();
        changes.note(&Changed::Ranges(vec![0x1000..0x1100]));
        changes.note(&Changed::Ranges(Vec::new()));
        assert_eq!(changes.now(), 1);
        assert!(changes.changed_after(0x1080, 0) && !changes.changed_after(0x1080, 1));
    }

    #[test]
    fn endless_ranges_are_everywhere() {
        let mut changes = CodeChanges::default();
        changes.note(&Changed::Ranges(vec![0..u64::MAX]));
        assert!(changes.changed_after(1 << 60, 0));
        assert!(!changes.changed_after(1 << 60, 1));
        assert!(changes.pages.is_empty());
    }
}
