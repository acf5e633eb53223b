//! An ELF file, read only by `pread`: headers, sections, notes.
//!
//! A tenant who may write a mapped file can truncate or change it at any time. So no offset, size or count in it is
//! trusted, and nothing is mapped: if the file shrinks, a read fails here instead of raising SIGBUS. Sources: `elf(5)`,
//! the ELF-64 object file format. Both classes are read, because 32-bit programs run on 64-bit kernels; only little
//! endian, like our targets.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::fields::{ElfClass, Fields, SegmentPlace, TableSection, TlsImage};
use super::go_table::image::MappedImage;

/// Sections that are read of one file. Files with 65,000 sections exist (`-ffunction-sections`, unlinked).
const MAX_SECTIONS: u64 = 1 << 17;
const MAX_SEGMENTS: u64 = 4096;
const MAX_SECTION_NAMES: u64 = 4 << 20;
pub(super) const MAX_NOTE: u64 = 64 << 10;

const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_TLS: u32 = 7;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const NT_GNU_BUILD_ID: u32 = 3;
const EM_386: u16 = 3;
pub(crate) const EM_X86_64: u16 = 62;

/// Why a file could not be read as ELF. The text never quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read, or ends before its headers say.
    #[error("cannot read {len} bytes at offset {offset}: {source}")]
    Read {
        /// Offset in the file, bytes.
        offset: u64,
        /// Number of bytes that were to be read; 0 if another call than a read failed.
        len: u64,
        /// The error of the system call, or `UnexpectedEof`.
        source: std::io::Error,
    },
    /// A size or count is larger than in any real file.
    #[error("{what} of {value} is beyond the limit")]
    TooLarge {
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// The file is not little-endian ELF, or its headers contradict each other.
    #[error("not a readable ELF file: {0}")]
    Malformed(&'static str),
}

/// Header of a section. `size` is bounded by the file's size unless `kind` is `SHT_NOBITS`.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

impl Section {
    /// Whether the section contains this virtual address.
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.addr).is_some_and(|within| within < self.size)
    }
}

#[derive(Clone, Copy, Debug)]
struct ElfSegment {
    offset: u64,
    addr: u64,
    file_size: u64,
    executable: bool,
    writable: bool,
}

impl ElfSegment {
    /// Whether the file has all `len` bytes at a virtual address, in this segment.
    fn covers(&self, address: u64, len: u64) -> bool {
        let within = address.checked_sub(self.addr).and_then(|at| at.checked_add(len));
        within.is_some_and(|end| end <= self.file_size)
    }
}

#[derive(Debug)]
pub(super) enum ElfSource {
    File(File),
    /// Unpacked from another file.
    Memory(Vec<u8>),
}

impl ElfSource {
    fn size(&self) -> std::io::Result<u64> {
        match self {
            ElfSource::File(file) => Ok(file.metadata()?.len()),
            ElfSource::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        match self {
            ElfSource::File(file) => file.read_at(buffer, offset),
            ElfSource::Memory(bytes) => {
                let tail = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let len = tail.len().min(buffer.len());
                buffer[..len].copy_from_slice(&tail[..len]);
                Ok(len)
            }
        }
    }
}

/// An open ELF file with its headers.
#[derive(Debug)]
pub struct Elf {
    source: ElfSource,
    class: ElfClass,
    machine: u16,
    entry: u64,
    sections: Vec<Section>,
    segments: Vec<ElfSegment>,
    /// The header of `.eh_frame` (`PT_GNU_EH_FRAME`).
    eh_frame_header: Option<TableSection>,
    /// The dynamic section (`PT_DYNAMIC`).
    dynamic: Option<TableSection>,
    /// The notes that are loaded (`PT_NOTE`).
    notes: Vec<TableSection>,
    /// The image of the file's thread-local storage (`PT_TLS`).
    pub(super) tls_image: Option<TlsImage>,
}

impl Elf {
    /// Reads the headers as they are. [`Elf::read`] also adds sections that only the program headers lead to.
    pub(super) fn read_headers(source: ElfSource) -> Result<Elf, ElfError> {
        let mut ident = [0_u8; 64];
        read_exact(&source, &mut ident[..52], 0)?;
        if ident[..4] != *b"\x7fELF" || ident[5] != 1 {
            return Err(ElfError::Malformed("no little-endian ELF magic"));
        }
        let class = match ident[4] {
            1 => ElfClass::Elf32,
            2 => ElfClass::Elf64,
            _ => return Err(ElfError::Malformed("unknown class")),
        };
        if class == ElfClass::Elf64 {
            read_exact(&source, &mut ident, 0)?;
        }
        let header = Fields(&ident);
        let tail = if class == ElfClass::Elf64 { 54 } else { 42 };
        let (machine, entry) = (header.u16(18), header.word(class, 24, 24));
        let mut elf = Elf {
            source,
            class,
            machine,
            entry,
            sections: Vec::new(),
            segments: Vec::new(),
            eh_frame_header: None,
            dynamic: None,
            notes: Vec::new(),
            tls_image: None,
        };
        let mut names = u64::from(header.u16(tail + 8));
        let (phnum, shnum) = (u64::from(header.u16(tail + 2)), u64::from(header.u16(tail + 6)));
        elf.read_segments(header.word(class, 28, 32), phnum)?;
        match elf.read_sections(header.word(class, 32, 40), shnum, &mut names) {
            // Sections are not needed at run time, and packers leave false section headers.
            Err(ElfError::Malformed(_) | ElfError::TooLarge { .. }) if !elf.segments.is_empty() => {
                elf.sections.clear();
            }
            read => read?,
        }
        Ok(elf)
    }

