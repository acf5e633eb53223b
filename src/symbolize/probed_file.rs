//! Where a function or a static marker of a file lies: for probes, which the kernel places at an offset in the file.
//!
//! Markers are those of `<sys/sdt.h>`: notes in `.note.stapsdt` (SystemTap's wiki, `UserSpaceProbeImplementation`).

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;

use memchr::memmem;

use super::elf::{EM_X86_64, Elf, ElfError, Section};
use super::fields::{ElfClass, Fields};

/// Limits on what is read of a file, bytes. Tables are read in parts: a file can say that its tables have any size.
const MAX_SYMBOLS: u64 = 256 << 20;
const MAX_STRINGS: u64 = 512 << 20;
pub(super) const PART: u64 = 1 << 20;
/// Names that end as the wanted one: linkers share the ends of strings.
const MAX_PLACES: u64 = 1 << 16;
const MAX_NOTES: u64 = 16 << 20;
/// Places of one marker: the compiler inlines the functions that have it.
const MAX_SITES: usize = 256;

/// `e_machine` of this program.
const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
const EM_AARCH64: u16 = 183;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
const STAPSDT: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// The place of code in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSite {
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// The place of the number that is not 0 while the marker is used; 0: the marker has none.
    pub semaphore: u64,
}

/// Why no place was found.
#[derive(Debug, thiserror::Error)]
pub enum NoProbeSite {
    /// The file is no ELF file, or its headers lead nowhere.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// No descriptor is left.
    #[error("no descriptor is left: {0}")]
    NoDescriptor(#[from] std::io::Error),
    /// No symbol has the name.
    #[error(
        "the file has no function of this name in its symbol tables (a C++ or Rust name is the mangled one)"
    )]
    Function,
    /// The dynamic linker chooses one of several functions.
    #[error("the dynamic linker chooses one of several functions for this name (an IFUNC): name that one")]
    Indirect,
    /// No note has the provider and the name.
    #[error("the file has no static marker of this provider and name ('readelf -n' lists them)")]
    Marker,
    /// The symbol or note leads out of the file's code.
    #[error("the place is not in the code of the file")]
    Outside,
}

/// A program or library, in which functions and markers are found.
#[derive(Debug)]
pub struct ProbedFile(Elf);

impl ProbedFile {
    /// Reads the headers of the file.
    ///
    /// # Errors
    /// If it is not an ELF file that can be read.
    pub fn open(file: OwnedFd) -> Result<ProbedFile, ElfError> {
        Ok(ProbedFile(Elf::read(File::from(file))?))
    }

    /// The same of a file in memory.
    ///
    /// # Errors
    /// If it is not an ELF file that can be read.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<ProbedFile, ElfError> {
        Ok(ProbedFile(Elf::read_memory(bytes)?))
    }

    /// Where the function of this symbol begins.
    ///
    /// # Errors
    /// Why there is no such function.
    pub fn function(&self, symbol: &str) -> Result<ProbeSite, NoProbeSite> {
        self.function_in(&[".symtab", ".dynsym"], symbol)
    }

    /// Where a function begins that the file exports to others.
    ///
    /// # Errors
    /// Why there is no such function.
    pub fn exported_function(&self, symbol: &str) -> Result<ProbeSite, NoProbeSite> {
        self.function_in(&[".dynsym"], symbol)
    }

    /// Whether the code is 64-bit code of this processor.
    #[must_use]
    pub fn is_native(&self) -> bool {
        let ProbedFile(elf) = self;
        elf.class() == ElfClass::Elf64 && elf.machine() == OWN_MACHINE
    }

    fn function_in(&self, tables: &[&str], symbol: &str) -> Result<ProbeSite, NoProbeSite> {
        let ProbedFile(elf) = self;
        let mut indirect = false;
        for &table in tables {
            let Some(section) = elf.section(table) else { continue };
            let Some(names) = elf.strings_of(section) else { continue };
            match symbol_in(elf, section, names, symbol)? {
                Some(FunctionSymbol { kind: FUNCTION, address }) => {
                    return Ok(ProbeSite { offset: code_offset(elf, address)?, semaphore: 0 });
                }
                Some(_) => indirect = true,
                None => {}
            }
        }
        Err(if indirect { NoProbeSite::Indirect } else { NoProbeSite::Function })
    }

    /// Where a static marker lies, each of its places.
    ///
    /// # Errors
    /// Why there is no such marker.
    pub fn marker(&self, provider: &str, name: &str) -> Result<Vec<ProbeSite>, NoProbeSite> {
        let ProbedFile(elf) = self;
        let section = elf.section(".note.stapsdt").ok_or(NoProbeSite::Marker)?;
        // A tool that moves code (prelink) does not change the notes: the base's address says how far.
        let base = elf.section(".stapsdt.base").map(|section| section.addr);
        let notes = elf.bytes(section.offset, section.size, MAX_NOTES)?;
        let mut sites = Vec::new();
        for note in Notes(&notes).filter(|note| note.is(elf.class(), provider, name)).take(MAX_SITES) {
            let [address, linked, semaphore] = note.words(elf.class());
            let moved = base.map_or(0, |base| base.wrapping_sub(linked));
            let semaphore = match semaphore {
                0 => 0,
                address => elf.place_of(address.wrapping_add(moved)).ok_or(NoProbeSite::Outside)?.offset,
            };
            sites.push(ProbeSite { offset: code_offset(elf, address.wrapping_add(moved))?, semaphore });
        }
        if sites.is_empty() { Err(NoProbeSite::Marker) } else { Ok(sites) }
    }
}

