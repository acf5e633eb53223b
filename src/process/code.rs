//! The code that a process has mapped now, for callers that need it before there is a sample.

use std::sync::Arc;

use super::Processes;
use super::covered_code::CoveredCode;
use super::file::MappedFile;
use super::mappings::{MappedObject, Vdso};
use super::program::MAX_ANCESTORS;
use super::reading;

/// A range of addresses with code of a file.
#[derive(Clone, Debug)]
pub struct CodeRange {
    /// First address of the range in the process.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Where the code comes from.
    pub code: CodeSource,
    /// Offset of the first byte in the file, bytes.
    pub offset: u64,
}

impl CodeRange {
    /// Bytes of the range.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What a range is mapped from.
#[derive(Clone, Debug)]
pub enum CodeSource {
    /// A file, opened if possible.
    File(Arc<MappedFile>),
    /// A vdso of the kernel.
    Vdso(Vdso),
}

/// All code of files that a process has mapped.
#[derive(Clone, Debug)]
pub struct ProcessCode {
    /// First address of the program's own code, as the kernel noted it at the exec.
    pub start_code: u64,
    /// Address after the last of the program's own code.
    pub end_code: u64,
    /// Address at which the stack begins.
    pub start_stack: u64,
    /// Ranges by address. They do not overlap, and have no anonymous memory.
    pub ranges: Vec<CodeRange>,
}

impl Processes {
    /// Code that other mappings have covered since the last call.
    pub fn take_covered(&mut self) -> Vec<CoveredCode> {
        std::mem::take(&mut self.covered)
    }

    /// The code that a process has mapped, according to events. Mappings from before the events are read from `/proc`.
    /// `None` if the process has ended, has no user space, or has executed another program whose event has not come
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
        // A program's own code that was moved, once found here, is unwound by its table before there is a sample of it.
        self.find_moved_between(tgid, index, stat.start_code, stat.end_code);
        let maps = Arc::clone(&self.program(tgid, index)?.maps);
        let ranges = maps.iter().filter_map(|mapping| {
            let (code, offset) = match &mapping.object {
                MappedObject::Anonymous => return None,
                MappedObject::Vdso(vdso, offset) => (CodeSource::Vdso(*vdso), *offset),
                MappedObject::File(file, offset) | MappedObject::Moved(file, offset) => {
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
