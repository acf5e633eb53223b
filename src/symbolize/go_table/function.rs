//! The table's record of one function (`runtime._func`).

use super::header::{GoTableHeader, Version};
use super::image::{Image, number, word};
use super::module::ModuleData;
use super::values::{ReadAllowance, Values};

/// Index of the value table that gives the inlined call of an instruction (`abi.PCDATA_InlTreeIndex`).
const INLINED: u32 = 2;
/// Index of the data that describes the inlined calls (`abi.FUNCDATA_InlTree`).
const TREE: u32 = 3;
/// Flags: the outermost function of a stack; one that switches to another stack (`abi.FuncFlag`; Go 1.16 has none).
const TOP: u8 = 1;
const OTHER_STACK: u8 = 2;
/// Bytes of a path that are read.
const MAX_PATH: usize = 4096;
/// Go's value for an absent unit or an absent tree of inlined calls.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct GoFunction {
    pub(super) entry: u64,
    pub(super) end: u64,
    /// Offset of the function's name.
    pub(super) name: u32,
    /// Offset of the value table of bytes on the stack above the return address. 0 if absent or not reliable.
    pub(super) depths: u32,
    /// Offsets of the value tables of files, of lines, of inlined calls. 0 if absent.
    pub(super) files: u32,
    pub(super) lines: u32,
    pub(super) inlined: u32,
    /// Index of the unit's first file.
    unit: u32,
    /// Place of the description of inlined calls: an address in Go 1.16, from 1.18 on an offset from an address that
    /// the module data contains.
    pub(super) tree: Option<u64>,
}

impl GoFunction {
    /// The function that contains `pc`.
    pub(super) fn at(
        image: &dyn Image,
        header: &GoTableHeader,
        module: &ModuleData,
        pc: u64,
    ) -> Option<GoFunction> {
        let (mut low, mut high) = (0, header.functions);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if start(image, header, module, middle)? <= pc {
                low = middle;
            } else {
                high = middle;
            }
        }
        let function = GoFunction::numbered(image, header, module, low)?;
        (function.entry..function.end).contains(&pc).then_some(function)
    }

    /// The function with this index, counted by address.
    pub(super) fn numbered(
        image: &dyn Image,
        header: &GoTableHeader,
        module: &ModuleData,
        index: u64,
    ) -> Option<GoFunction> {
        let (entry, end) = (start(image, header, module, index)?, start(image, header, module, index + 1)?);
        let size = row(header);
        let at = header.rows.checked_add(index * 2 * u64::from(size))?;
        let at = header.rows.checked_add(word(image, at.checked_add(u64::from(size))?, size)?)?;
        // The record begins with the function's start, as the row does.
        if entry >= end || code(module, header, word(image, at, size)?)? != entry {
            return None;
        }
        let rest = at.checked_add(u64::from(size))?;
        let field = |bytes: u64| number(image, rest.checked_add(bytes)?);
        let len = if header.version == Version::Go120 { 40 } else { 36 };
        let (tables, [_, flags, _, data]) = (field(24)?, field(len - 4)?.to_le_bytes());
        let walked = header.version != Version::Go116 && flags & (TOP | OTHER_STACK) == 0;
        let inlined = if tables > INLINED { field(len + u64::from(INLINED) * 4)? } else { 0 };
        let after = rest.checked_add(len + u64::from(tables) * 4)?;
        let tree = if u32::from(data) > TREE { tree(image, header, after) } else { None };
        Some(GoFunction {
            entry,
            end,
            name: field(0)?,
            depths: if walked { field(12)? } else { 0 },
            files: field(16)?,
            lines: field(20)?,
            inlined,
            unit: field(28)?,
            tree,
        })
    }

    /// The value at `pc` in one of the function's tables, -1 without the table. `None` if the table cannot be read.
    pub(super) fn value(
        &self,
        image: &dyn Image,
        header: &GoTableHeader,
        table: u32,
        pc: u64,
        allowance: &ReadAllowance,
    ) -> Option<i32> {
        if table == 0 {
            return Some(-1);
        }
        let mut values = self.values(image, header, table, allowance)?;
        values.find(|value| pc < value.end).map(|value| value.value)
    }

    /// One of the function's tables; `None` if it is absent.
    pub(super) fn values<'i>(
        &self,
        image: &'i dyn Image,
        header: &GoTableHeader,
        table: u32,
        allowance: &'i ReadAllowance,
    ) -> Option<Values<'i>> {
        let address =
            header.values.checked_add(u64::from(table)).filter(|&at| table != 0 && at < header.rows)?;
        Some(Values::new(image, allowance, address, self.entry, header.quantum))
    }

    /// The name of the file with this number in the function's unit.
    pub(super) fn file(&self, image: &dyn Image, header: &GoTableHeader, file: i32) -> Option<Vec<u8>> {
        let index = u64::from(self.unit) + u64::from(u32::try_from(file).ok()?);
        let at = header.units.checked_add(index * 4).filter(|&at| self.unit != NONE && at < header.files)?;
        header.text(image, header.files, header.values, number(image, at)?, MAX_PATH)
    }
}

/// Bytes of a number in the list of functions.
fn row(header: &GoTableHeader) -> u8 {
    if header.version == Version::Go116 { header.word } else { 4 }
}

/// The start of the function with this index; the index after the last function gives the end of the last one.
fn start(image: &dyn Image, header: &GoTableHeader, module: &ModuleData, index: u64) -> Option<u64> {
    let size = row(header);
    let at = header.rows.checked_add(index * 2 * u64::from(size))?;
    code(module, header, word(image, at, size)?)
}

fn code(module: &ModuleData, header: &GoTableHeader, value: u64) -> Option<u64> {
    if header.version == Version::Go116 { Some(value) } else { module.text.checked_add(value) }
}

fn tree(image: &dyn Image, header: &GoTableHeader, data: u64) -> Option<u64> {
    if header.version == Version::Go116 {
        let size = u64::from(header.word);
        let data = data.checked_next_multiple_of(size)?;
        return word(image, data.checked_add(u64::from(TREE) * size)?, header.word).filter(|&tree| tree != 0);
    }
    number(image, data.checked_add(u64::from(TREE) * 4)?).filter(|&tree| tree != NONE).map(u64::from)
}
