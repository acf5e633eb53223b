//! Code by address: all code, current and freed, that ever covered a page.

use std::collections::HashMap;
use std::ops::Range;

const PAGE_BITS: u32 = 12;
/// Most code on one page within the kept time. HotSpot's blobs have at least 64 bytes.
const MAX_PER_PAGE: usize = 1024;

/// Identifies code in the timeline.
pub(super) type CodeId = u32;

/// Memory of code for each of its pages, bytes: an entry in a table that may be half empty, and a list.
const BYTES_OF_PAGE: usize = 96;

#[derive(Debug, Default)]
pub(super) struct PageIndex {
    pages: HashMap<u64, Vec<CodeId>>,
}

impl PageIndex {
    /// Adds code; `false`, and no change, if a page has too much code.
    pub(super) fn insert(&mut self, id: CodeId, range: &Range<u64>) -> bool {
        let full = |page: u64| self.pages.get(&page).is_some_and(|ids| ids.len() >= MAX_PER_PAGE);
        if pages(range).any(full) {
            return false;
        }
        for page in pages(range) {
            self.pages.entry(page).or_default().push(id);
        }
        true
    }

    pub(super) fn remove(&mut self, id: CodeId, range: &Range<u64>) {
        for page in pages(range) {
            if let Some(ids) = self.pages.get_mut(&page) {
                ids.retain(|&other| other != id);
                if ids.is_empty() {
                    self.pages.remove(&page);
                }
            }
        }
    }

    /// Code that may cover an address.
    pub(super) fn at(&self, address: u64) -> &[CodeId] {
        self.pages.get(&(address >> PAGE_BITS)).map_or(&[], Vec::as_slice)
    }

    /// Code that may overlap a range; some of it can occur more than once.
    pub(super) fn near(&self, range: &Range<u64>) -> Vec<CodeId> {
        pages(range).filter_map(|page| self.pages.get(&page)).flatten().copied().collect()
    }
}

/// The number of pages on which code lies.
pub(super) fn pages_of(range: &Range<u64>) -> usize {
    let pages = pages(range);
    usize::try_from(pages.end - pages.start).unwrap_or(usize::MAX)
}

/// Memory for finding code by its address, bytes.
pub(super) fn bytes_of(range: &Range<u64>) -> usize {
    pages_of(range).saturating_mul(BYTES_OF_PAGE)
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
        let mut index = PageIndex::default();
        assert!(index.insert(1, &(0x1f00..0x3001)));
        assert!(index.insert(2, &(0x3001..0x3002)));
        assert_eq!(index.at(0x1000), [1]);
        assert_eq!(index.at(0x2fff), [1]);
        assert_eq!(index.at(0x3fff), [1, 2]);
        assert_eq!(index.at(0x4000), [] as [CodeId; 0]);
        assert_eq!(index.near(&(0..0x10000)), [1, 1, 1, 2]);
        index.remove(1, &(0x1f00..0x3001));
        assert_eq!(index.near(&(0..0x10000)), [2]);
    }

    #[test]
    fn a_page_has_so_much_and_empty_code_is_nowhere() {
        let mut index = PageIndex::default();
        assert!(index.insert(1, &(0x1000..0x1000)));
        assert_eq!((pages_of(&(0x1000..0x1000)), index.pages.len()), (0, 0));
        assert_eq!(
            [0x1000..0x1001, 0xfff..0x1001, 0..u64::MAX].map(|range| pages_of(&range)),
            [1, 2, 1 << 52]
        );
        let crowded = (0..2000).filter(|&id| index.insert(id, &(0x9000..0x9001))).count();
        assert_eq!(crowded, MAX_PER_PAGE);
    }
}
