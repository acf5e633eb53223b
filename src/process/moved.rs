//! Moved code: a process has copied code of a file into anonymous memory, mostly to have it in huge pages. This file
//! decides when to search for such code, and notes what is found. The search itself is in [`moved_search`](super::moved_search).
//!
//! A search proves what is in memory at its own time. The result is valid from the time at which that memory was
//! mapped: nothing runs there before the code is in it. A program that executed other code there in between must have
//! written the file's code over it, page by page. The result is valid until something else is mapped there. A change of
//! the protection is an event of a new mapping, and causes a new search.

use std::iter;
use std::ops::Range;

use super::mappings::MappedObject;
use super::moved_search::{MovedCode, MovedCodeSearch, MovedPart};
use super::path::bytes_path;
use super::program::{MAX_ANCESTORS, ProcessImage};
use super::{CoveredCode, Processes};
use crate::sample::{MonoNs, ProcessId};

/// Addresses of one search.
const MAX_ADDRESSES: usize = 64;
/// Pieces of anonymous memory that are searched where a program's own code should be.
const MAX_PIECES: usize = 16;
impl Processes {
    /// Whether it is time to search a program's anonymous memory for code of files, and there is such memory.
    pub fn may_have_moved(&mut self, id: ProcessId, at: MonoNs) -> bool {
        let now = MonoNs::now();
        let Some(index) = self.select(id, at).filter(|_| self.search_time.is_left(now)) else { return false };
        let has_anonymous = |program: &mut ProcessImage| program.maps.anonymous(0, u64::MAX).next().is_some();
        let due = |program: &&mut ProcessImage| program.is_alive() && program.moved.is_due(now);
        self.program(id.tgid, index).filter(due).is_some_and(has_anonymous)
    }

    /// Whether an address of a program leads into anonymous memory that is not known to be moved code.
    pub fn is_anonymous(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> bool {
        let Some(index) = self.select(id, at) else { return false };
        let mut mapping = self.mapping(id.tgid, index, at, pc);
        if mapping.is_none() && self.complete(id.tgid, index, MAX_ANCESTORS) {
            mapping = self.mapping(id.tgid, index, at, pc);
        }
        mapping.is_some_and(|mapping| matches!(mapping.object, MappedObject::Anonymous))
    }

    /// Looks for code of files where these addresses of a program lead into anonymous memory, unless a recent search
    /// was in vain. Returns whether some was found: [`locate`](Self::locate) and [`code`](Self::code) have it then.
    pub fn find_moved(&mut self, id: ProcessId, at: MonoNs, addresses: Vec<u64>) -> bool {
        let index = self.select(id, at);
        index.is_some_and(|index| self.search_moved(id.tgid, index, addresses))
    }

    /// The parts of covered code that are not proven to have the same code again.
    pub fn unrestored_ranges(&mut self, code: &CoveredCode) -> Vec<Range<u64>> {
        let CoveredCode { tgid, start, end, at, .. } = *code;
        let line = self.timelines.get(&tgid);
        let index = line.and_then(|line| line.iter().rposition(|program| program.from <= at));
        let whole = || iter::once(start..end).collect();
        let Some(index) = index else { return whole() };
        self.find_moved_between(tgid, index, start, end);
        match self.program(tgid, index) {
            Some(program) => program.maps.unrestored_ranges(start, end, at),
            None => whole(),
        }
    }

    /// Looks for code of files in anonymous memory between two addresses.
    pub(super) fn find_moved_between(&mut self, tgid: u32, index: usize, start: u64, end: u64) {
        let Some(program) = self.program(tgid, index) else { return };
        let pieces = program.maps.anonymous(start, end).take(MAX_PIECES);
        // The first page may be shared with something other than code, and any page may have been written to.
        let pages = pieces.flat_map(|Range { start, end }| [start + (end - start) / 2, start, end - 1]);
        let addresses: Vec<u64> = pages.collect();
        self.search_moved(tgid, index, addresses);
    }

    fn search_moved(&mut self, tgid: u32, index: usize, mut addresses: Vec<u64>) -> bool {
        let now = MonoNs::now();
        let is_due = |program: &&mut ProcessImage| program.is_alive() && program.moved.is_due(now);
        if addresses.is_empty() || !self.search_time.is_left(now) {
            return false;
        }
        let Some(program) = self.program(tgid, index).filter(is_due) else { return false };
        addresses.sort_unstable();
        // A runtime's own code has many addresses; steps give addresses elsewhere their turn, too.
        let addresses = addresses.iter().copied().step_by(addresses.len().div_ceil(MAX_ADDRESSES)).collect();
        let by_bytes = program.moved.looks_for_bytes();
        let search = MovedCodeSearch { program: program.expected(), addresses, by_bytes };
        let found = self.files.find_moved_code(&search);
        let noted = matches!(found, Ok(Some(found)) if self.mark_all_moved(tgid, index, &found));
        let ended = MonoNs::now();
        let took = ended.0.saturating_sub(now.0);
        self.search_time.spend(took);
        log::debug!("processes: code of files looked for in {tgid}: {noted}, {} us", took / 1000);
        if let Some(program) = self.program(tgid, index) {
            program.moved.search_ended(ended, took, noted);
        }
        noted
    }

    fn mark_all_moved(&mut self, tgid: u32, index: usize, found: &MovedCode) -> bool {
        let file = self.files.intern_ref(found.inode, &bytes_path(&found.path).into());
        let most = self.options.max_mappings;
        let Some(program) = self.program(tgid, index) else { return false };
        let maps = std::sync::Arc::make_mut(&mut program.maps);
        let mut noted = false;
        for (at, &MovedPart { start, end, offset }) in found.parts.iter().enumerate() {
            if maps.len() >= most {
                program.refused = program.refused.max((found.parts.len() - at) as u64);
                break;
            }
            noted |= maps.mark_moved(start, end, &file, offset);
        }
        if noted {
            log::info!("processes: {tgid} has moved code of a file into memory of no file");
            self.touched.insert(tgid);
        }
        noted
    }
}
