//! Source lines and inlined functions, from DWARF.
//!
//! Of a file, only the places of its units are held (16 to 32 bytes a range), and a few units that were used last: one
//! unit unpacked is some 16 KiB, and the C library alone has two thousand.
#![allow(unsafe_code)]

mod code;
mod lines;
mod model;
mod unit;
mod units;

#[cfg(test)]
mod oracle_tests;

use std::cell::RefCell;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, SectionId, UnitOffset};

use super::bytes::{Bytes, Mapping};
use super::elf::{Elf, ElfError};
pub(crate) use model::Call;
use model::{Part, Reader};
use unit::{Names, Unit};
use units::Units;

/// Units that are held; names may stand in other units than the code.
const MAX_UNITS: usize = 16;
/// What units may take between requests, bytes.
const MAX_KEPT: usize = 4 << 20;
/// Entries that one entry refers to, one after the other, for its name. Compilers stop at three.
const MAX_REFERENCES: usize = 16;

/// Debug information that is not what it should be: the file is used without.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DebugError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("DWARF that cannot be read: {0}")]
    Dwarf(#[from] gimli::Error),
}

/// A unit and where it begins.
struct Used {
    part: Part,
    start: usize,
    unit: Rc<Unit>,
}

/// The debug information of one file.
pub(crate) struct Debug {
    /// The one that was used last stands last.
    used: RefCell<Vec<Used>>,
    units: Units,
    shared_units: Units,
    dwarf: Dwarf<Reader>,
    /// What all the above refers to: fields are dropped in order.
    sections: Vec<Bytes>,
    mappings: Vec<Rc<Mapping>>,
}

impl Debug {
    /// Reads `.debug_*` of `elf`; `alternate` is the supplementary file of `dwz`, if `elf` names one.
    pub(crate) fn read(elf: &Elf, alternate: Option<&Elf>) -> Result<Debug, DebugError> {
        let (mut sections, mut mappings) = (Vec::new(), Vec::new());
        let mut dwarf = load(elf, &mut sections, &mut mappings)?;
        if let Some(alternate) = alternate {
            dwarf.set_sup(load(alternate, &mut sections, &mut mappings)?);
        }
        let units = Units::read(&dwarf);
        let shared_units = dwarf.sup().map(Units::starts_of).unwrap_or_default();
        let debug = Debug { used: RefCell::default(), units, shared_units, dwarf, sections, mappings };
        debug.rest();
        Ok(debug)
    }

    /// Memory that is held on the heap, bytes: unpacked sections, the places of units, the units that are kept.
    pub(crate) fn memory(&self) -> usize {
        let sections: usize = self.sections.iter().map(Bytes::heap).sum();
        sections + self.units.memory() + self.shared_units.memory() + self.units_memory()
    }

    /// The functions at `address`, innermost first: the last one is the function that has code of its own, the others
    /// were inlined into it.
    pub(crate) fn calls(&self, address: u64) -> Vec<Call> {
        let mut line = Vec::new();
        for start in self.units.at(address) {
            let Some(unit) = self.unit(Part::Own, start) else { continue };
            let calls = unit.calls(self, &unit, address).unwrap_or_default();
            // Another unit may know the function.
            if calls.last().is_some_and(|own| own.name.is_some()) {
                return calls;
            }
            if line.is_empty() {
                line = calls;
            }
        }
        line
    }

    /// Gives back what is quickly had again: the pages of the files, and units beyond what may be kept; whether some are.
    pub(crate) fn rest(&self) -> bool {
        while self.units_memory() > MAX_KEPT {
            self.used.borrow_mut().remove(0);
        }
        self.mappings.iter().for_each(|mapping| mapping.release());
        !self.used.borrow().is_empty()
    }

    /// Forgets all units.
    pub(crate) fn forget_units(&self) {
        *self.used.borrow_mut() = Vec::new();
    }

    fn units_memory(&self) -> usize {
        self.used.borrow().iter().map(|used| used.unit.memory()).sum()
    }

    /// The unit that begins at `start` in `.debug_info`.
    fn unit(&self, part: Part, start: usize) -> Option<Rc<Unit>> {
        let known = {
            let mut used = self.used.borrow_mut();
            let at = used.iter().rposition(|used| used.part == part && used.start == start);
            at.map(|at| {
                let one = used.remove(at);
                let unit = Rc::clone(&one.unit);
                used.push(one);
                unit
            })
        };
        if known.is_some() {
            return known;
        }
        let unit = Rc::new(Unit::read(self.dwarf(part)?, part, DebugInfoOffset(start)).ok()?);
        let mut used = self.used.borrow_mut();
        if used.len() >= MAX_UNITS {
            used.remove(0);
        }
        used.push(Used { part, start, unit: Rc::clone(&unit) });
        Some(unit)
    }

    /// The entry that an attribute of an entry in `unit` refers to.
    fn follow(&self, unit: Rc<Unit>, to: AttributeValue<Reader>) -> Option<(Rc<Unit>, UnitOffset)> {
        let (part, offset) = match to {
            AttributeValue::UnitRef(entry) => return Some((unit, entry)),
            AttributeValue::DebugInfoRef(offset) => (unit.part, offset),
            AttributeValue::DebugInfoRefSup(offset) if unit.part == Part::Own => (Part::Shared, offset),
            _ => return None,
        };
        let units = if part == Part::Own { &self.units } else { &self.shared_units };
        let unit = self.unit(part, units.around(offset.0)?)?;
        let entry = unit.entry(offset)?;
        Some((unit, entry))
    }
}

impl Names for Debug {
    fn dwarf(&self, part: Part) -> Option<&Dwarf<Reader>> {
        match part {
            Part::Own => Some(&self.dwarf),
            Part::Shared => self.dwarf.sup(),
        }
    }

    fn name(&self, unit: &Rc<Unit>, entry: UnitOffset) -> Option<Reader> {
        let (mut unit, mut entry) = (Rc::clone(unit), entry);
        for _ in 0..MAX_REFERENCES {
            let (name, next) = unit.name(self.dwarf(unit.part)?, entry).ok()?;
            if name.is_some() {
                return name;
            }
            (unit, entry) = self.follow(unit, next?)?;
        }
        None
    }
}

fn load(
    elf: &Elf,
    sections: &mut Vec<Bytes>,
    mappings: &mut Vec<Rc<Mapping>>,
) -> Result<Dwarf<Reader>, DebugError> {
    let mapping = match elf.file() {
        Some(file) => Some(Rc::new(Mapping::of(file, elf.file_size()?)?)),
        None => None,
    };
    mappings.extend(mapping.clone());
    Dwarf::load(|id: SectionId| -> Result<Reader, DebugError> {
        // Where variables live: nobody asks, and unpacked it would stay in memory.
        if matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists) {
            return Ok(EndianSlice::new(&[], LittleEndian));
        }
        let bytes = Bytes::of(elf, mapping.as_ref(), id.name())?;
        // SAFETY: `Debug` keeps every `Bytes` of `sections` until all that reads them is dropped; if reading fails here,
        // the readers are dropped by `load`'s caller before the vector.
        let slice = unsafe { bytes.unbound() };
        sections.push(bytes);
        Ok(EndianSlice::new(slice, LittleEndian))
    })
}
