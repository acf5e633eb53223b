//! Writes an ELF file in the form that blazesym reads: symbols and DWARF that are packed, that only program headers
//! lead to, or that are in memory are written to a file in memory.
//!
//! Sizes in a file are trusted only as far as bytes really follow, and only up to a limit: blazesym's own unpacking has
//! none. `elf(5)`; "Compressed Sections" of the generic ABI; `.zdebug_*`: GNU's form before that.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

use flate2::read::ZlibDecoder;
use rustix::fs::{MemfdFlags, memfd_create};
use ruzstd::decoding::StreamingDecoder;

use super::elf::{Elf, ElfError, SHF_COMPRESSED, Section};
use super::fields::{ElfClass, Fields};

/// Bytes of one section, at most: a header can state 2^64.
const MAX_SECTION: u64 = 512 << 20;
/// Bytes of all sections.
const MAX_IMAGE: u64 = 768 << 20;
const ELFCOMPRESS_ZLIB: u32 = 1;
const ELFCOMPRESS_ZSTD: u32 = 2;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_DYNSYM: u32 = 11;
const ET_DYN: u16 = 3;
/// Tables that blazesym looks up by name: symbols and their strings.
const TABLES: [(&str, &str, u32); 2] =
    [(".symtab", ".strtab", SHT_SYMTAB), (".dynsym", ".dynstr", SHT_DYNSYM)];
/// The DWARF for lines and functions. Locations of variables, macros and indexes of names are left out.
const DWARF: [&str; 11] = [
    "abbrev",
    "addr",
    "aranges",
    "info",
    "line",
    "line_str",
    "ranges",
    "rnglists",
    "str",
    "str_offsets",
    "types",
];
/// Name of the file in memory, where the kernel lists it.
const NAME: &str = "symbols";

/// Whether blazesym cannot read the symbols of the file as they are.
pub(super) fn is_needed_for_symbols(elf: &Elf) -> bool {
    // A dynamic symbol table of another kind was found by the program headers.
    let found = elf.section(".dynsym").is_some_and(|section| section.kind != SHT_DYNSYM);
    // Without `.symtab`, blazesym takes the packed table instead, cannot unpack it, and looks no further.
    let mini = elf.section(".gnu_debugdata").is_some() && !elf.has_symtab();
    elf.file().is_none() || found || mini
}

/// Whether the DWARF of the file is packed.
pub(super) fn has_packed_dwarf(elf: &Elf) -> bool {
    elf.sections().iter().any(|section| {
        section.name.starts_with(".zdebug_")
            || (section.name.starts_with(".debug_") && section.flags & SHF_COMPRESSED != 0)
    })
}

/// Writes the file, with its DWARF if `dwarf` is set. If a part of the DWARF does not unpack, all of it is left out.
/// Fails if the symbols cannot be read, or if there is no memory.
pub(super) fn write(elf: &Elf, dwarf: bool) -> Result<OwnedFd, ElfError> {
    let mut image = ElfImageWriter::new(elf.class())?;
    for (table, strings, kind) in TABLES {
        let Some(section) = elf.section(table) else { continue };
        let Some(texts) = elf.strings_of(section) else { continue };
        image.copy(elf, table, kind, section)?;
        image.copy(elf, strings, SHT_STRTAB, texts)?;
    }
    let symbols = image.parts.len();
    let wanted: &[&str] = if dwarf { &DWARF } else { &[] };
    if wanted.iter().any(|part| image.unpack(elf, part).is_err()) {
        image.parts.truncate(symbols);
    }
    image.finish(elf.machine()).map_err(unwritten)
}

/// The error for a file in memory that cannot be written.
fn unwritten(error: impl Into<io::Error>) -> ElfError {
    ElfError::Read { offset: 0, len: 0, source: error.into() }
}

struct ImageSection {
    name: String,
    kind: u32,
    addr: u64,
    offset: u64,
    size: u64,
}

struct ElfImageWriter {
    class: ElfClass,
    file: File,
    at: u64,
    parts: Vec<ImageSection>,
}

