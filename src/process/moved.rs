//! Code of a file that its process has moved into memory of no file, mostly to have it in huge pages: when it is looked
//! for, and what is noted of it. The search itself is in [`copied`](super::copied).
//!
//! What is found is proven for the time of the search. It holds from the time on at which that memory was mapped: nothing
//! runs there before the code is in it, and whoever has executed other code there in between has written the file's code,
//! page by page, over it. It holds until something else is mapped there; a change of the protection is an event of a new
//! mapping, and has the code looked for again.

use super::copied::{CopiedCode, CopiedPart, CopySearch};
use super::locate::MAX_ANCESTORS;
use super::mappings::Object;
use super::path::bytes_path;
use super::program::Program;
use super::{CoveredCode, MonoNs, ProcessId, Processes};

/// Addresses of one search.
const MAX_ADDRESSES: usize = 64;
/// Pieces of memory of no file that are looked at where a program's own code should be.
const MAX_PIECES: usize = 16;
/// A search is not repeated sooner, ns; after one in vain not before the second pause, which doubles each time: a runtime
/// that generates code has none of a file.
const SHORTEST: u64 = 100_000_000;
const PAUSE: u64 = 1_000_000_000;
const MAX_DOUBLINGS: u32 = 10;
/// Each third search in vain looks for bytes in all files.
const BY_BYTES_EVERY: u32 = 3;
/// One program takes one part in so many of the time, all take one in so many; what is left over is kept up to this, ns.
const PART_OF_ONE: u64 = 20;
const PART_OF_ALL: u64 = 10;
const MOST_SAVED: u64 = 1_000_000_000;

/// When code of files is looked for in one program's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedSearches {
    /// Searches in vain, one after the other.
    failures: u32,
    /// Not before, for what searching costs.
    rested_at: MonoNs,
    /// Not before, for the searches in vain.
    retry_at: MonoNs,
}

impl MovedSearches {
    /// A file's code was covered: it may have been moved.
    pub(super) fn expect(&mut self) {
        (self.failures, self.retry_at) = (0, MonoNs(0));
    }

    fn is_due(&self, now: MonoNs) -> bool {
        now >= self.rested_at && now >= self.retry_at
    }

    fn looks_for_bytes(&self) -> bool {
        self.failures.is_multiple_of(BY_BYTES_EVERY)
    }

    /// A search has ended that took so long, ns.
    fn ended(&mut self, now: MonoNs, took: u64, has_found: bool) {
        self.rested_at = MonoNs(now.0 + SHORTEST.max(took.saturating_mul(PART_OF_ONE - 1)));
        if has_found {
            self.expect();
        } else {
            self.retry_at = MonoNs(now.0 + (PAUSE << self.failures.min(MAX_DOUBLINGS)));
            self.failures = self.failures.saturating_add(1);
        }
    }
}

/// Time for the searches of all programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchTime {
    /// What may be spent, ns; less than none if the last search took more.
    saved: i64,
    /// When that was so.
    at: MonoNs,
}

impl SearchTime {
    pub(super) fn new(now: MonoNs) -> SearchTime {
        SearchTime { saved: MOST_SAVED.cast_signed(), at: now }
    }

    fn is_left(&mut self, now: MonoNs) -> bool {
        let since = now.0.saturating_sub(self.at.0) / PART_OF_ALL;
        self.saved = self.saved.saturating_add_unsigned(since).min(MOST_SAVED.cast_signed());
        self.at = now;
        self.saved > 0
    }

    fn spend(&mut self, took: u64) {
        self.saved = self.saved.saturating_sub_unsigned(took);
    }
}

