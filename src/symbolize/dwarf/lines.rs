//! The lines of one unit.
//!
//! A unit's line program is a list of sequences, one for each stretch of code. Where they begin is held, and the rows of
//! the one that was asked for last. DWARF 5, 6.2.

use std::cell::RefCell;

use gimli::{CompleteLineProgram, FileEntry, IncompleteLineProgram, LineSequence, Range, UnitRef};

use super::model::Reader;

/// Characters of a path that are kept.
const MAX_PATH: usize = 4096;

/// From here on, code comes from this line; `after` counts from where the sequence begins.
#[derive(Clone, Copy, Debug)]
struct Row {
    after: u32,
    file: u32,
    line: u32,
}

/// The rows of one sequence.
struct Rows {
    sequence: usize,
    rows: Vec<Row>,
}

/// A unit's lines.
pub(super) struct Lines {
    program: CompleteLineProgram<Reader>,
    /// By where they begin.
    sequences: Vec<LineSequence<Reader>>,
    last: RefCell<Option<Rows>>,
}

impl Lines {
    pub(super) fn read(program: IncompleteLineProgram<Reader>) -> gimli::Result<Lines> {
        let (program, mut sequences) = program.sequences()?;
        sequences.retain(|s| s.start < s.end);
        sequences.sort_by_key(|s| s.start);
        sequences.shrink_to_fit();
        Ok(Lines { program, sequences, last: RefCell::default() })
    }

    /// The code that has lines.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        self.sequences.iter().map(|s| Range { begin: s.start, end: s.end })
    }

    /// Number of the file and line at `address`; line 0 if it comes from none.
    pub(super) fn find(&self, address: u64) -> gimli::Result<Option<(u64, u32)>> {
        let after = self.sequences.partition_point(|s| s.start <= address);
        let Some(number) = after.checked_sub(1) else { return Ok(None) };
        let Some(sequence) = self.sequences.get(number).filter(|s| address < s.end) else { return Ok(None) };
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|rows| rows.sequence != number) {
            *last = Some(Rows { sequence: number, rows: self.rows(sequence)? });
        }
        let rows = last.as_ref().map_or(&[][..], |rows| &rows.rows);
        let after = rows.partition_point(|row| u64::from(row.after) <= address - sequence.start);
        let row = after.checked_sub(1).and_then(|row| rows.get(row));
        Ok(row.map(|row| (u64::from(row.file), row.line)))
    }

    fn rows(&self, sequence: &LineSequence<Reader>) -> gimli::Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        let mut all = self.program.resume_from(sequence);
        while let Some((_, row)) = all.next_row()? {
            // Numbers that do not fit are no compiler's.
            let Ok(after) = u32::try_from(row.address().saturating_sub(sequence.start)) else { break };
            if row.end_sequence() {
                break;
            }
            let file = u32::try_from(row.file_index()).unwrap_or(u32::MAX);
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
            // Of several rows for one address the last one counts: the others have no code.
            if rows.last().is_some_and(|row| row.after == after) {
                rows.pop();
            }
            rows.push(Row { after, file, line });
        }
        rows.shrink_to_fit();
        Ok(rows)
    }

    /// The path of a file, as the compiler wrote it.
    pub(super) fn file(&self, unit: UnitRef<'_, Reader>, number: u64) -> Option<String> {
        let header = self.program.header();
        // Up to DWARF 4 they count from 1.
        if number == 0 && header.version() <= 4 {
            return None;
        }
        let file: &FileEntry<Reader> = header.file(number)?;
        let mut path = String::new();
        let directory = file.directory(header).filter(|_| file.directory_index() != 0);
        let directory = directory.and_then(|directory| unit.attr_string(directory).ok());
        for part in [unit.comp_dir, directory, Some(unit.attr_string(file.path_name()).ok()?)] {
            join(&mut path, &part.map(|part| part.to_string_lossy()).unwrap_or_default());
        }
        Some(if path.len() > MAX_PATH { path.chars().take(MAX_PATH).collect() } else { path })
    }

    /// Memory that is held, bytes.
    pub(super) fn memory(&self) -> usize {
        let rows = self.last.borrow().as_ref().map_or(0, |rows| rows.rows.capacity());
        let header = self.program.header();
        rows * size_of::<Row>()
            + self.sequences.capacity() * size_of::<LineSequence<Reader>>()
            + size_of_val(header.file_names())
            + size_of_val(header.include_directories())
    }
}

fn join(path: &mut String, part: &str) {
    if part.is_empty() {
        return;
    }
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_path_stands_alone() {
        let joined = |parts: &[&str]| {
            let mut path = String::new();
            parts.iter().for_each(|part| join(&mut path, part));
            path
        };
        assert_eq!(joined(&["/build", "../src", "a.c"]), "/build/../src/a.c");
        assert_eq!(joined(&["/build/", "", "a.c"]), "/build/a.c");
        assert_eq!(joined(&["/build", "/usr/include", "a.h"]), "/usr/include/a.h");
        assert_eq!(joined(&["", "", "a.c"]), "a.c");
    }
}
