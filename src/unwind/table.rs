//! The unwind table of one file: `struct jp_table` with its index, rows and rules. The table has offsets in the file,
//! and so is valid wherever the file is mapped.

use std::collections::HashMap;
use std::ops::Range;

use super::Rule;

/// Maximum bytes of a table: three to four million rows. The largest browsers need half of that.
pub const MAX_BYTES: usize = 16 << 20;
/// Maximum bytes of the table of a part of a file whose whole table would be too large. A process has room for several.
pub const MAX_PART_BYTES: usize = 4 << 20;

/// Bits of an offset within a step of the index: `JP_STEP_SHIFT`.
pub(crate) const STEP_SHIFT: u32 = 10;
const STEP_MASK: u32 = (1 << STEP_SHIFT) - 1;
/// A file that is nearly empty must not cost a large index. But an index of 64 KiB is always allowed: a million small
/// functions, or assembler, may have one rule, and so few rows.
const MAX_STEPS_PER_ROW: usize = 16;
const FEW_STEPS: usize = 1 << 14;
/// Words of `struct jp_table`.
const HEADER: usize = 8;
/// Maximum bytes of padding that compilers put between functions; padding never runs.
const PADDING: u64 = 15;

/// Maximum bytes of a gap that counts as assembler between described code: libjvm.so has a gap of 1.5 KiB. A larger gap
/// is code of another compiler.
const BARE: u64 = 4096;

/// A finished table, as the bytes that the BPF program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(Vec<u8>);

/// A table, and the part of its file that the table describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePart {
    /// The rules for the code in `range`.
    pub table: Table,
    /// The described code. Code outside of the range needs another table.
    pub range: TableRange,
}

/// Collects rules in any order and builds a table.
#[derive(Debug)]
pub struct TableBuilder {
    /// Whether the code is 32-bit code.
    pub i386: bool,
    pieces: Vec<Piece>,
    rules: HashMap<Rule, u32>,
    /// Offsets in the file; code elsewhere is ignored.
    range: TableRange,
    /// The offset around which the range may be narrowed; `None`: the range must stay whole.
    around: Option<u64>,
    max_bytes: usize,
}

/// Offsets `start..end` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRange {
    /// The first offset of the code, bytes.
    pub start: u64,
    /// The offset after the last.
    pub end: u64,
}

impl TableRange {
    /// All offsets that a table can hold: the first 4 GiB of a file.
    pub const ALL: TableRange = TableRange { start: 0, end: 1 << 32 };

    /// Whether the range has this offset.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }
}

/// A rule for the code at the offsets `start..end` in the file.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    end: u32,
    rule: u32,
}

/// The table would exceed its limit, would be nearly empty, or has code beyond the first 4 GiB of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the unwind table is too large")]
pub struct TooLarge;

impl Default for TableBuilder {
    fn default() -> TableBuilder {
        TableBuilder {
            i386: false,
            pieces: Vec::new(),
            rules: HashMap::new(),
            range: TableRange::ALL,
            around: None,
            max_bytes: MAX_BYTES,
        }
    }
}

impl TableBuilder {
    /// A builder for the part of a file around an offset, as much as fits into [`MAX_PART_BYTES`].
    #[must_use]
    pub fn around(offset: u64) -> TableBuilder {
        TableBuilder { around: Some(offset), max_bytes: MAX_PART_BYTES, ..TableBuilder::default() }
    }

    /// Adds a rule for the code at the offsets `start..end`.
    ///
    /// # Errors
    /// [`TooLarge`]: then no table can be built.
    pub fn add(&mut self, start: u64, end: u64, rule: Rule) -> Result<(), TooLarge> {
        if end >= TableRange::ALL.end && self.around.is_none() {
            return Err(TooLarge);
        }
        let (start, end) = (start.max(self.range.start), end.min(self.range.end));
        if start >= end {
            return Ok(());
        }
        let fits = |offset| u32::try_from(offset).map_err(|_| TooLarge);
        let piece =
            Piece { start: fits(start)?, end: fits(end - 1)?.saturating_add(1), rule: self.number(rule)? };
        self.pieces.push(piece);
        // An estimate: a piece makes one row of 4 bytes, and at most one more for the gap behind it.
        while self.pieces.len() * 4 + self.rules.len() * 8 > self.max_bytes {
            self.narrow()?;
        }
        Ok(())
    }

