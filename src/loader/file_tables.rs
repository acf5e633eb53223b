//! The unwind tables of a file. Most files have one, or none. Of a file whose table would be too large there are tables of
//! parts: of the code in which stacks were, as far as there is room.

use std::time::{Duration, Instant};

use crate::process::CodeRange;
use crate::unwind::{Code, MAX_BYTES, MAX_PART_BYTES, Range, TableKey, TablePart, TableWindow};

/// Parts of one file that are loaded: all together as large as the table of a whole file may be.
const MAX_PARTS: usize = MAX_BYTES / MAX_PART_BYTES;
/// How long a part stays at least before that of other code takes its place: it is built from all descriptions of its file.
const STAYS: Duration = Duration::from_secs(60);

/// What is known of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileTables {
    parts: Vec<Part>,
    /// Code outside of the parts may have a table that is not there yet.
    more: bool,
    /// Stacks in whose code there was no room for the table of a part.
    pub(super) refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    window: TableWindow,
    key: TableKey,
    since: Instant,
}

/// The table of an offset of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableAt {
    Loaded(TableKey),
    /// No table tells of this code.
    Never,
    /// The table of its part was not built.
    Unbuilt,
}

/// A range of a process's code, with its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TabledRange {
    pub(super) range: Range,
    pub(super) key: Option<TableKey>,
}

impl FileTables {
    /// Of a file that has no table.
    pub(super) fn none() -> FileTables {
        FileTables::default()
    }

    /// Of a file that has this one table.
    pub(super) fn one(part: &TablePart, key: TableKey, now: Instant) -> FileTables {
        let parts = vec![Part { window: part.window, key, since: now }];
        FileTables { parts, ..FileTables::default() }
    }

    /// Of a file whose table would be too large: no part is there yet.
    pub(super) fn in_parts() -> FileTables {
        FileTables { more: true, ..FileTables::default() }
    }

    /// Whether tables of further parts can be had.
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    /// Nothing else can be had of the file.
    pub(super) fn end(&mut self) {
        self.more = false;
    }

    /// Whether a table of the file was loaded.
    pub(super) fn has_table(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Forgets the tables that are not loaded any more; false if nothing is known of the file then.
    pub(super) fn retain(&mut self, is_loaded: impl Fn(TableKey) -> bool) -> bool {
        let before = self.parts.len();
        self.parts.retain(|part| is_loaded(part.key));
        self.more || self.parts.len() == before
    }

    pub(super) fn at(&self, offset: u64) -> TableAt {
        let part = self.parts.iter().find(|part| part.window.contains(offset));
        match part {
            Some(part) => TableAt::Loaded(part.key),
            None if self.more => TableAt::Unbuilt,
            None => TableAt::Never,
        }
    }

    /// Makes room for one more part; false if those that are there are too young to go.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        if self.parts.len() < MAX_PARTS {
            return true;
        }
        let old = |part: &Part| now.saturating_duration_since(part.since) >= STAYS;
        let oldest = (0..self.parts.len()).min_by_key(|&part| self.parts[part].since);
        let Some(oldest) = oldest.filter(|&part| old(&self.parts[part])) else { return false };
        self.parts.remove(oldest);
        true
    }

    /// Adds the table of a part.
    pub(super) fn add(&mut self, part: &TablePart, key: TableKey, now: Instant) {
        self.parts.push(Part { window: part.window, key, since: now });
        self.parts.sort_by_key(|part| part.window.start);
    }

    /// A range of code, cut where one table ends and another one, or none, begins.
    pub(super) fn cut(&self, range: &CodeRange) -> Vec<TabledRange> {
        let CodeRange { start, end, offset, .. } = *range;
        let address = |at: u64| at.saturating_sub(offset).saturating_add(start).clamp(start, end);
        let mut ranges = Vec::new();
        let mut push = |from: u64, to: u64, key| {
            if from < to {
                let code = Code::File(offset.wrapping_add(from - start));
                ranges.push(TabledRange { range: Range { start: from, end: to, code, table: 0 }, key });
            }
        };
        let mut from = start;
        for part in &self.parts {
            let (begins, ends) = (address(part.window.start), address(part.window.end));
            let begins = begins.max(from);
            push(from, begins, None);
            push(begins, ends, Some(part.key));
            from = ends.max(from);
        }
        push(from, end, None);
        ranges
    }
}
