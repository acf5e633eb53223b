//! Source lines and inlined functions, from DWARF.
#![allow(unsafe_code)]

use std::rc::Rc;

use addr2line::{Context, gimli};
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

use super::bytes::{Bytes, Mapping};
use super::elf::{Elf, ElfError};

type Reader = EndianSlice<'static, LittleEndian>;

/// Inlined calls of one address that are kept; compilers stop far below.
const MAX_INLINED: usize = 128;
const MAX_PATH: usize = 4096;

/// Debug information that is not what it should be: the file is used without.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DebugError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("DWARF that cannot be read: {0}")]
    Dwarf(#[from] gimli::Error),
}

/// A function at an address: the mangled name if the compiler wrote it, and the line in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) file: Option<String>,
    pub(crate) line: u32,
}

/// The debug information of one file.
pub(crate) struct Debug {
    /// Before the sections, which it refers to: fields are dropped in order.
    context: Context<Reader>,
    sections: Vec<Bytes>,
}

impl Debug {
    /// Reads `.debug_*` of `elf`; `alternate` is the supplementary file of `dwz`, if `elf` names one.
    pub(crate) fn read(elf: &Elf, alternate: Option<&Elf>) -> Result<Debug, DebugError> {
        let mut sections = Vec::new();
        let mut dwarf = load(elf, &mut sections)?;
        if let Some(alternate) = alternate {
            dwarf.set_sup(load(alternate, &mut sections)?);
        }
        let context = Context::from_dwarf(dwarf)?;
        Ok(Debug { context, sections })
    }

    /// Memory that is held on the heap for unpacked sections, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.sections.iter().map(Bytes::heap).sum()
    }

    /// The functions at `address`, innermost first: the last one is the function that has code of its own, the others
    /// were inlined into it.
    pub(crate) fn calls(&self, address: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return calls };
        while let Ok(Some(frame)) = frames.next() {
            let (file, line) = frame.location.map_or((None, 0), |l| {
                (l.file.map(|f| f.chars().take(MAX_PATH).collect()), l.line.unwrap_or(0))
            });
            let name = frame.function.map(|f| f.name.slice().to_vec());
            calls.push(Call { name, file, line });
            if calls.len() > MAX_INLINED {
                return Vec::new();
            }
        }
        calls
    }
}

fn load(elf: &Elf, sections: &mut Vec<Bytes>) -> Result<Dwarf<Reader>, DebugError> {
    let mapping =
        Rc::new(Mapping::of(elf.file().ok_or(ElfError::Malformed("no file to map"))?, elf.file_size()?)?);
    Dwarf::load(|id: SectionId| -> Result<Reader, DebugError> {
        // Where variables live: nobody asks, and unpacked it would stay in memory.
        if matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists) {
            return Ok(EndianSlice::new(&[], LittleEndian));
        }
        let bytes = Bytes::of(elf, &mapping, id.name())?;
        // SAFETY: `Debug` keeps every `Bytes` of `sections` until its context is dropped; if reading fails here, the
        // readers are dropped by `load`'s caller before the vector.
        let slice = unsafe { bytes.unbound() };
        sections.push(bytes);
        Ok(EndianSlice::new(slice, LittleEndian))
    })
}
