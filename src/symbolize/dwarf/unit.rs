//! One unit: its functions, what was inlined into them, and its lines. Each is read when it is first needed.

use std::cell::OnceCell;
use std::rc::Rc;

use gimli::{
    Abbreviation, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfoOffset, Dwarf, EntriesRaw,
    IncompleteLineProgram, Reader as _, Section, UnitOffset, UnitRef, UnitSectionOffset, constants,
};

use super::code::Code;
use super::lines::Lines;
use super::model::{Call, Part, Reader};

/// Inlined calls of one address that are kept; compilers stop far below.
const MAX_INLINED: usize = 128;
/// Ranges of functions in one unit: 24 MiB. A large unit of a program that was optimized as a whole has 100,000.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Bytes of one table of abbreviations; large ones have 100,000. On the heap it takes 30 times as much.
const MAX_ABBREVIATIONS: usize = 1 << 20;
/// What a usual unit's abbreviations take on the heap, bytes (the C library's, on average): they do not tell.
const ABBREVIATIONS: usize = 16 << 10;

/// Code of one function.
#[derive(Clone, Copy, Debug)]
struct Function {
    begin: u64,
    end: u64,
    entry: UnitOffset,
}

/// A function that was inlined, and from where it was called.
struct Inlined {
    entry: UnitOffset,
    file: Option<u64>,
    line: u32,
}

/// Where names stand: in the units of a file, and of the one that it shares debug information with.
pub(super) trait Names {
    /// The debug information of a part.
    fn dwarf(&self, part: Part) -> Option<&Dwarf<Reader>>;

    /// The name of a function's entry, or else that of the entry that it refers to: the mangled one, if there is one.
    fn name(&self, unit: &Rc<Unit>, entry: UnitOffset) -> Option<Reader>;
}

/// A unit.
pub(super) struct Unit {
    pub(super) part: Part,
    unit: gimli::Unit<Reader>,
    program: Option<IncompleteLineProgram<Reader>>,
    functions: OnceCell<Vec<Function>>,
    lines: OnceCell<Option<Lines>>,
}

impl Unit {
    pub(super) fn read(dwarf: &Dwarf<Reader>, part: Part, start: DebugInfoOffset) -> gimli::Result<Unit> {
        let header = dwarf.unit_header(start)?;
        let mut table = *dwarf.debug_abbrev.reader();
        table.skip(header.debug_abbrev_offset().0)?;
        table.truncate(table.len().min(MAX_ABBREVIATIONS))?;
        let abbreviations = DebugAbbrev::from(table).abbreviations(DebugAbbrevOffset(0))?;
        let mut unit = gimli::Unit::new_with_abbreviations(dwarf, header, abbreviations.into())?;
        let program = unit.line_program.take();
        Ok(Unit { part, unit, program, functions: OnceCell::new(), lines: OnceCell::new() })
    }

    /// The offset in this unit, if it is one.
    pub(super) fn entry(&self, offset: DebugInfoOffset) -> Option<UnitOffset> {
        UnitSectionOffset(offset.0).to_unit_offset(&self.unit.header)
    }

    /// Memory that is held, bytes, as far as it is known.
    pub(super) fn memory(&self) -> usize {
        let functions = self.functions.get().map_or(0, |f| f.capacity() * size_of::<Function>());
        let lines = self.lines.get().and_then(Option::as_ref).map_or(0, Lines::memory);
        ABBREVIATIONS + functions + lines
    }