/// A symbol of a defined function.
struct FunctionSymbol {
    /// [`FUNCTION`] or [`INDIRECT_FUNCTION`].
    kind: u8,
    address: u64,
}

/// A function with this name; an indirect one only if there is no other.
fn symbol_in(
    elf: &Elf,
    section: &Section,
    names: &Section,
    symbol: &str,
) -> Result<Option<FunctionSymbol>, NoProbeSite> {
    let names = places_of(elf, names, symbol)?;
    within(section.size, MAX_SYMBOLS)?;
    if names.is_empty() {
        return Ok(None);
    }
    let (size, at) = match elf.class() {
        ElfClass::Elf64 => (24, [4, 6, 8]),
        ElfClass::Elf32 => (16, [12, 14, 4]),
    };
    let [info, section_index, value] = at;
    let mut found = None;
    for part in parts(section.size, PART / size * size) {
        for record in elf
            .bytes(section.offset.saturating_add(part.start), part.end - part.start, PART)?
            .chunks_exact(size as usize)
        {
            let fields = Fields(record);
            let kind = record[info] & 0xf;
            let is_function = kind == FUNCTION || kind == INDIRECT_FUNCTION;
            if !is_function || fields.u16(section_index) == 0 || !names.contains(&u64::from(fields.u32(0))) {
                continue;
            }
            let address = fields.word(elf.class(), value, value);
            if kind == FUNCTION {
                return Ok(Some(FunctionSymbol { kind, address }));
            }
            found = Some(FunctionSymbol { kind, address });
        }
    }
    Ok(found)
}

/// Where in a table of strings one is `symbol`, perhaps with a version behind it: `malloc@@GLIBC_2.2.5`.
pub(super) fn places_of(elf: &Elf, names: &Section, symbol: &str) -> Result<HashSet<u64>, ElfError> {
    let mut places = HashSet::new();
    let size = names.size;
    within(size, MAX_STRINGS)?;
    let beyond = symbol.len() as u64;
    for part in parts(size, PART) {
        // A string may reach into the next part.
        let len = (part.end + beyond).min(size) - part.start;
        let bytes = elf.bytes(names.offset.saturating_add(part.start), len, PART + beyond)?;
        let found = memmem::find_iter(&bytes, symbol).filter(|&at| is_named(&bytes[at..], symbol));
        places.extend(found.map(|at| part.start + at as u64));
        within(places.len() as u64, MAX_PLACES)?;
    }
    Ok(places)
}

/// A table that is larger is not read: what it lacks in a part would look as if the file had no such function.
pub(super) fn within(size: u64, limit: u64) -> Result<(), ElfError> {
    if size > limit { Err(ElfError::TooLarge { what: "size of a table", value: size }) } else { Ok(()) }
}

/// Ranges of at most `most`, up to `size`.
pub(super) fn parts(size: u64, most: u64) -> impl Iterator<Item = Range<u64>> {
    (0..size.div_ceil(most)).map(move |part| part * most..((part + 1) * most).min(size))
}

/// Whether the text begins with a string that is `symbol`, perhaps with a version.
fn is_named(text: &[u8], symbol: &str) -> bool {
    text.strip_prefix(symbol.as_bytes()).is_some_and(|rest| matches!(rest.first(), Some(b'\0' | b'@')))
}

/// The offset of code: a breakpoint elsewhere would change data.
fn code_offset(elf: &Elf, address: u64) -> Result<u64, NoProbeSite> {
    elf.code_offset_of(address).ok_or(NoProbeSite::Outside)
}

