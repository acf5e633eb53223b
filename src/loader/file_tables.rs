//! The unwind tables of a file. Most files have one table or no table. A file whose table would be too large has tables
//! of parts instead, for code that was on stacks, as far as there is room.

use std::time::{Duration, Instant};

use crate::process::CodeRange;
use crate::unwind::{MAX_BYTES, MAX_PART_BYTES, RangeCode, TableKey, TablePart, TableRange, UnwindRange};

/// Maximum number of loaded parts of one file: together as large as the table of a whole file may be.
const MAX_PARTS: usize = MAX_BYTES / MAX_PART_BYTES;
/// The shortest time before another part may replace a part: to build a part, the worker reads all descriptions of its
/// file.
const MIN_STAY: Duration = Duration::from_secs(60);

/// The tables of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileTables {
    parts: Vec<LoadedPart>,
    /// Tables of further parts can be built.
    more: bool,
    /// Number of stacks that needed a part for which there was no room.
    pub(super) refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoadedPart {
    range: TableRange,
    key: TableKey,
    since: Instant,
}

/// The table of an offset of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableAt {
    Loaded(TableKey),
    /// No table describes this code.
    Never,
    /// The table of this part of the file is not built yet.
    Unbuilt,
}

/// A range of a process's code with its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TabledRange {
    pub(super) range: UnwindRange,
    pub(super) key: Option<TableKey>,
}

impl FileTables {
    /// A file without a table.
    pub(super) fn none() -> FileTables {
        FileTables::default()
    }

    /// A file with one table.
    pub(super) fn whole(part: &TablePart, key: TableKey, now: Instant) -> FileTables {
        let parts = vec![LoadedPart { range: part.range, key, since: now }];
        FileTables { parts, ..FileTables::default() }
    }

    /// A file whose table would be too large, without any part yet.
    pub(super) fn in_parts() -> FileTables {
        FileTables { more: true, ..FileTables::default() }
    }

    /// Whether tables of further parts can be built.
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    /// No further part of the file can be built.
    pub(super) fn end_parts(&mut self) {
        self.more = false;
    }

    pub(super) fn has_table(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Removes the tables that are no longer loaded; false if the table of the whole file is among them.
    pub(super) fn retain(&mut self, is_loaded: impl Fn(TableKey) -> bool) -> bool {
        let before = self.parts.len();
        self.parts.retain(|part| is_loaded(part.key));
        self.more || self.parts.len() == before
    }

    pub(super) fn at(&self, offset: u64) -> TableAt {
        let part = self.parts.iter().find(|part| part.range.contains(offset));
        match part {
            Some(part) => TableAt::Loaded(part.key),
            None if self.more => TableAt::Unbuilt,
            None => TableAt::Never,
        }
    }

    /// Makes room for one more part; false if all loaded parts are younger than [`MIN_STAY`].
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        if self.parts.len() < MAX_PARTS {
            return true;
        }
        let old = |part: &LoadedPart| now.saturating_duration_since(part.since) >= MIN_STAY;
        let oldest = (0..self.parts.len()).min_by_key(|&part| self.parts[part].since);
        let Some(oldest) = oldest.filter(|&part| old(&self.parts[part])) else { return false };
        self.parts.remove(oldest);
        true
    }

    pub(super) fn add(&mut self, part: &TablePart, key: TableKey, now: Instant) {
        self.parts.push(LoadedPart { range: part.range, key, since: now });
        self.parts.sort_by_key(|part| part.range.start);
    }

    /// Cuts a range of code into ranges that each have one table or no table.
    pub(super) fn cut(&self, range: &CodeRange) -> Vec<TabledRange> {
        let CodeRange { start, end, offset, .. } = *range;
        let address = |at: u64| at.saturating_sub(offset).saturating_add(start).clamp(start, end);
        let mut ranges = Vec::new();
        let mut push = |from: u64, to: u64, key| {
            if from < to {
                let code = RangeCode::File(offset.wrapping_add(from - start));
                ranges.push(TabledRange { range: UnwindRange { start: from, end: to, code, table: 0 }, key });
            }
        };
        let mut from = start;
        for part in &self.parts {
            let (begins, ends) = (address(part.range.start), address(part.range.end));
            let begins = begins.max(from);
            push(from, begins, None);
            push(begins, ends, Some(part.key));
            from = ends.max(from);
        }
        push(from, end, None);
        ranges
    }
}
