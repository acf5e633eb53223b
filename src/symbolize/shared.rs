//! Debug information that files share (`dwz`): Debian's and Fedora's debug files refer to a file of their package.
//!
//! blazesym reads the strings of such a file, but not the names of its functions (`DW_FORM_GNU_ref_alt`). So
//! `addr2line` reads these files.
#![allow(unsafe_code)] // mapped files

use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;

use addr2line::{Context, Frame};
use gimli::{CloneStableDeref, Dwarf, EndianReader, LittleEndian, Reader as _, SectionId, StableDeref};
use memmap2::Mmap;

use super::blaze::{ElfSymbol, SourceCode, SourceLocation};
use super::elf::{Elf, ElfError};
use super::image;

/// Bytes of a mapped file.
#[derive(Clone, Debug)]
pub(super) struct MappedBytes {
    file: Arc<Mmap>,
    range: Range<usize>,
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

// SAFETY: the bytes lie in the mapping, which does not move with this value or its clones and outlives them.
unsafe impl StableDeref for MappedBytes {}
// SAFETY: as above: a clone has the same bytes.
unsafe impl CloneStableDeref for MappedBytes {}

pub(super) type MappedReader = EndianReader<LittleEndian, MappedBytes>;

/// The debug information of a file, and of the file that it shares with others.
pub(super) struct SharedDwarf(Context<MappedReader>);

impl SharedDwarf {
    /// Reads the headers of the units.
    ///
    /// # Errors
    /// If one of the files cannot be read.
    pub(super) fn read(own: &Elf, shared: &Elf) -> Result<SharedDwarf, ElfError> {
        context(own, Some(shared)).map(SharedDwarf)
    }

    /// The debug information of an address.
    pub(super) fn source_code(&self, address: u64) -> Option<SourceCode> {
        source_code(&self.0, address)
    }
}

/// Reads the headers of the units of a file, and those of the file that it shares with others.
pub(super) fn context(own: &Elf, shared: Option<&Elf>) -> Result<Context<MappedReader>, ElfError> {
    let mut dwarf = load(own)?;
    if let Some(shared) = shared {
        dwarf.set_sup(load(shared)?);
    }
    Context::from_dwarf(dwarf).map_err(|_| ElfError::Malformed("DWARF that cannot be read"))
}

/// `addr2line`'s answer for an address, in our types.
pub(super) fn source_code(context: &Context<MappedReader>, address: u64) -> Option<SourceCode> {
    let mut calls = Vec::new();
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    while let Ok(Some(frame)) = frames.next() {
        calls.push(call(frame));
    }
    // Frames come innermost first. The last one is the outer function, or a line without a function.
    let (name, own) = calls.pop()?;
    let function = (!name.is_empty()).then_some(ElfSymbol { name, start: 0, size: None });
    Some(SourceCode { function, own, inlined: calls.into_iter().rev().collect() })
}

fn call(frame: Frame<'_, MappedReader>) -> (String, SourceLocation) {
    let name = frame.function.and_then(|function| Some(function.name.to_string_lossy().ok()?.into_owned()));
    let location = frame.location.map_or_else(SourceLocation::default, |location| SourceLocation {
        file: location.file.map(str::to_owned),
        line: location.line.unwrap_or(0),
    });
    (name.unwrap_or_default(), location)
}

/// The DWARF of a file, unpacked if needed.
fn load(elf: &Elf) -> Result<Dwarf<MappedReader>, ElfError> {
    let unpacked = match elf.file() {
        Some(_) if !image::has_packed_dwarf(elf) => None,
        _ => Some(Elf::read(File::from(image::write(elf, true)?))?),
    };
    let elf = unpacked.as_ref().unwrap_or(elf);
    let error = |source: std::io::Error| ElfError::Read { offset: 0, len: 0, source };
    let file = elf.file().ok_or(ElfError::Malformed("a file in memory"))?;
    // SAFETY: a file truncated meanwhile raises SIGBUS, and only the worker, which may die, maps one. Each read is
    // bounded, so bytes that change under a reader are a false value at worst.
    let file = Arc::new(unsafe { Mmap::map(file) }.map_err(error)?);
    Dwarf::load(|id: SectionId| {
        let section = elf.section(id.name()).filter(|_| !is_of_variables(id));
        let start = section.map_or(0, |section| usize::try_from(section.offset).unwrap_or(usize::MAX));
        let size = section.map_or(0, |section| usize::try_from(section.size).unwrap_or(0));
        let range = start..start.saturating_add(size);
        Ok(MappedReader::new(MappedBytes { file: Arc::clone(&file), range }, LittleEndian))
    })
}

/// Sections about the locations of variables, which are not needed.
fn is_of_variables(id: SectionId) -> bool {
    matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists)
}
