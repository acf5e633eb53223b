//! Symbol names that blazesym does not choose well: which of several names of one address to print, and where a
//! function without a symbol size begins.
//!
//! blazesym returns any of `malloc`, `__malloc` and `__libc_malloc`. For a symbol without a size, blazesym takes
//! everything up to the next symbol, even if that is a label or data. Here global names come before weak ones and weak
//! before local ones; then the fewest underscores win. A symbol without a size names the function that begins with it,
//! if another source says how far the function reaches. Names stay in the file and are read on demand.

use super::elf::{Elf, ElfError, SHF_EXECINSTR, Section};
use super::entry;
use super::fields::{ElfClass, Fields};

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;
const STB_WEAK: u8 = 2;

/// Symbols read from one file: 96 MiB for a moment, four times as many as Chromium has.
const MAX_SYMBOLS: usize = 1 << 22;
/// Symbol records examined, at most.
const MAX_RECORDS: u64 = 1 << 23;
/// Records read at a time.
const CHUNK: u64 = 4096;
/// Longest name that is read, bytes.
const MAX_NAME: usize = 256 << 10;

/// A function that begins where another function begins; `name` is an offset in the string table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alias {
    start: u64,
    len: u32,
    name: u32,
}

#[derive(Clone, Copy, Debug)]
struct AliasSymbol {
    start: u64,
    end: u64,
    name: u32,
    /// Among symbols of one range, the lowest rank wins: global before weak before local.
    rank: u8,
    is_function: bool,
}

/// A function without a size; `name` is an offset in the string table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    address: u64,
    rank: u8,
    name: u32,
    /// The symbol's type says that it is a function.
    is_function: bool,
}

/// The aliases and the functions without a size of one symbol table.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    /// Sorted by start, the shorter first.
    aliases: Vec<Alias>,
    starts: Vec<Start>,
    strings: Option<StringTable>,
}

impl Aliases {
    /// Reads the symbol table named `table` (`.symtab` or `.dynsym`). The result is empty if `elf` has no such table. A
    /// table beyond the limits is cut.
    pub(super) fn read(elf: &Elf, table: &str) -> Result<Aliases, ElfError> {
        let Some(section) = elf.section(table) else { return Ok(Aliases::default()) };
        let Some(strings) = elf.strings_of(section) else {
            return Err(ElfError::Malformed("a symbol table without strings"));
        };
        let mut symbols = functions(elf, section)?;
        let starts = starts(&mut symbols);
        symbols.sort_unstable_by_key(|s| (s.start, s.end, s.rank, s.name));
        let mut aliases = Vec::new();
        for own in symbols.chunk_by(|a, b| a.start == b.start).filter(|own| own.len() > 1) {
            for same in own.chunk_by(|a, b| a.end == b.end) {
                let best = same.iter().take_while(|symbol| symbol.rank == same[0].rank);
                let best =
                    best.min_by_key(|symbol| underscores(elf, strings, symbol.name)).unwrap_or(&same[0]);
                let len = u32::try_from(best.end - best.start).unwrap_or(u32::MAX);
                aliases.push(Alias { start: best.start, len, name: best.name });
            }
        }
        aliases.shrink_to_fit();
        Ok(Aliases {
            aliases,
            starts,
            strings: Some(StringTable { offset: strings.offset, size: strings.size }),
        })
    }

    /// Bytes of memory that the lists take.
    pub(super) fn memory(&self) -> usize {
        self.aliases.capacity() * size_of::<Alias>() + self.starts.capacity() * size_of::<Start>()
    }

    /// The raw name of the innermost of several functions that begin at `start` and contain `address`.
    pub(super) fn find(&self, elf: &Elf, start: u64, address: u64) -> Option<Vec<u8>> {
        let from = self.aliases.partition_point(|alias| alias.start < start);
        let own = self.aliases[from..].iter().take_while(|alias| alias.start == start);
        let alias = own.into_iter().find(|alias| address.wrapping_sub(start) < u64::from(alias.len))?;
        name_at(elf, self.strings?, alias.name)
    }

    /// The raw name of a function without a size that begins at `start` and is known to contain `address`. `None` if
    /// another such function begins between the two: then either can be the right one.
    pub(super) fn beginning_at(&self, elf: &Elf, start: u64, address: u64) -> Option<Vec<u8>> {
        let nearest = self.nearest(address).filter(|nearest| nearest.address == start)?;
        name_at(elf, self.strings?, nearest.name)
    }

    /// The raw name of the last symbol without a size within `start..=address`, a range that is one piece of code.
    pub(super) fn last_within(&self, elf: &Elf, start: u64, address: u64) -> Option<Vec<u8>> {
        let nearest = self.nearest(address).filter(|nearest| nearest.address >= start)?;
        name_at(elf, self.strings?, nearest.name)
    }

    /// The raw name of the function without a size that begins at `start`, if its symbol has the type of a function.
    pub(super) fn function(&self, elf: &Elf, start: u64) -> Option<Vec<u8>> {
        let nearest =
            self.nearest(start).filter(|nearest| nearest.address == start && nearest.is_function)?;
        name_at(elf, self.strings?, nearest.name)
    }

    fn nearest(&self, address: u64) -> Option<&Start> {
        let after = self.starts.partition_point(|s| s.address <= address);
        self.starts.get(after.checked_sub(1)?)
    }
}

