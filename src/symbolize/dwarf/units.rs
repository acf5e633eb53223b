//! Where a file's units are, and where their code is.

use gimli::{DebugArangesOffset, DebugInfoOffset, Dwarf, Range, UnitType};

use super::model::{Part, Reader};
use super::unit::Unit;

/// Units of one file: Chromium has 40,000.
const MAX_UNITS: usize = 1 << 20;
/// Ranges of one file: 32 MiB.
const MAX_RANGES: usize = 1 << 20;
/// Ranges that are looked at for one address: usually one has it.
const MAX_TRIED: usize = 256;

/// Code of one unit.
#[derive(Clone, Copy, Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    /// The highest end of this one and those before.
    reach: u64,
    /// Number of the unit in `starts`.
    unit: u32,
}

/// The units of a file.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// Where each begins in `.debug_info`, ascending.
    starts: Vec<usize>,
    /// By where they begin.
    ranges: Vec<UnitRange>,
}

impl Units {
    /// Reads where they are and where their code is. Those after one that cannot be read are left out.
    pub(super) fn read(dwarf: &Dwarf<Reader>) -> Units {
        let tables = address_tables(dwarf);
        let mut units = Units::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(start) = header.debug_info_offset() else { continue };
            let Ok(number) = u32::try_from(units.starts.len()) else { break };
            units.starts.push(start.0);
            if units.starts.len() >= MAX_UNITS || units.ranges.len() >= MAX_RANGES {
                break;
            }
            // Types have no code, and parts of units that others refer to have none of their own.
            if matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
                units.add(dwarf, &tables, (number, start));
            }
        }
        units.sort();
        units
    }

    /// Reads only where they are.
    pub(super) fn starts_of(dwarf: &Dwarf<Reader>) -> Units {
        let mut starts = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            starts.extend(header.debug_info_offset().map(|start| start.0));
            if starts.len() >= MAX_UNITS {
                break;
            }
        }
        starts.shrink_to_fit();
        Units { starts, ranges: Vec::new() }
    }

    /// Where the units begin that may have code at `address`, the likeliest first: linkers leave what they left out at 0,
    /// so that it overlaps with others.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = usize> + '_ {
        let after = self.ranges.partition_point(|r| r.begin <= address);
        let before = self.ranges.get(..after).unwrap_or_default().iter().rev();
        before
            .take(MAX_TRIED)
            .take_while(move |r| r.reach > address)
            .filter(move |r| r.end > address)
            .filter_map(|r| self.starts.get(r.unit as usize).copied())
    }

    /// Where the unit begins that has the entry at `offset` in `.debug_info`.
    pub(super) fn around(&self, offset: usize) -> Option<usize> {
        let after = self.starts.partition_point(|&start| start < offset);
        self.starts.get(after.checked_sub(1)?).copied()
    }

    /// Memory that is held, bytes.
    pub(super) fn memory(&self) -> usize {
        self.starts.capacity() * size_of::<usize>() + self.ranges.capacity() * size_of::<UnitRange>()
    }

    /// Adds where a unit has code: as `.debug_aranges` says, which is read quickly; else as the unit does; else, as some
    /// assemblers do not, as its lines do.
    fn add(
        &mut self,
        dwarf: &Dwarf<Reader>,
        tables: &[(usize, DebugArangesOffset)],
        (number, start): (u32, DebugInfoOffset),
    ) {
        let before = self.ranges.len();
        let of_unit = tables.partition_point(|&(unit, _)| unit < start.0);
        for &(unit, table) in tables.get(of_unit..).unwrap_or_default() {
            if unit != start.0 {
                break;
            }
            self.add_table(dwarf, number, table);
        }
        if self.ranges.len() > before {
            return;
        }
        let Ok(unit) = Unit::read(dwarf, Part::Own, start) else { return };
        // Up to DWARF 4, only the first entry tells that this is a part of others. It has the lines of one of them.
        let Ok(Some(code)) = unit.code(dwarf) else { return };
        let _ = code.ranges(unit.unit(dwarf), |r| self.push(number, r));
        if self.ranges.len() == before {
            let lines = unit.lines();
            let _ = lines.into_iter().flat_map(|lines| lines.ranges()).all(|r| self.push(number, r));
        }
    }

    fn add_table(&mut self, dwarf: &Dwarf<Reader>, number: u32, table: DebugArangesOffset) {
        let Ok(table) = dwarf.debug_aranges.header(table) else { return };
        let mut entries = table.entries();
        // An entry that makes no sense is left out; after one that cannot be read, there is no other.
        while let Some(entry) = entries.next().transpose() {
            let Ok(entry) = entry else { continue };
            if entry.length() > 0 && !self.push(number, entry.range()) {
                break;
            }
        }
    }

    /// Whether there is room for more.
    fn push(&mut self, unit: u32, Range { begin, end }: Range) -> bool {
        match self.ranges.last_mut() {
            // Functions in sections of their own, side by side.
            Some(last) if last.unit == unit && last.end == begin => last.end = end,
            _ => self.ranges.push(UnitRange { begin, end, reach: 0, unit }),
        }
        self.ranges.len() < MAX_RANGES
    }

    fn sort(&mut self) {
        self.ranges.sort_unstable_by_key(|r| (r.begin, r.unit));
        let mut reach = 0;
        for range in &mut self.ranges {
            reach = range.end.max(reach);
            range.reach = reach;
        }
        self.starts.shrink_to_fit();
        self.ranges.shrink_to_fit();
    }
}

/// The sets of `.debug_aranges`, by the unit that each is of; a unit may have several.
fn address_tables(dwarf: &Dwarf<Reader>) -> Vec<(usize, DebugArangesOffset)> {
    let mut tables = Vec::new();
    let mut headers = dwarf.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        tables.push((header.debug_info_offset().0, header.offset()));
        if tables.len() >= MAX_UNITS {
            break;
        }
    }
    tables.sort_unstable_by_key(|&(unit, table)| (unit, table.0));
    tables
}