impl ElfImageWriter {
    fn new(class: ElfClass) -> Result<ElfImageWriter, ElfError> {
        let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(unwritten)?);
        Ok(ElfImageWriter { class, file, at: header_size(class), parts: Vec::new() })
    }

    /// Copies a section as it is.
    fn copy(&mut self, elf: &Elf, name: &str, kind: u32, section: &Section) -> Result<(), ElfError> {
        let bytes = elf.bytes(section.offset, section.size, MAX_SECTION)?;
        self.add(name, kind, section.addr, &mut &bytes[..], section.size)
    }

    /// Unpacks a section of DWARF; does nothing if there is no such section.
    fn unpack(&mut self, elf: &Elf, part: &str) -> Result<(), ElfError> {
        let name = format!(".debug_{part}");
        if let Some(section) = elf.section(&format!(".zdebug_{part}")) {
            let packed = elf.bytes(section.offset, section.size, MAX_SECTION)?;
            let (Some(b"ZLIB"), Some(size), Some(data)) =
                (packed.get(..4), packed.get(4..12), packed.get(12..))
            else {
                return Err(ElfError::Malformed("a packed section without its header"));
            };
            let size = u64::from_be_bytes(size.try_into().unwrap_or_default());
            return self.add(&name, SHT_PROGBITS, section.addr, &mut ZlibDecoder::new(data), size);
        }
        let Some(section) = elf.section(&name) else { return Ok(()) };
        if section.flags & SHF_COMPRESSED == 0 {
            return self.copy(elf, &name, SHT_PROGBITS, section);
        }
        let packed = elf.bytes(section.offset, section.size, MAX_SECTION)?;
        let fields = Fields(&packed);
        let (header, size) = match elf.class() {
            ElfClass::Elf64 => (24, fields.u64(8)),
            ElfClass::Elf32 => (12, u64::from(fields.u32(4))),
        };
        let data = packed.get(header..).unwrap_or_default();
        match fields.u32(0) {
            ELFCOMPRESS_ZLIB => {
                self.add(&name, SHT_PROGBITS, section.addr, &mut ZlibDecoder::new(data), size)
            }
            ELFCOMPRESS_ZSTD => {
                let decoder = StreamingDecoder::new(data);
                let mut decoder =
                    decoder.map_err(|_| ElfError::Malformed("a packed section does not unpack"))?;
                self.add(&name, SHT_PROGBITS, section.addr, &mut decoder, size)
            }
            _ => Err(ElfError::Malformed("a section is packed in an unknown way")),
        }
    }

    /// Writes a section of `size` bytes; an error if it has less.
    fn add(
        &mut self,
        name: &str,
        kind: u32,
        addr: u64,
        from: &mut dyn Read,
        size: u64,
    ) -> Result<(), ElfError> {
        if size > MAX_SECTION || self.at.saturating_add(size) > MAX_IMAGE {
            return Err(ElfError::TooLarge { what: "size of a section", value: size });
        }
        // Overwrites the bytes of a section that failed before.
        self.file.seek(SeekFrom::Start(self.at)).map_err(unwritten)?;
        let written = io::copy(&mut from.take(size), &mut self.file);
        if !written.is_ok_and(|written| written == size) {
            return Err(ElfError::Malformed("a section has less than it promises"));
        }
        // blazesym reads symbol tables in place, so they have to be aligned, and contain whole records.
        let whole = match kind {
            SHT_SYMTAB | SHT_DYNSYM => size - size % symbol_size(self.class),
            _ => size,
        };
        self.parts.push(ImageSection { name: name.to_owned(), kind, addr, offset: self.at, size: whole });
        self.at += size;
        self.pad().map_err(unwritten)
    }

    fn pad(&mut self) -> io::Result<()> {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.at += padding;
        self.file.write_all(&[0; 8][..usize::try_from(padding).unwrap_or(0)])
    }

    /// Writes the names and headers.
    fn finish(mut self, machine: u16) -> io::Result<OwnedFd> {
        let (mut names, mut headers) = (vec![0], ElfRecord::new(self.class));
        let offset = self.at;
        headers.section(0, &ImageSection { name: String::new(), kind: 0, addr: 0, offset: 0, size: 0 });
        let own = ImageSection { name: ".shstrtab".to_owned(), kind: SHT_STRTAB, addr: 0, offset, size: 0 };
        self.parts.push(own);
        let all: usize = self.parts.iter().map(|part| part.name.len() + 1).sum();
        self.parts.iter_mut().rev().take(1).for_each(|own| own.size = all as u64 + 1);
        for part in &self.parts {
            headers.section(u32::try_from(names.len()).unwrap_or(0), part);
            names.extend(part.name.as_bytes());
            names.push(0);
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.write_all(&names)?;
        self.at += names.len() as u64;
        self.pad()?;
        let sections = self.at;
        self.file.write_all(&headers.bytes)?;
        self.file.seek(SeekFrom::Start(0))?;
        let count = u16::try_from(self.parts.len() + 1).unwrap_or(0);
        self.file.write_all(&ElfRecord::new(self.class).file(machine, sections, count).bytes)?;
        Ok(self.file.into())
    }
}

fn header_size(class: ElfClass) -> u64 {
    match class {
        ElfClass::Elf64 => 64,
        // 4 bytes more than the header has, so that the next section is aligned.
        ElfClass::Elf32 => 56,
    }
}

fn symbol_size(class: ElfClass) -> u64 {
    match class {
        ElfClass::Elf64 => 24,
        ElfClass::Elf32 => 16,
    }
}

/// Headers that are being written.
struct ElfRecord {
    class: ElfClass,
    bytes: Vec<u8>,
}

impl ElfRecord {
    fn new(class: ElfClass) -> ElfRecord {
        ElfRecord { class, bytes: Vec::new() }
    }

    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// A field as wide as an address of the class.
    fn wide(&mut self, value: u64) {
        match self.class {
            ElfClass::Elf64 => self.bytes.extend(value.to_le_bytes()),
            ElfClass::Elf32 => self.word(u32::try_from(value).unwrap_or(0)),
        }
    }

    fn section(&mut self, name: u32, part: &ImageSection) {
        self.word(name);
        self.word(part.kind);
        // Flags.
        self.wide(0);
        self.wide(part.addr);
        self.wide(part.offset);
        self.wide(part.size);
        // Link and info.
        self.word(0);
        self.word(0);
        // Alignment and the size of an entry.
        self.wide(8);
        self.wide(if matches!(part.kind, SHT_SYMTAB | SHT_DYNSYM) { symbol_size(self.class) } else { 0 });
    }

    fn file(mut self, machine: u16, sections: u64, count: u16) -> ElfRecord {
        let class = if self.class == ElfClass::Elf64 { 2 } else { 1 };
        self.bytes.extend([0x7f, b'E', b'L', b'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.half(ET_DYN);
        self.half(machine);
        self.word(1);
        // Entry and program headers.
        self.wide(0);
        self.wide(0);
        self.wide(sections);
        self.word(0);
        let (own, entry) = if self.class == ElfClass::Elf64 { (64, 64) } else { (52, 40) };
        // Sizes and numbers: of this header, of program headers, of sections; the last section has the names.
        for value in [own, 0, 0, entry, count, count - 1] {
            self.half(value);
        }
        self
    }
}