/// The notes of a section.
struct Notes<'n>(&'n [u8]);

/// The description of a marker: three addresses, then provider, name and arguments, each ended by 0.
struct MarkerNote<'n>(&'n [u8]);

impl<'n> Iterator for Notes<'n> {
    type Item = MarkerNote<'n>;

    fn next(&mut self) -> Option<MarkerNote<'n>> {
        loop {
            let header = self.0.get(..12)?;
            let fields = Fields(header);
            let [owner, description] = [fields.u32(0) as usize, fields.u32(4) as usize];
            let kind = fields.u32(8);
            let begin = 12usize.checked_add(owner.checked_next_multiple_of(4)?)?;
            let end = begin.checked_add(description)?;
            let is_marker = kind == STAPSDT && self.0.get(12..12 + owner.min(OWNER.len())) == Some(OWNER);
            let description = self.0.get(begin..end)?;
            self.0 = self.0.get(end.checked_next_multiple_of(4)?..).unwrap_or_default();
            if is_marker {
                return Some(MarkerNote(description));
            }
        }
    }
}

impl MarkerNote<'_> {
    fn word_size(class: ElfClass) -> usize {
        match class {
            ElfClass::Elf32 => 4,
            ElfClass::Elf64 => 8,
        }
    }

    fn words(&self, class: ElfClass) -> [u64; 3] {
        let size = MarkerNote::word_size(class);
        [0, 1, 2].map(|n| Fields(self.0).word(class, n * size, n * size))
    }

    fn is(&self, class: ElfClass, provider: &str, name: &str) -> bool {
        let mut texts =
            self.0.get(3 * MarkerNote::word_size(class)..).unwrap_or_default().split(|byte| *byte == 0);
        texts.next() == Some(provider.as_bytes()) && texts.next() == Some(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note with a description, padded.
    fn note(owner: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [owner.len() as u32, description.len() as u32, kind] {
            bytes.extend(number.to_le_bytes());
        }
        for part in [owner, description] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn described(address: u64, texts: &str) -> Vec<u8> {
        let words = [address, 0x2000, 0x3000].map(u64::to_le_bytes).concat();
        [&words, texts.as_bytes()].concat()
    }

    #[test]
    fn markers_are_found_among_other_notes() {
        let bytes = [
            note(b"GNU\0", 3, &[1; 20]),
            note(OWNER, STAPSDT, &described(0x1000, "libc\0setjmp\08@%rdi\0")),
            note(OWNER, STAPSDT, &described(0x1010, "libc\0longjmp\0\0")),
            note(OWNER, STAPSDT, b"short"),
        ]
        .concat();
        let found = |provider: &str, name: &str| -> Vec<u64> {
            let all = Notes(&bytes).filter(|note| note.is(ElfClass::Elf64, provider, name));
            all.map(|note| note.words(ElfClass::Elf64)[0]).collect()
        };
        assert_eq!(Notes(&bytes).count(), 3);
        assert_eq!((found("libc", "setjmp"), found("libc", "longjmp")), (vec![0x1000], vec![0x1010]));
        assert_eq!((found("libc", "set"), found("c", "setjmp")), (vec![], vec![]));
        for len in 0..bytes.len() {
            assert!(Notes(&bytes[..len]).count() <= 3, "{len} bytes");
        }
    }

    #[test]
    fn a_symbol_may_have_a_version() {
        assert!(is_named(b"malloc@@GLIBC_2.2.5\0", "malloc") && is_named(b"malloc\0", "malloc"));
        assert!(!is_named(b"mallocs\0", "malloc") && !is_named(b"malloc", "malloc"));
    }

    #[test]
    fn tables_are_read_in_parts() {
        let all = |size, most| parts(size, most).map(|part| (part.start, part.end)).collect::<Vec<_>>();
        assert_eq!(all(0, 4), []);
        assert_eq!(all(8, 4), [(0, 4), (4, 8)]);
        assert_eq!(all(9, 4), [(0, 4), (4, 8), (8, 9)]);
    }

    #[test]
    fn functions_of_this_program_are_found() {
        let own = ProbedFile::open(File::open("/proc/self/exe").unwrap().into()).unwrap();
        let main = own.function("main").unwrap();
        assert!(main.offset > 0 && main.semaphore == 0);
        assert!(matches!(own.function("no_such_function_here"), Err(NoProbeSite::Function)));
        assert!(matches!(own.marker("no", "marker"), Err(NoProbeSite::Marker)));
        assert!(ProbedFile::open(File::open("/proc/self/status").unwrap().into()).is_err());
    }
}
