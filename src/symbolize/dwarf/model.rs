//! What all readers of debug information speak of.

use gimli::{EndianSlice, LittleEndian};

pub(super) type Reader = EndianSlice<'static, LittleEndian>;

/// A function at an address: the mangled name if the compiler wrote it, and the line in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) file: Option<String>,
    pub(crate) line: u32,
}

/// In which file something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Own,
    /// The supplementary file, DWARF 5, 7.3.6.
    Shared,
}
