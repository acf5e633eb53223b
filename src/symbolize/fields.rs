//! Fields of the records of ELF files.

/// The width of an ELF file's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElfClass {
    Elf32,
    Elf64,
}

/// The image from which each thread's block of a file's thread-local storage is made (`PT_TLS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsImage {
    /// Virtual address of the image.
    pub(crate) address: u64,
    /// Bytes of the block.
    pub(crate) size: u64,
    pub(crate) align: u64,
}

/// Reads little-endian fields out of a record of a fixed size.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u16(&self, at: usize) -> u16 {
        self.0.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
    }
    pub(crate) fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
    pub(crate) fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
    /// A field as wide as an address of the class.
    pub(crate) fn word(&self, class: ElfClass, at32: usize, at64: usize) -> u64 {
        match class {
            ElfClass::Elf32 => u64::from(self.u32(at32)),
            ElfClass::Elf64 => self.u64(at64),
        }
    }
}

/// A table in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableSection {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Where a file has a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPlace {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Bytes from there to the end of the segment.
    pub(super) remaining: u64,
}
