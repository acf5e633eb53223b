//! What code a process has mapped now: for who must know it before there is a sample.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Processes;
use super::covered::CoveredCode;
use super::file::MappedFile;
use super::mappings::{Object, Vdso};
use super::program::MAX_ANCESTORS;
use super::reading;
use crate::sample::ProcessId;

/// Generations up that are looked at for an ancestor. Numbers that were given to others could lead in a circle; who lives has
/// fewer that live.
const MAX_GENERATIONS: usize = 4096;

/// Code of a file at a range of addresses.
#[derive(Clone, Debug)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Where the code is from.
    pub code: CodeSource,
    /// Offset of the first byte in the file, bytes.
    pub offset: u64,
}

/// What a range is mapped from.
#[derive(Clone, Debug)]
pub enum CodeSource {
    /// A file, opened if it could be.
    File(Arc<MappedFile>),
    /// A vdso of the kernel.
    Vdso(Vdso),
}

/// All code of files that a process has mapped, by address.
#[derive(Clone, Debug)]
pub struct ProcessCode {
    /// First address of the program's own code, as the kernel noted it at the exec.
    pub start_code: u64,
    /// Address after the last of the program's own code.
    pub end_code: u64,
    /// Where its stack begins.
    pub start_stack: u64,
    /// None over another. Anonymous memory is not among them.
    pub ranges: Vec<CodeRange>,
}

impl Processes {
    /// Code that was covered since this was asked the last time.
    pub fn take_covered(&mut self) -> Vec<CoveredCode> {
        std::mem::take(&mut self.covered)
    }

    /// Processes that began, ended, or mapped something since this was asked the last time.
    pub fn take_touched(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }

    /// Whether a process is known and has not ended.
    #[must_use]
    pub fn is_alive(&self, tgid: u32) -> bool {
        self.timelines.get(&tgid).and_then(|line| line.last()).is_some_and(|program| program.is_alive())
    }

    /// Whether a process is known and all its threads have ended.
    #[must_use]
    pub fn has_ended(&self, tgid: u32) -> bool {
        self.timelines.get(&tgid).and_then(|line| line.last()).is_some_and(|program| !program.is_alive())
    }

    /// Whether a program is known, or one that may be it: those that have ended are until they are retired.
    #[must_use]
    pub fn is_known(&self, id: ProcessId) -> bool {
        let line = self.timelines.get(&id.tgid);
        line.is_some_and(|line| line.iter().any(|program| program.id.is_none_or(|known| known == id)))
    }

    /// Whether a program is known to have been replaced by another one, by an exec.
    #[must_use]
    pub fn is_former(&self, id: ProcessId) -> bool {
        let before =
            self.timelines.get(&id.tgid).and_then(|line| line.split_last()).map(|(_, before)| before);
        before.is_some_and(|before| before.iter().any(|program| program.id == Some(id)))
    }

    /// Whether a process is one of `roots` or descends from one, as far as its ancestors are known.
    #[must_use]
    pub fn descends(&self, tgid: u32, roots: &[u32]) -> bool {
        let mut at = tgid;
        for _ in 0..MAX_GENERATIONS {
            if roots.contains(&at) {
                return true;
            }
            let Some(program) = self.timelines.get(&at).and_then(|line| line.last()) else { return false };
            at = program.parent;
        }
        false
    }

    /// The code that a process has mapped, as far as events have told; what was there before them is read from `/proc`.
    /// `None` if the process has ended, is none of user space, or has become another program of which no event has come
    /// yet.
    pub fn code(&mut self, tgid: u32) -> Option<ProcessCode> {
        let index = self.timelines.get(&tgid)?.len().checked_sub(1)?;
        let program = self.program(tgid, index).filter(|program| program.is_alive())?;
        if program.before.is_missing() {
            self.complete(tgid, index, MAX_ANCESTORS);
        }
        let stat = reading::stat_with_memory(tgid)?;
        let program = self.program(tgid, index)?;
        let covered = |pc: u64| program.maps.iter().any(|mapping| (mapping.start..mapping.end).contains(&pc));
        if !program.may_start_at(stat.start_ticks) || !covered(stat.start_code) {
            return None;
        }
        // Found here, a program's own code is walked by its table before there is a sample of it.
        self.find_moved_between(tgid, index, stat.start_code, stat.end_code);
        let maps = Arc::clone(&self.program(tgid, index)?.maps);
        let ranges = maps.iter().filter_map(|mapping| {
            let (code, offset) = match &mapping.object {
                Object::Anonymous => return None,
                Object::Vdso(vdso, offset) => (CodeSource::Vdso(*vdso), *offset),
                Object::File(file, offset) | Object::Copied(file, offset) => {
                    (CodeSource::File(self.open(tgid, index, mapping, file)), *offset)
                }
            };
            Some(CodeRange { start: mapping.start, end: mapping.end, code, offset })
        });
        Some(ProcessCode {
            start_code: stat.start_code,
            end_code: stat.end_code,
            start_stack: stat.start_stack,
            ranges: ranges.collect(),
        })
    }
}