    fn number(&mut self, rule: Rule) -> Result<u32, TooLarge> {
        let next = u32::try_from(self.rules.len()).map_err(|_| TooLarge)?;
        Ok(*self.rules.entry(rule).or_insert(next))
    }

    /// Keeps the half of the range that contains `around`.
    fn narrow(&mut self) -> Result<(), TooLarge> {
        let TableRange { start, end } = self.range;
        let around = self.around.filter(|&around| self.range.contains(around)).ok_or(TooLarge)?;
        if end - start <= 1 << STEP_SHIFT {
            return Err(TooLarge);
        }
        let middle = u64::midpoint(start, end);
        let half = if around < middle {
            TableRange { start, end: middle }
        } else {
            TableRange { start: middle, end }
        };
        self.range = half;
        let rules: HashMap<u32, Rule> = self.rules.drain().map(|(rule, number)| (number, rule)).collect();
        for Piece { start, end, rule } in std::mem::take(&mut self.pieces) {
            let known =
                rules.get(&rule).filter(|_| u64::from(start) < half.end && u64::from(end) > half.start);
            if let Some(&rule) = known {
                self.add(start.into(), end.into(), rule)?;
            }
        }
        Ok(())
    }

    /// The first offset at or after this one at which a piece with a rule begins.
    #[must_use]
    pub fn next_from(&self, offset: u64) -> Option<u64> {
        self.pieces.iter().map(|piece| u64::from(piece.start)).filter(|start| *start >= offset).min()
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The ranges of offsets that have rules, sorted and merged.
    #[must_use]
    pub fn covered(&self) -> Vec<Range<u64>> {
        let range = |piece: &Piece| u64::from(piece.start)..u64::from(piece.end);
        let mut ranges: Vec<Range<u64>> = self.pieces.iter().map(range).collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            kept.end = if touches { kept.end.max(next.end) } else { kept.end };
            touches
        });
        ranges
    }

    /// Builds the table; `None` if there are no rules.
    ///
    /// # Errors
    /// [`TooLarge`] if the rules do not fit into one table and the range cannot be narrowed any more.
    pub fn build(self) -> Result<Option<Table>, TooLarge> {
        Ok(self.build_part()?.map(|part| part.table))
    }

    /// Builds the table with its range; `None` if the whole file has no rules.
    ///
    /// # Errors
    /// [`TooLarge`] if the rules do not fit into one table and the range cannot be narrowed any more.
    pub fn build_part(mut self) -> Result<Option<TablePart>, TooLarge> {
        loop {
            if self.pieces.is_empty() && self.range != TableRange::ALL {
                self.add(self.range.start, self.range.start + 1, Rule::None)?;
            }
            match self.lay_out() {
                Ok(table) => return Ok(table.map(|table| TablePart { table, range: self.range })),
                Err(TooLarge) => self.narrow()?,
            }
        }
    }

    fn lay_out(&mut self) -> Result<Option<Table>, TooLarge> {
        let (none, bare) = (self.number(Rule::None)?, self.number(Rule::Bare)?);
        let rows = self.rows(none, bare);
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(None) };
        let (first, last) = (first.0 >> STEP_SHIFT, last.0 >> STEP_SHIFT);
        let steps = last - first + 1;
        let words = HEADER + steps as usize + 1 + rows.len();
        let rules_at = words.next_multiple_of(2);
        let size = rules_at + 2 * self.rules.len();
        // A row has 22 bits for the number of its rule. Real code has at least one row for every hundred bytes.
        let sparse = steps as usize > MAX_STEPS_PER_ROW * rows.len() + FEW_STEPS;
        if size * 4 > self.max_bytes || self.rules.len() > 1 << (32 - STEP_SHIFT) || sparse {
            return Err(TooLarge);
        }
        let mut table = Vec::with_capacity(size);
        let rules_at = u32::try_from(rules_at).map_err(|_| TooLarge)?;
        table.extend([first, steps, rules_at, u32::from(self.i386)]);
        table.resize(HEADER, 0);
        let mut row = 0;
        for step in first..=last {
            while rows.get(row).is_some_and(|(offset, _)| offset >> STEP_SHIFT < step) {
                row += 1;
            }
            table.push(u32::try_from(row).map_err(|_| TooLarge)?);
        }
        table.push(u32::try_from(rows.len()).map_err(|_| TooLarge)?);
        table.extend(rows.iter().map(|(offset, rule)| rule << STEP_SHIFT | (offset & STEP_MASK)));
        table.resize(rules_at as usize, 0);
        let mut rules: Vec<(Rule, u32)> = self.rules.iter().map(|(rule, number)| (*rule, *number)).collect();
        rules.sort_unstable_by_key(|(_, number)| *number);
        table.extend(rules.iter().flat_map(|(rule, _)| {
            let [a, b, c, d, e, f, g, h] = rule.encode();
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
        }));
        Ok(Some(Table(table.into_iter().flat_map(u32::to_le_bytes).collect())))
    }

    /// The rows, sorted: the first offset of each rule's code, and the rule's number.
    fn rows(&mut self, none: u32, bare: u32) -> Vec<(u32, u32)> {
        self.pieces.sort_by_key(|piece| piece.start);
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(self.pieces.len() + 1);
        let mut begin = |offset, rule| match rows.last_mut() {
            // Only contradictory descriptions begin at the same offset; the last one wins.
            Some(last) if last.0 == offset => last.1 = rule,
            Some(last) if last.1 == rule => {}
            _ => rows.push((offset, rule)),
        };
        let mut covered = None;
        for &Piece { start, end, rule } in &self.pieces {
            let gap = covered.map_or((0, 0), |end: u32| (end, u64::from(start).saturating_sub(end.into())));
            match gap {
                (_, ..=PADDING) => {}
                (covered, ..=BARE) => begin(covered, bare),
                (covered, _) => begin(covered, none),
            }
            begin(start, rule);
            covered = Some(end);
        }
        if let Some(covered) = covered {
            begin(covered, none);
        }
        rows
    }
}