impl Processes {
    /// Whether an address of a program leads into memory of no file of which nothing else is known.
    pub fn is_anonymous(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> bool {
        let Some(index) = self.select(id, at) else { return false };
        let mut mapping = self.mapping(id.tgid, index, at, pc);
        if mapping.is_none() && self.complete(id.tgid, index, MAX_ANCESTORS) {
            mapping = self.mapping(id.tgid, index, at, pc);
        }
        mapping.is_some_and(|mapping| matches!(mapping.object, Object::Anonymous))
    }

    /// Looks for code of files where these addresses of a program lead into memory of no file, unless that was in vain not
    /// long ago. Whether some was found: [`locate`](Self::locate) and [`code`](Self::code) have it then.
    pub fn find_moved(&mut self, id: ProcessId, at: MonoNs, addresses: Vec<u64>) -> bool {
        let index = self.select(id, at);
        index.is_some_and(|index| self.search_moved(id.tgid, index, addresses))
    }

    /// Of code that was covered, the parts that are not proven to have the same code again: first addresses, and those
    /// after the last.
    pub fn not_restored(&mut self, code: &CoveredCode) -> Vec<(u64, u64)> {
        let CoveredCode { tgid, start, end, at, .. } = *code;
        let line = self.timelines.get(&tgid);
        let index = line.and_then(|line| line.iter().rposition(|program| program.from <= at));
        let Some(index) = index else { return vec![(start, end)] };
        self.find_moved_between(tgid, index, start, end);
        self.program(tgid, index)
            .map_or(vec![(start, end)], |program| program.maps.not_restored(start, end, at))
    }

    /// Looks for code of files in memory of no file between two addresses.
    pub(super) fn find_moved_between(&mut self, tgid: u32, index: usize, start: u64, end: u64) {
        let Some(program) = self.program(tgid, index) else { return };
        let pieces = program.maps.anonymous(start, end).take(MAX_PIECES);
        // The first page may be shared with what is no code, and any may have been written to.
        let pages = pieces.flat_map(|(start, end)| [start + (end - start) / 2, start, end - 1]);
        let addresses: Vec<u64> = pages.collect();
        self.search_moved(tgid, index, addresses);
    }

    fn search_moved(&mut self, tgid: u32, index: usize, mut addresses: Vec<u64>) -> bool {
        let now = MonoNs::now();
        let is_due = |program: &&mut Program| program.is_alive() && program.moved.is_due(now);
        if addresses.is_empty() || !self.search_time.is_left(now) {
            return false;
        }
        let Some(program) = self.program(tgid, index).filter(is_due) else { return false };
        addresses.sort_unstable();
        // A runtime's own code has many: what lies elsewhere has its turn, too.
        let addresses = addresses.iter().copied().step_by(addresses.len().div_ceil(MAX_ADDRESSES)).collect();
        let by_bytes = program.moved.looks_for_bytes();
        let search = CopySearch { program: program.expected(), addresses, by_bytes };
        let found = self.files.find_copied(&search);
        let noted = matches!(found, Ok(Some(found)) if self.note_copied(tgid, index, &found));
        let ended = MonoNs::now();
        let took = ended.0.saturating_sub(now.0);
        self.search_time.spend(took);
        log::debug!("processes: code of files looked for in {tgid}: {noted}, {} us", took / 1000);
        if let Some(program) = self.program(tgid, index) {
            program.moved.ended(ended, took, noted);
        }
        noted
    }

    fn note_copied(&mut self, tgid: u32, index: usize, found: &CopiedCode) -> bool {
        let file = self.files.refer(found.inode, &bytes_path(&found.path).into());
        let most = self.options.max_mappings;
        let Some(program) = self.program(tgid, index) else { return false };
        let maps = std::sync::Arc::make_mut(&mut program.maps);
        let mut noted = false;
        for (at, &CopiedPart { start, end, offset }) in found.parts.iter().enumerate() {
            if maps.len() >= most {
                program.refused = program.refused.max((found.parts.len() - at) as u64);
                break;
            }
            noted |= maps.note_copy(start, end, &file, offset);
        }
        if noted {
            log::info!("processes: {tgid} has moved code of a file into memory of no file");
            self.touched.insert(tgid);
        }
        noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_generates_code_is_asked_ever_more_seldom() {
        let mut searches = MovedSearches::default();
        let (mut now, mut times, mut by_bytes) = (MonoNs(1), 0_u32, 0);
        while now.0 < 24 * 3600 * SECOND {
            if searches.is_due(now) {
                by_bytes += u32::from(searches.looks_for_bytes());
                searches.ended(now, 10_000_000, false);
                times += 1;
            }
            now.0 += SECOND;
        }
        // Eleven times within the first half hour, then each 17 minutes.
        assert!((80..110).contains(&times), "{times}");
        assert_eq!(by_bytes, times.div_ceil(BY_BYTES_EVERY));
        searches.expect();
        assert!(searches.is_due(now), "a file's code was covered");
    }

    #[test]
    fn a_search_costs_a_part_of_the_time() {
        let mut searches = MovedSearches::default();
        searches.ended(MonoNs(SECOND), SECOND / 10, true);
        searches.expect();
        assert!(!searches.is_due(MonoNs(2 * SECOND + SECOND / 2)));
        assert!(searches.is_due(MonoNs(3 * SECOND)));
    }

    #[test]
    fn all_searches_together_cost_a_part_of_the_time() {
        let mut time = SearchTime::new(MonoNs(0));
        let mut spent = 0;
        for now in (0..100 * SECOND).step_by(1_000_000) {
            if time.is_left(MonoNs(now)) {
                time.spend(SECOND / 10);
                spent += SECOND / 10;
            }
        }
        assert!((10 * SECOND..=12 * SECOND).contains(&spent), "{spent}");
    }
}