/// Where a string table is in its file, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringTable {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// The NUL-terminated text at offset `at` of the string table (offset, size).
pub(super) fn name_at(elf: &Elf, StringTable { offset, size }: StringTable, at: u32) -> Option<Vec<u8>> {
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

fn functions(elf: &Elf, table: &Section) -> Result<Vec<AliasSymbol>, ElfError> {
    let size: u64 = if elf.class() == ElfClass::Elf64 { 24 } else { 16 };
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

fn symbol(elf: &Elf, f: &Fields<'_>) -> Option<AliasSymbol> {
    let name = f.u32(0);
    let (info, index, start, size) = match elf.class() {
        ElfClass::Elf64 => (f.0[4], f.u16(6), f.u64(8), f.u64(16)),
        ElfClass::Elf32 => (f.0[12], f.u16(14), u64::from(f.u32(4)), u64::from(f.u32(8))),
    };
    let is_function = matches!(info & 15, STT_FUNC | STT_GNU_IFUNC);
    let code = match info & 15 {
        // Assembler functions often lack a type; data has one.
        STT_NOTYPE => elf.sections().get(usize::from(index)).is_some_and(|s| s.flags & SHF_EXECINSTR != 0),
        _ => is_function,
    };
    let end = start.checked_add(size)?;
    let rank = match info >> 4 {
        STB_LOCAL => 2,
        STB_WEAK => 1,
        _ => 0,
    };
    // A local symbol without type and size is a label within a function, or the linker's. At a file's entry point there
    // may be no other symbol.
    let function = size != 0 || rank < 2 || info & 15 != STT_NOTYPE || entry::reaches(elf, start);
    // Index 0 is an undefined symbol. No function is longer than 4 GiB.
    (code && function && index != 0 && name != 0 && size <= u64::from(u32::MAX)).then_some(AliasSymbol {
        start,
        end,
        name,
        rank,
        is_function,
    })
}

/// Moves the symbols without a size out of `symbols`: one for each address, sorted.
fn starts(symbols: &mut Vec<AliasSymbol>) -> Vec<Start> {
    let sizeless = symbols.extract_if(.., |s| s.start == s.end);
    let mut starts: Vec<Start> = sizeless
        .map(|s| Start { address: s.start, rank: s.rank, name: s.name, is_function: s.is_function })
        .collect();
    starts.sort_unstable();
    starts.dedup_by_key(|s| s.address);
    starts.shrink_to_fit();
    starts
}

/// Number of underscores at the start of a name: of `__libc_malloc`, `__malloc` and `malloc`, users know the last.
fn underscores(elf: &Elf, strings: &Section, at: u32) -> usize {
    let mut start = [0; 8];
    let read = strings.offset.checked_add(u64::from(at)).and_then(|at| elf.read_some(&mut start, at).ok());
    start.iter().take(read.unwrap_or(0)).take_while(|&&b| b == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::super::elf::SHT_NOBITS;
    use super::*;

    const SHT_STRTAB: u32 = 3;

    /// A file of 0x1000 bytes with three functions that begin at one address. The section header of their names states
    /// this kind and place.
    fn file(kind: u32, offset: u64, size: u64) -> Elf {
        let mut file = vec![0; 0x1000];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01");
        put(40, &64_u64.to_le_bytes());
        // Four sections; section 3 has their names.
        put(58, &[64, 0, 4, 0, 3, 0]);
        let mut section = |n: usize, name: u8, kind: u32, link: u8, offset: u64, size: u64| {
            let header = 64 + n * 64;
            put(header, &[name]);
            put(header + 4, &kind.to_le_bytes());
            put(header + 24, &offset.to_le_bytes());
            put(header + 32, &size.to_le_bytes());
            put(header + 40, &[link]);
        };
        section(1, 1, 2, 2, 0x200, 72);
        section(2, 0, kind, 0, offset, size);
        section(3, 0, 3, 0, 0x300, 9);
        // `_main` and `main` of 16 bytes, and `in` of 8.
        for (at, (name, size)) in [(0x200, (1, 0x10_u64)), (0x218, (2, 0x10)), (0x230, (4, 8))] {
            put(at, &[name, 0, 0, 0, STT_FUNC | 1 << 4, 0, 1, 0]);
            put(at + 8, &0x10_u64.to_le_bytes());
            put(at + 16, &size.to_le_bytes());
        }
        put(0x300, b"\0.symtab\0");
        put(0x400, b"\0_main\0");
        Elf::read_memory(file).unwrap()
    }

    #[test]
    fn strings_that_the_file_has_no_bytes_of_name_nothing() {
        let named = |elf: &Elf| Aliases::read(elf, ".symtab").map(|aliases| aliases.find(elf, 0x10, 0x18));
        assert_eq!(named(&file(SHT_STRTAB, 0x400, 7)).unwrap(), Some(b"main".to_vec()));
        for (offset, size) in [(0x400, 7), (u64::MAX, u64::MAX)] {
            assert!(named(&file(SHT_NOBITS, offset, size)).is_err(), "{offset:#x}");
        }
    }

    #[test]
    fn users_names_come_first_and_the_innermost_function() {
        let elf = file(SHT_STRTAB, 0x400, 7);
        let aliases = Aliases::read(&elf, ".symtab").unwrap();
        let names = [0x10, 0x17, 0x18, 0x1f, 0x20].map(|address| aliases.find(&elf, 0x10, address));
        let name = |name: &str| Some(name.as_bytes().to_vec());
        assert_eq!(names, [name("in"), name("in"), name("main"), name("main"), None]);
        assert_eq!(aliases.find(&elf, 0x11, 0x18), None, "nothing begins there");
    }
}