    /// The name that an entry has itself, the mangled one if there is one; else what it refers to for its name.
    pub(super) fn name(
        &self,
        dwarf: &Dwarf<Reader>,
        entry: UnitOffset,
    ) -> gimli::Result<(Option<Reader>, Option<AttributeValue<Reader>>)> {
        let unit = UnitRef::new(dwarf, &self.unit);
        let mut entries = unit.entries_raw(Some(entry))?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok((None, None)) };
        let (mut name, mut next) = (None, None);
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            match attribute.name() {
                constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => {
                    if let Ok(mangled) = unit.attr_string(attribute.value()) {
                        return Ok((Some(mangled), None));
                    }
                }
                constants::DW_AT_name => name = unit.attr_string(attribute.value()).ok(),
                constants::DW_AT_abstract_origin | constants::DW_AT_specification => {
                    next = Some(attribute.value());
                }
                _ => {}
            }
        }
        Ok((name, next))
    }

    /// The functions at `address`, innermost first; empty if the unit has neither a function nor a line there. `this` is
    /// the unit itself.
    pub(super) fn calls(
        &self,
        names: &impl Names,
        this: &Rc<Unit>,
        address: u64,
    ) -> gimli::Result<Vec<Call>> {
        let Some(dwarf) = names.dwarf(self.part) else { return Ok(Vec::new()) };
        let unit = UnitRef::new(dwarf, &self.unit);
        let lines = self.lines();
        let leaf = lines.and_then(|lines| lines.find(address).ok().flatten());
        let file = |number| lines?.file(unit, number);
        let (mut path, mut line) = leaf.map_or((None, 0), |(number, line)| (file(number), line));
        let Some(function) = self.function(unit, address) else {
            return Ok(leaf.map(|_| Call { name: None, file: path, line }).into_iter().collect());
        };
        let mut calls = Vec::new();
        for inlined in inlined_at(unit, function, address)?.into_iter().rev() {
            let name = names.name(this, inlined.entry).map(|name| name.slice().to_vec());
            calls.push(Call { name, file: path, line });
            (path, line) = (inlined.file.and_then(file), inlined.line);
        }
        let name = names.name(this, function).map(|name| name.slice().to_vec());
        calls.push(Call { name, file: path, line });
        Ok(calls)
    }

    /// The lines; none if they cannot be read.
    pub(super) fn lines(&self) -> Option<&Lines> {
        self.lines.get_or_init(|| Lines::read(self.program.clone()?).ok()).as_ref()
    }

    /// The function that has code at `address`.
    fn function(&self, unit: UnitRef<'_, Reader>, address: u64) -> Option<UnitOffset> {
        let functions = self.functions.get_or_init(|| functions(unit));
        let after = functions.partition_point(|f| f.begin <= address);
        // What begins nearest: linkers put functions that they left out at 0, over everything.
        let found = functions.get(after.checked_sub(1)?)?;
        (address < found.end).then_some(found.entry)
    }

    /// Where the unit's code lies, as its first entry tells; `None` if it is a part of other units.
    pub(super) fn code(&self, dwarf: &Dwarf<Reader>) -> gimli::Result<Option<Code>> {
        let unit = UnitRef::new(dwarf, &self.unit);
        let mut entries = unit.entries_raw(None)?;
        match entries.read_abbreviation()? {
            Some(first) if first.tag() != constants::DW_TAG_partial_unit => {
                code(unit, &mut entries, first).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn unit<'a>(&'a self, dwarf: &'a Dwarf<Reader>) -> UnitRef<'a, Reader> {
        UnitRef::new(dwarf, &self.unit)
    }
}

/// Reads an entry's attributes for where its code is.
fn code(
    unit: UnitRef<'_, Reader>,
    entries: &mut EntriesRaw<'_, Reader>,
    abbreviation: &Abbreviation,
) -> gimli::Result<Code> {
    let mut code = Code::default();
    for &spec in abbreviation.attributes() {
        code.take(unit, &entries.read_attribute(spec)?)?;
    }
    Ok(code)
}

/// The unit's functions that have code, by where it begins: those before what cannot be read.
fn functions(unit: UnitRef<'_, Reader>) -> Vec<Function> {
    let mut functions = Vec::new();
    let _ = read_functions(unit, &mut functions);
    functions.sort_by_key(|f| f.begin);
    functions.shrink_to_fit();
    functions
}

fn read_functions(unit: UnitRef<'_, Reader>, functions: &mut Vec<Function>) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && functions.len() < MAX_FUNCTIONS {
        let entry = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != constants::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        code(unit, &mut entries, abbreviation)?.ranges(unit, |range| {
            functions.push(Function { begin: range.begin, end: range.end, entry });
            functions.len() < MAX_FUNCTIONS
        })?;
    }
    Ok(())
}

/// What was inlined into `function` at `address`, outermost first.
fn inlined_at(unit: UnitRef<'_, Reader>, function: UnitOffset, address: u64) -> gimli::Result<Vec<Inlined>> {
    let mut entries = unit.entries_raw(Some(function))?;
    let mut chain = Vec::new();
    // Of what lies below this depth, all that matters is where it ends.
    let mut inside = entries.next_depth();
    let mut skipped = None;
    if let Some(abbreviation) = entries.read_abbreviation()? {
        entries.skip_attributes(abbreviation.attributes())?;
    }
    while !entries.is_empty() && entries.next_depth() > inside && chain.len() < MAX_INLINED {
        let (entry, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if skipped.is_some_and(|skipped| depth > skipped) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        skipped = None;
        match abbreviation.tag() {
            constants::DW_TAG_inlined_subroutine => {
                let (code, inlined) = inlined(unit, &mut entries, (abbreviation, entry))?;
                if code.contains(unit, address)? {
                    chain.push(inlined);
                    inside = depth;
                } else {
                    skipped = Some(depth);
                }
            }
            tag => {
                entries.skip_attributes(abbreviation.attributes())?;
                // A function in a function has code of its own.
                skipped = (tag == constants::DW_TAG_subprogram).then_some(depth);
            }
        }
    }
    Ok(chain)
}

fn inlined(
    unit: UnitRef<'_, Reader>,
    entries: &mut EntriesRaw<'_, Reader>,
    (abbreviation, entry): (&Abbreviation, UnitOffset),
) -> gimli::Result<(Code, Inlined)> {
    let mut code = Code::default();
    let mut inlined = Inlined { entry, file: None, line: 0 };
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec)?;
        match attribute.name() {
            constants::DW_AT_call_file => {
                if let AttributeValue::FileIndex(number) = attribute.value() {
                    inlined.file = Some(number);
                }
            }
            constants::DW_AT_call_line => {
                let line = attribute.udata_value().and_then(|line| u32::try_from(line).ok());
                inlined.line = line.unwrap_or(0);
            }
            _ => code.take(unit, &attribute)?,
        }
    }
    Ok((code, inlined))
}
