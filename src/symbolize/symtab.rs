//! Which function covers an address: an ELF file's symbols as disjoint ranges.
//!
//! A name is given only where a symbol's own size covers the address: tools that take the nearest symbol below name
//! the code between two functions after its neighbour. Hand-written assembler often leaves sizes out; such a symbol
//! names the function that begins with it, if something else tells how far that reaches. Names stay in the file and are
//! read when they are asked for.

use super::elf::{Elf, ElfError, SHF_EXECINSTR, Section};
use super::entry;
use super::fields::{Class, Fields};

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;
const STB_WEAK: u8 = 2;

/// Symbols that are read of one file: 24 MiB of ranges, above what Chromium has.
const MAX_SYMBOLS: usize = 1 << 20;
/// Symbols are looked at, at most.
const MAX_RECORDS: u64 = 1 << 23;
/// Read at a time, records.
const CHUNK: u64 = 4096;
/// Longest name that is read, bytes.
const MAX_NAME: usize = 256 << 10;

/// A part of a function: `start..start + len`, and where its name lies in the string table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    len: u32,
    name: u32,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: u32,
    /// Among symbols of the same range the lowest wins: global before weak before local.
    rank: u8,
}

/// A function without a size, and where its name lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    address: u64,
    rank: u8,
    name: u32,
}

/// The functions of one symbol table.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    ranges: Vec<Range>,
    starts: Vec<Start>,
    strings: Option<(u64, u64)>,
}

