//! Code by address: all of it, living and dead, that ever covered a page.

use std::collections::HashMap;
use std::ops::Range;

const PAGE_BITS: u32 = 12;
/// Most code that one page is believed to have had in the time that is kept. HotSpot's blobs have at least 64 bytes.
const MAX_PER_PAGE: usize = 1024;

/// Identifies code in the timeline.
pub(super) type CodeId = u32;

/// From pages to code.
#[derive(Debug, Default)]
pub(super) struct Index {
    pages: HashMap<u64, Vec<CodeId>>,
    entries: usize,
}

impl Index {
    /// Adds code; `false`, and nothing done, if there would be more than `max` entries.
    pub(super) fn insert(&mut self, id: CodeId, range: &Range<u64>, max: usize) -> bool {
        let pages = pages(range);
        let count = usize::try_from(pages.end - pages.start).unwrap_or(usize::MAX);
        let full = |page: u64| self.pages.get(&page).is_some_and(|ids| ids.len() >= MAX_PER_PAGE);
        if count > max - self.entries.min(max) || pages.clone().any(full) {
            return false;
        }
        self.entries += count;
        for page in pages {
            self.pages.entry(page).or_default().push(id);
        }
        true
    }

    /// Takes code out again.
    pub(super) fn remove(&mut self, id: CodeId, range: &Range<u64>) {
        for page in pages(range) {
            if let Some(ids) = self.pages.get_mut(&page) {
                let before = ids.len();
                ids.retain(|&other| other != id);
                self.entries -= before - ids.len();
                if ids.is_empty() {
                    self.pages.remove(&page);
                }
            }
        }
    }

    /// What may cover an address.
    pub(super) fn at(&self, address: u64) -> &[CodeId] {
        self.pages.get(&(address >> PAGE_BITS)).map_or(&[], Vec::as_slice)
    }

    /// What may overlap a range, each once.
    pub(super) fn near(&self, range: &Range<u64>) -> Vec<CodeId> {
        let mut ids: Vec<CodeId> =
            pages(range).filter_map(|page| self.pages.get(&page)).flatten().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

fn pages(range: &Range<u64>) -> Range<u64> {
    let first = range.start >> PAGE_BITS;
    if range.is_empty() { first..first } else { first..((range.end - 1) >> PAGE_BITS) + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_on_all_its_pages_until_it_is_removed() {
        let mut index = Index::default();
        assert!(index.insert(1, &(0x1f00..0x3001), 10));
        assert!(index.insert(2, &(0x3001..0x3002), 10));
        assert_eq!(index.at(0x1000), [1]);
        assert_eq!(index.at(0x2fff), [1]);
        assert_eq!(index.at(0x3fff), [1, 2]);
        assert_eq!(index.at(0x4000), [] as [CodeId; 0]);
        assert_eq!(index.near(&(0..0x10000)), [1, 2]);
        index.remove(1, &(0x1f00..0x3001));
        assert_eq!(index.near(&(0..0x10000)), [2]);
        assert_eq!(index.entries, 1);
    }

    #[test]
    fn the_quota_holds_and_empty_code_is_nowhere() {
        let mut index = Index::default();
        assert!(!index.insert(1, &(0..0x5000), 4));
        assert!(index.insert(1, &(0x1000..0x1000), 4));
        assert_eq!(index.entries, 0);
        assert!(!index.insert(1, &(0..u64::MAX), 4));
        let crowded = (0..2000).filter(|&id| index.insert(id, &(0x9000..0x9001), 1 << 20)).count();
        assert_eq!(crowded, MAX_PER_PAGE);
    }
}
