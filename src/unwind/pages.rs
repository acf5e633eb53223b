//! Which pages are in use. A running BPF program may still read pages that were given back (retired). They are used
//! again only after [`PageAllocator::wait_for_walks`].

use std::collections::BTreeMap;

/// Consecutive pages.
#[derive(Clone, Copy, Debug)]
struct PageRun {
    first: u32,
    count: u32,
}

/// Pages by number, from 1.
#[derive(Debug)]
pub(super) struct PageAllocator {
    /// Runs of free pages: first page, and number of pages.
    free: BTreeMap<u32, u32>,
    /// Runs that were given back, but may still be read.
    retired: Vec<PageRun>,
    limit: u32,
}

impl PageAllocator {
    /// Pages 1 to `limit`, all free.
    pub(super) fn new(limit: u32) -> PageAllocator {
        PageAllocator { free: BTreeMap::from([(1, limit)]), retired: Vec::new(), limit }
    }

    /// Allocates the lowest free run that is large enough, so that memory grows no more than necessary.
    pub(super) fn allocate(&mut self, count: u32) -> Option<u32> {
        let (&first, &length) = self.free.iter().find(|(_, length)| **length >= count)?;
        self.free.remove(&first);
        if length > count {
            self.free.insert(first + count, length - count);
        }
        Some(first)
    }

    pub(super) fn retire(&mut self, first: u32, count: u32) {
        self.retired.push(PageRun { first, count });
    }

    pub(super) fn retired(&self) -> u32 {
        self.retired.iter().map(|run| run.count).sum()
    }

    pub(super) fn free(&self) -> u32 {
        self.free.values().sum()
    }

    /// Pages in use, the retired ones included.
    pub(super) fn used(&self) -> u32 {
        self.limit - self.free()
    }

    /// The number after the last page in use.
    pub(super) fn end(&self) -> u32 {
        let last = self.free.last_key_value();
        last.filter(|(first, count)| **first + **count > self.limit)
            .map_or(self.limit + 1, |(first, _)| *first)
    }

    /// Frees the retired pages; the caller has waited until no running program can read them.
    pub(super) fn wait_for_walks(&mut self) {
        for PageRun { mut first, mut count } in std::mem::take(&mut self.retired) {
            if let Some(&after) = self.free.get(&(first + count)) {
                self.free.remove(&(first + count));
                count += after;
            }
            let before = self.free.range(..first).next_back().map(|(&start, &length)| (start, length));
            if let Some((start, length)) = before.filter(|(start, length)| start + length == first) {
                first = start;
                count += length;
            }
            self.free.insert(first, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_given_back_and_taken_again() {
        let mut pages = PageAllocator::new(10);
        let (a, b, c) = (pages.allocate(3).unwrap(), pages.allocate(3).unwrap(), pages.allocate(4).unwrap());
        assert_eq!((a, b, c, pages.allocate(1)), (1, 4, 7, None));
        pages.retire(a, 3);
        pages.retire(c, 4);
        assert_eq!(
            (pages.allocate(1), pages.retired(), pages.used()),
            (None, 7, 10),
            "not before the grace period"
        );
        pages.wait_for_walks();
        assert_eq!((pages.allocate(4), pages.retired(), pages.used()), (Some(7), 0, 7));
        pages.retire(b, 3);
        assert_eq!(pages.end(), 11, "a walk may still read what was given back");
        pages.wait_for_walks();
        assert_eq!(pages.end(), 11, "the last is in use");
        assert_eq!(pages.allocate(6), Some(1), "neighbours are one run again");
        pages.retire(7, 4);
        pages.wait_for_walks();
        assert_eq!(pages.end(), 7);
    }
}