    pub(crate) fn class(&self) -> ElfClass {
        self.class
    }

    /// `e_machine` of the header, for example [`EM_X86_64`].
    pub(crate) fn machine(&self) -> u16 {
        self.machine
    }

    /// Whether the code is for x86-64. x32, the ABI with 32-bit pointers, has another class.
    pub(crate) fn is_x86_64(&self) -> bool {
        self.machine == EM_X86_64 && self.class == ElfClass::Elf64
    }

    /// Whether the code is 32-bit code of x86.
    pub(crate) fn is_i386(&self) -> bool {
        self.machine == EM_386 && self.class == ElfClass::Elf32
    }

    /// The virtual address of the entry point; 0 if there is none.
    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name && s.kind != SHT_NOBITS && s.size > 0)
    }

    /// The section with the strings of a symbol table. A section without bytes in the file is rejected, because nothing
    /// bounds its offset and size.
    pub(crate) fn strings_of(&self, table: &Section) -> Option<&Section> {
        self.sections.get(table.link as usize).filter(|strings| strings.kind != SHT_NOBITS)
    }

    /// The virtual address (as symbols and DWARF have it) of a file offset that is mapped as code. If no executable
    /// segment has the offset, any segment is used.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let covers = |s: &&ElfSegment| offset >= s.offset && offset - s.offset < s.file_size;
        let segment = self
            .segments
            .iter()
            .filter(|s| s.executable)
            .find(covers)
            .or_else(|| self.segments.iter().find(covers))?;
        Some(segment.addr.wrapping_add(offset - segment.offset))
    }

    /// Size of the executable segments, bytes.
    pub(crate) fn code_size(&self) -> u64 {
        let code = self.segments.iter().filter(|s| s.executable);
        code.fold(0, |sum: u64, segment| sum.saturating_add(segment.file_size))
    }

    /// Where the file has a virtual address.
    pub(super) fn place_of(&self, address: u64) -> Option<SegmentPlace> {
        let segment = self.segments.iter().find(|s| s.covers(address, 1))?;
        let within = address - segment.addr;
        let offset = segment.offset.checked_add(within)?;
        Some(SegmentPlace { offset, remaining: segment.file_size - within })
    }

    /// The file offset of a virtual address in an executable segment.
    pub(super) fn code_offset_of(&self, address: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| s.executable && s.covers(address, 1))?;
        segment.offset.checked_add(address - segment.addr)
    }

    /// The header of `.eh_frame`, from the program headers.
    pub(super) fn eh_frame_header(&self) -> Option<TableSection> {
        self.eh_frame_header
    }

    /// The dynamic section, from the program headers.
    pub(super) fn dynamic(&self) -> Option<TableSection> {
        self.dynamic
    }

    /// Adds a loaded section and returns its number. Another section with this name then counts as empty.
    pub(super) fn put_section(&mut self, name: &str, found: TableSection, link: u32) -> u32 {
        self.sections
            .iter_mut()
            .filter(|section| section.name == name)
            .for_each(|false_one| false_one.size = 0);
        let TableSection { address: addr, offset, size } = found;
        let (name, kind, flags) = (name.to_owned(), SHT_PROGBITS, 0);
        self.sections.push(Section { name, kind, flags, addr, offset, size, link });
        u32::try_from(self.sections.len() - 1).unwrap_or(0)
    }

    /// File offsets of the code. Only a benchmark calls this.
    #[must_use]
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        self.code().map(|code| code.offset..code.offset.saturating_add(code.size)).collect()
    }

    /// The segments with code, limited to the bytes that the file has.
    pub(super) fn code(&self) -> impl Iterator<Item = TableSection> {
        let code = self.segments.iter().filter(|segment| segment.executable);
        code.map(|s| TableSection { address: s.addr, offset: s.offset, size: s.file_size })
    }

    /// The virtual addresses that are mapped from the file.
    pub(super) fn mapped(&self) -> impl Iterator<Item = MappedImage> {
        let addresses = |s: &ElfSegment| Some(s.addr..s.addr.checked_add(s.file_size)?);
        self.segments
            .iter()
            .filter_map(move |s| Some(MappedImage { addresses: addresses(s)?, writable: s.writable }))
    }

    /// The bias of the executable segment that contains the virtual addresses `start..end`: address minus offset in the
    /// file. `None` if they are not within one executable segment.
    pub(crate) fn code_bias(&self, start: u64, end: u64) -> Option<u64> {
        let len = end.checked_sub(start).filter(|&len| len > 0)?;
        let segment = self.segments.iter().find(|s| s.executable && s.covers(start, len))?;
        Some(segment.addr.wrapping_sub(segment.offset))
    }

    /// Bytes `offset..offset + len` of the file; an error if `len` is more than `limit`.
    pub(crate) fn bytes(&self, offset: u64, len: u64, limit: u64) -> Result<Vec<u8>, ElfError> {
        if len > limit {
            return Err(ElfError::TooLarge { what: "range", value: len });
        }
        let size = self.file_size()?;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(ElfError::Malformed("a range lies outside the file"));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        read_exact(&self.source, &mut bytes, offset)?;
        Ok(bytes)
    }

    /// Reads as many bytes at `offset` as `buffer` takes and the file has. Returns their number.
    pub(crate) fn read_some(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ElfError> {
        let len = buffer.len() as u64;
        self.source.read_at(buffer, offset).map_err(|source| ElfError::Read { offset, len, source })
    }

    /// Current size of the file, bytes.
    pub(crate) fn file_size(&self) -> Result<u64, ElfError> {
        self.source.size().map_err(|source| ElfError::Read { offset: 0, len: 0, source })
    }

    /// The open file, to map it; `None` if the bytes are in memory.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.source {
            ElfSource::File(file) => Some(file),
            ElfSource::Memory(_) => None,
        }
    }

    /// Memory held for the file's bytes, bytes.
    pub(crate) fn memory(&self) -> usize {
        match &self.source {
            ElfSource::File(_) => 0,
            ElfSource::Memory(bytes) => bytes.len(),
        }
    }

    /// The GNU build id, from the notes.
    #[must_use]
    pub fn build_id(&self) -> Option<Vec<u8>> {
        let section = self.section(".note.gnu.build-id").map(|notes| (notes.offset, notes.size));
        let build_id = |(offset, size)| find_build_id(&self.bytes(offset, size, MAX_NOTE).ok()?);
        let loaded = self.notes.iter().map(|notes| (notes.offset, notes.size));
        section.into_iter().chain(loaded).find_map(build_id)
    }

    /// Whether the file itself has DWARF.
    #[must_use]
    pub fn has_debug_info(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| self.section(name).is_some())
    }

    /// Whether the file has a full symbol table.
    #[must_use]
    pub fn has_symtab(&self) -> bool {
        self.section(".symtab").is_some()
    }

    fn read_segments(&mut self, offset: u64, count: u64) -> Result<(), ElfError> {
        if count > MAX_SEGMENTS {
            return Err(ElfError::TooLarge { what: "number of segments", value: count });
        }
        let size = if self.class == ElfClass::Elf64 { 56 } else { 32 };
        let table = self.bytes(offset, count * size, MAX_SEGMENTS * 56)?;
        for record in table.chunks_exact(size as usize) {
            let f = Fields(record);
            let flags = if self.class == ElfClass::Elf64 { f.u32(4) } else { f.u32(24) };
            let (offset, address) = (f.word(self.class, 4, 8), f.word(self.class, 8, 16));
            let size = f.word(self.class, 16, 32);
            match f.u32(0) {
                PT_LOAD => {
                    let (executable, writable) = (flags & PF_X != 0, flags & PF_W != 0);
                    self.segments.push(ElfSegment {
                        offset,
                        addr: address,
                        file_size: size,
                        executable,
                        writable,
                    });
                }
                PT_DYNAMIC => self.dynamic = Some(TableSection { address, offset, size }),
                PT_NOTE => self.notes.push(TableSection { address, offset, size }),
                PT_TLS => {
                    let (size, align) = (f.word(self.class, 20, 40), f.word(self.class, 28, 48));
                    self.tls_image = Some(TlsImage { address, size, align });
                }
                PT_GNU_EH_FRAME => self.eh_frame_header = Some(TableSection { address, offset, size }),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_sections(&mut self, offset: u64, mut count: u64, names: &mut u64) -> Result<(), ElfError> {
        if offset == 0 {
            return Ok(()); // a file without section headers is legal
        }
        let size = if self.class == ElfClass::Elf64 { 64 } else { 40 };
        // elf(5): counts that do not fit 16 bits are in the first section header.
        let first = self.bytes(offset, size, 64)?;
        if count == 0 {
            count = Fields(&first).word(self.class, 20, 32);
        }
        if *names == 0xffff {
            *names = u64::from(Fields(&first).u32(if self.class == ElfClass::Elf64 { 40 } else { 24 }));
        }
        if count > MAX_SECTIONS {
            return Err(ElfError::TooLarge { what: "number of sections", value: count });
        }
        let table = self.bytes(offset, count * size, MAX_SECTIONS * 64)?;
        let file_size = self.file_size()?;
        let raw: Vec<(u32, Section)> =
            table.chunks_exact(size as usize).map(|r| section(&Fields(r), self.class, file_size)).collect();
        let names = match usize::try_from(*names).ok().and_then(|i| raw.get(i)) {
            Some((_, s)) => self.bytes(s.offset, s.size, MAX_SECTION_NAMES)?,
            None => Vec::new(),
        };
        self.sections = raw
            .into_iter()
            .map(|(name, section)| Section { name: text_at(&names, name as usize), ..section })
            .collect();
        Ok(())
    }
}

fn section(f: &Fields<'_>, class: ElfClass, file_size: u64) -> (u32, Section) {
    let kind = f.u32(4);
    let offset = f.word(class, 16, 24);
    let size = f.word(class, 20, 32);
    let within = offset.checked_add(size).is_some_and(|end| end <= file_size);
    let section = Section {
        name: String::new(),
        kind,
        flags: f.word(class, 8, 8),
        addr: f.word(class, 12, 16),
        offset,
        // A section that lies outside the file counts as empty: the other sections may still be good.
        size: if within || kind == SHT_NOBITS { size } else { 0 },
        link: if class == ElfClass::Elf64 { f.u32(40) } else { f.u32(24) },
    };
    (f.u32(0), section)
}

fn text_at(table: &[u8], at: usize) -> String {
    let tail = table.get(at..).unwrap_or_default();
    let end = tail.iter().take(256).position(|&b| b == 0).unwrap_or(0);
    String::from_utf8_lossy(&tail[..end]).into_owned()
}

/// Finds the GNU build id among notes (each: sizes of name and descriptor, type, name, descriptor, padded to 4).
pub(super) fn find_build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    while notes.len() >= 12 {
        let f = Fields(notes);
        let (name, desc, kind) = (f.u32(0) as usize, f.u32(4) as usize, f.u32(8));
        let desc_at = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = desc_at.checked_add(desc)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return notes.get(desc_at..end).filter(|id| (2..=64).contains(&id.len())).map(<[u8]>::to_vec);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

fn read_exact(source: &ElfSource, buffer: &mut [u8], offset: u64) -> Result<(), ElfError> {
    let len = buffer.len() as u64;
    let mut filled = 0;
    while filled < buffer.len() {
        let got = source.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64));
        match got {
            Ok(0) => {
                let source = std::io::ErrorKind::UnexpectedEof.into();
                return Err(ElfError::Read { offset, len, source });
            }
            Ok(got) => filled += got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ElfError::Read { offset, len, source }),
        }
    }
    Ok(())
}