impl Table {
    /// A table from the bytes that the symbol worker sent; `None` if their number is invalid.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Table> {
        let fits = bytes.len().is_multiple_of(4) && (HEADER * 4..=MAX_BYTES).contains(&bytes.len());
        fits.then_some(Table(bytes))
    }

    /// The bytes that the BPF program reads.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Consumes the table and returns its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn word(&self, at: usize) -> u32 {
        self.0.as_chunks::<4>().0.get(at).map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// The rule at an offset of the file.
    #[must_use]
    pub fn rule(&self, offset: u64) -> Rule {
        rule_at(offset, |at| self.word(at))
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        let before = HEADER + self.word(1) as usize + 1;
        (self.word(2) as usize).saturating_sub(before)
    }
}

/// The rule at an offset of a file. `word` returns the words of the file's table, and 0 beyond its end. The search is
/// that of `find_rule` in `bpf/step_table.h`.
pub(super) fn rule_at(offset: u64, mut word: impl FnMut(usize) -> u32) -> Rule {
    let (first, steps, rules) = (word(0), word(1), word(2) as usize);
    let step = (offset >> STEP_SHIFT).wrapping_sub(u64::from(first));
    let Some(step) = usize::try_from(step).ok().filter(|&step| step < steps as usize) else {
        return Rule::None;
    };
    let low = u32::try_from(offset & u64::from(STEP_MASK)).unwrap_or(0);
    let rows = HEADER + steps as usize + 1;
    let (mut from, mut to) = (word(HEADER + step) as usize, word(HEADER + step + 1) as usize);
    while from < to {
        let middle = usize::midpoint(from, to);
        if word(rows + middle) & STEP_MASK <= low {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    let Some(row) = from.checked_sub(1) else { return Rule::None };
    let rule = rules + 2 * (word(rows + row) >> STEP_SHIFT) as usize;
    let ([a, b, c, d], [e, f, g, h]) = (word(rule).to_le_bytes(), word(rule + 1).to_le_bytes());
    Rule::decode([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::super::{Cfa, Fp};
    use super::*;

    fn sp(n: i32) -> Rule {
        Rule::Frame { cfa: Cfa::Sp(n), fp: Fp::Same }
    }

    fn table(pieces: &[(u64, u64, Rule)]) -> Table {
        let mut builder = TableBuilder::default();
        pieces.iter().for_each(|(start, end, rule)| builder.add(*start, *end, *rule).unwrap());
        builder.build().unwrap().unwrap()
    }

    #[test]
    fn each_offset_has_its_rule() {
        let table = table(&[
            (0x2000, 0x2001, sp(8)),
            (0x2001, 0x2010, sp(16)),
            (0x1000, 0x1005, sp(24)),
            (0x1008, 0x1100, Rule::End),
            (0x2100, 0x9000, sp(32)),
            (0xa001, 0xa002, sp(40)),
        ]);
        let expected = [
            (0, Rule::None),
            (0xfff, Rule::None),
            (0x1000, sp(24)),
            (0x1004, sp(24)),
            // Padding.
            (0x1007, sp(24)),
            (0x1008, Rule::End),
            (0x10ff, Rule::End),
            // A short gap, then a long one further below.
            (0x1100, Rule::Bare),
            (0x1fff, Rule::Bare),
            (0x2000, sp(8)),
            (0x2001, sp(16)),
            (0x200f, sp(16)),
            (0x2010, Rule::Bare),
            (0x2100, sp(32)),
            // Steps without a row of their own.
            (0x5000, sp(32)),
            (0x8fff, sp(32)),
            (0x9000, Rule::None),
            (0xa000, Rule::None),
            (0xa001, sp(40)),
            (0xa002, Rule::None),
            (0x93ff, Rule::None),
            (0x9400, Rule::None),
            (u64::MAX, Rule::None),
            (1 << 40, Rule::None),
        ];
        for (offset, rule) in expected {
            assert_eq!(table.rule(offset), rule, "{offset:#x}");
        }
        assert_eq!(Table::from_bytes(table.bytes().to_vec()), Some(table));
    }

    #[test]
    fn a_table_says_for_which_code_it_is() {
        for i386 in [false, true] {
            let mut builder = TableBuilder { i386, ..TableBuilder::default() };
            builder.add(0x100, 0x200, sp(4)).unwrap();
            let table = builder.build().unwrap().unwrap();
            assert_eq!((table.word(3), table.rule(0x100)), (u32::from(i386), sp(4)));
        }
    }

    #[test]
    fn a_step_full_of_rows() {
        let pieces: Vec<_> = (0..4096_u64).map(|i| (i, i + 1, sp(8 * i32::try_from(i).unwrap()))).collect();
        let table = table(&pieces);
        for (offset, _, rule) in pieces {
            assert_eq!(table.rule(offset), rule);
        }
        assert_eq!(table.rule(4096), Rule::None);
    }

    #[test]
    fn equal_neighbours_are_one_row() {
        let table = table(&[(0x100, 0x200, sp(8)), (0x200, 0x300, sp(8)), (0x308, 0x400, sp(8))]);
        assert!(table.rows() <= 3, "{}", table.rows());
        assert_eq!(table.rule(0x3ff), sp(8));
    }

    #[test]
    fn descriptions_that_contradict_each_other_are_no_harm() {
        let table =
            table(&[(0, 100, sp(8)), (50, 60, sp(16)), (50, 55, sp(24)), (10, 10, sp(32)), (9, 3, sp(40))]);
        assert_eq!((table.rule(49), table.rule(50), table.rule(80)), (sp(8), sp(24), Rule::None));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        assert_eq!(TableBuilder::default().build(), Ok(None));
        assert_eq!(TableBuilder::default().add(0, 1 << 32, sp(8)), Err(TooLarge));
        let mut wide = TableBuilder::default();
        wide.add(0, 1, sp(8)).unwrap();
        wide.add(u64::from(u32::MAX) - 1, u64::from(u32::MAX), sp(8)).unwrap();
        assert_eq!(wide.build(), Err(TooLarge));
        let mut sparse = TableBuilder::default();
        sparse.add(0, 32 << 20, sp(8)).unwrap();
        assert_eq!(sparse.build(), Err(TooLarge));
        let mut many = TableBuilder::default();
        let refused = (0..u64::MAX).find(|i| many.add(i * 2, i * 2 + 1, sp(8)).is_err());
        assert!(refused.is_some_and(|n| n < 5_000_000), "{refused:?}");
        assert_eq!(Table::from_bytes(vec![0; 31]), None);
        assert_eq!(Table::from_bytes(vec![0; MAX_BYTES + 4]), None);
    }

    #[test]
    fn a_million_functions_of_one_rule_are_a_small_table() {
        let table = table(&(0..1_300_000).map(|n| (n, n + 1, sp(8))).collect::<Vec<_>>());
        assert!(table.bytes().len() < 16 << 10, "{}", table.bytes().len());
        assert_eq!((table.rule(1_299_999), table.rule(1_300_000)), (sp(8), Rule::None));
    }

    #[test]
    fn a_part_has_what_lies_around_an_offset_as_much_as_fits() {
        let rule = |n: u64| sp(8 * i32::try_from(n % 100).unwrap());
        let count = 1_200_000;
        for around in [0, count * 4 - 1, 1 << 31] {
            let mut builder = TableBuilder::around(around);
            (0..count).for_each(|n| builder.add(n * 4, n * 4 + 4, rule(n)).unwrap());
            let TablePart { table, range } = builder.build_part().unwrap().unwrap();
            assert!(range.contains(around), "{range:?}");
            assert!(table.bytes().len() <= MAX_PART_BYTES, "{}", table.bytes().len());
            let known = range.end.min(count * 4);
            if around == 0 {
                assert!(table.bytes().len() * 3 > MAX_PART_BYTES, "{range:?}");
            }
            if around < count * 4 {
                for offset in [range.start, around, known - 1] {
                    assert_eq!(table.rule(offset), rule(offset / 4), "{offset:#x}");
                }
            }
            assert_eq!(table.rule(range.end), Rule::None);
        }
        // Two functions that are far apart: an index of all code between them would be too large.
        let mut sparse = TableBuilder::around(100);
        sparse.add(0, 200, sp(8)).unwrap();
        sparse.add(1 << 31, (1 << 31) + 200, sp(16)).unwrap();
        let part = sparse.build_part().unwrap().unwrap();
        assert_eq!((part.table.rule(100), part.range.start), (sp(8), 0));
        assert_eq!(TableBuilder::around(1 << 40).add(1 << 40, 1 << 41, sp(8)), Ok(()));
    }

    #[test]
    fn a_false_table_has_no_rules_and_no_panic() {
        let table = Table::from_bytes(vec![0xff; 4096]).unwrap();
        for offset in (0..64).map(|bit| 1_u64 << bit) {
            assert!(matches!(table.rule(offset), Rule::None | Rule::Other | Rule::Bare));
        }
    }
}