impl Symbols {
    /// Reads the table of that name (`.symtab`, `.dynsym`) of `elf`; without one there are no symbols. If the file's
    /// table is beyond the limits it is cut.
    pub(crate) fn read(elf: &Elf, table: &str) -> Result<Symbols, ElfError> {
        let Some(section) = elf.section(table) else { return Ok(Symbols::default()) };
        let Some(strings) = elf.strings_of(section) else {
            return Err(ElfError::Malformed("a symbol table without strings"));
        };
        let mut symbols = functions(elf, section)?;
        let starts = starts(&mut symbols);
        symbols.sort_unstable_by_key(|s| (s.start, std::cmp::Reverse(s.end), s.rank, s.name));
        symbols.dedup_by(|next, kept| {
            let alias = (next.start, next.end) == (kept.start, kept.end);
            if alias
                && next.rank == kept.rank
                && underscores(elf, strings, next.name) < underscores(elf, strings, kept.name)
            {
                kept.name = next.name;
            }
            alias
        });
        let mut ranges = disjoint(&symbols);
        ranges.shrink_to_fit();
        Ok(Symbols { ranges, starts, strings: Some((strings.offset, strings.size)) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.starts.is_empty()
    }

    /// Memory that is held, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.starts.capacity() * size_of::<Start>()
    }

    /// The raw name of the function that covers `address`.
    pub(crate) fn find(&self, elf: &Elf, address: u64) -> Option<Vec<u8>> {
        let after = self.ranges.partition_point(|r| r.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        if address - range.start >= u64::from(range.len) {
            return None;
        }
        name_at(elf, self.strings?, range.name)
    }

    /// The raw name of a function without a size that begins at `start` and is known to have code at `address`. If
    /// another one begins between the two it is not told which of them it is.
    pub(crate) fn starting(&self, elf: &Elf, start: u64, address: u64) -> Option<Vec<u8>> {
        let nearest = self.nearest(address).filter(|nearest| nearest.address == start)?;
        name_at(elf, self.strings?, nearest.name)
    }

    /// The raw name of the last symbol without a size within `start..=address`, which are one piece of code.
    pub(crate) fn mark(&self, elf: &Elf, start: u64, address: u64) -> Option<Vec<u8>> {
        let nearest = self.nearest(address).filter(|nearest| nearest.address >= start)?;
        name_at(elf, self.strings?, nearest.name)
    }

    fn nearest(&self, address: u64) -> Option<&Start> {
        let after = self.starts.partition_point(|s| s.address <= address);
        self.starts.get(after.checked_sub(1)?)
    }
}

/// The NUL-terminated text at `at` of the string table (offset, size).
pub(crate) fn name_at(elf: &Elf, (offset, size): (u64, u64), at: u32) -> Option<Vec<u8>> {
    let (start, left) = (offset.checked_add(u64::from(at))?, size.checked_sub(u64::from(at))?);
    let mut name = Vec::new();
    let mut want = 128_usize;
    loop {
        want = want.min(MAX_NAME).min(usize::try_from(left).unwrap_or(MAX_NAME));
        name.resize(want, 0);
        let got = elf.read_some(&mut name, start).ok()?;
        name.truncate(got);
        if let Some(end) = name.iter().position(|&b| b == 0) {
            name.truncate(end);
            break;
        }
        if got < want || want >= MAX_NAME || want as u64 >= left {
            break;
        }
        want *= 8;
    }
    (!name.is_empty()).then_some(name)
}

fn functions(elf: &Elf, table: &Section) -> Result<Vec<Symbol>, ElfError> {
    let size: u64 = if elf.class() == Class::Elf64 { 24 } else { 16 };
    let count = (table.size / size).min(MAX_RECORDS);
    let mut symbols = Vec::new();
    let mut at = 0;
    while at < count {
        let records = CHUNK.min(count - at);
        let bytes = elf.bytes(table.offset + at * size, records * size, CHUNK * size)?;
        let found = bytes.chunks_exact(size as usize).filter_map(|r| symbol(elf, &Fields(r)));
        symbols.extend(found.take(MAX_SYMBOLS - symbols.len().min(MAX_SYMBOLS)));
        at += records;
    }
    Ok(symbols)
}

fn symbol(elf: &Elf, f: &Fields<'_>) -> Option<Symbol> {
    let name = f.u32(0);
    let (info, index, start, size) = match elf.class() {
        Class::Elf64 => (f.0[4], f.u16(6), f.u64(8), f.u64(16)),
        Class::Elf32 => (f.0[12], f.u16(14), u64::from(f.u32(4)), u64::from(f.u32(8))),
    };
    let code = match info & 15 {
        STT_FUNC | STT_GNU_IFUNC => true,
        // Assembler functions often lack a type; data has one.
        STT_NOTYPE => elf.sections().get(usize::from(index)).is_some_and(|s| s.flags & SHF_EXECINSTR != 0),
        _ => false,
    };
    let end = start.checked_add(size)?;
    let rank = match info >> 4 {
        STB_LOCAL => 2,
        STB_WEAK => 1,
        _ => 0,
    };
    // Without type and size, what is local is a mark within a function, or the linker's; but where a file is entered
    // there may be nothing else.
    let function = size != 0 || rank < 2 || info & 15 != STT_NOTYPE || entry::reaches(elf, start);
    // Index 0 is an undefined symbol; a length beyond 4 GiB is no function.
    (code && function && index != 0 && name != 0 && size <= u64::from(u32::MAX)).then_some(Symbol {
        start,
        end,
        name,
        rank,
    })
}

/// Takes those without a size out of `symbols`: one for each address, sorted.
fn starts(symbols: &mut Vec<Symbol>) -> Vec<Start> {
    let sizeless = symbols.extract_if(.., |s| s.start == s.end);
    let mut starts: Vec<Start> =
        sizeless.map(|s| Start { address: s.start, rank: s.rank, name: s.name }).collect();
    starts.sort_unstable();
    starts.dedup_by_key(|s| s.address);
    starts.shrink_to_fit();
    starts
}

/// How many underscores a name starts with: of `__libc_malloc`, `__malloc` and `malloc` users know the last.
fn underscores(elf: &Elf, strings: &Section, at: u32) -> usize {
    let mut start = [0; 8];
    let read = strings.offset.checked_add(u64::from(at)).and_then(|at| elf.read_some(&mut start, at).ok());
    start.iter().take(read.unwrap_or(0)).take_while(|&&b| b == b'_').count()
}

/// Cuts symbols that lie within each other into ranges of which each belongs to the innermost. `symbols` are sorted by
/// start, the longer first.
fn disjoint(symbols: &[Symbol]) -> Vec<Range> {
    let mut ranges = Vec::with_capacity(symbols.len());
    let mut push = |start: u64, end: u64, name: u32| {
        if end > start {
            ranges.push(Range { start, len: u32::try_from(end - start).unwrap_or(u32::MAX), name });
        }
    };
    let mut open: Vec<Symbol> = Vec::new();
    let mut at = 0;
    for symbol in symbols {
        // What ends before this symbol starts gets its rest, innermost first.
        while let Some(inner) = open.last().copied() {
            let end = inner.end.min(symbol.start);
            push(at.max(inner.start), end, inner.name);
            at = at.max(end);
            if inner.end > symbol.start {
                break;
            }
            open.pop();
        }
        at = at.max(symbol.start);
        open.push(*symbol);
    }
    while let Some(inner) = open.pop() {
        push(at.max(inner.start), inner.end, inner.name);
        at = at.max(inner.end);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::super::elf::SHT_NOBITS;
    use super::*;

    const SHT_STRTAB: u32 = 3;

    /// A file of 0x1000 bytes with one function, whose name is said to lie in a section of this kind and place.
    fn file(kind: u32, offset: u64, size: u64) -> Elf {
        let mut file = vec![0; 0x1000];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01");
        put(40, &64_u64.to_le_bytes());
        // Four sections; the third has their names.
        put(58, &[64, 0, 4, 0, 3, 0]);
        let mut section = |n: usize, (name, kind, link): (u8, u32, u8), offset: u64, size: u64| {
            let header = 64 + n * 64;
            put(header, &[name]);
            put(header + 4, &kind.to_le_bytes());
            put(header + 24, &offset.to_le_bytes());
            put(header + 32, &size.to_le_bytes());
            put(header + 40, &[link]);
        };
        section(1, (1, 2, 2), 0x200, 24);
        section(2, (0, kind, 0), offset, size);
        section(3, (0, 3, 0), 0x300, 9);
        put(0x200, &[1, 0, 0, 0, STT_FUNC | 1 << 4, 0, 1, 0]);
        put(0x208, &0x10_u64.to_le_bytes());
        put(0x210, &0x10_u64.to_le_bytes());
        put(0x300, b"\0.symtab\0");
        put(0x400, b"\0main\0");
        Elf::read_memory(file).unwrap()
    }

    #[test]
    fn strings_that_the_file_has_no_bytes_of_name_nothing() {
        let named = |elf: &Elf| Symbols::read(elf, ".symtab").map(|symbols| symbols.find(elf, 0x18));
        assert_eq!(named(&file(SHT_STRTAB, 0x400, 6)).unwrap(), Some(b"main".to_vec()));
        for (offset, size) in [(0x400, 6), (u64::MAX, u64::MAX)] {
            assert!(named(&file(SHT_NOBITS, offset, size)).is_err(), "{offset:#x}");
        }
    }

    fn cut(symbols: &[(u64, u64, u32)]) -> Vec<(u64, u64, u32)> {
        let symbols: Vec<Symbol> =
            symbols.iter().map(|&(start, end, name)| Symbol { start, end, name, rank: 0 }).collect();
        disjoint(&symbols).iter().map(|r| (r.start, r.start + u64::from(r.len), r.name)).collect()
    }

    #[test]
    fn gaps_stay_gaps() {
        assert_eq!(cut(&[(10, 20, 1), (30, 40, 2)]), [(10, 20, 1), (30, 40, 2)]);
    }

    #[test]
    fn the_innermost_symbol_owns_its_range() {
        assert_eq!(
            cut(&[(10, 100, 1), (20, 30, 2), (50, 60, 3), (52, 54, 4)]),
            [(10, 20, 1), (20, 30, 2), (30, 50, 1), (50, 52, 3), (52, 54, 4), (54, 60, 3), (60, 100, 1)]
        );
    }

    #[test]
    fn overlaps_that_do_not_nest_lose_nothing() {
        let ranges = cut(&[(10, 30, 1), (20, 50, 2), (25, 27, 3)]);
        assert_eq!(ranges, [(10, 20, 1), (20, 25, 2), (25, 27, 3), (27, 50, 2)]);
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{ranges:?}");
        }
    }
}
