//! The bytes of an ELF section: in the file's mapping, or unpacked on the heap.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::ptr::NonNull;
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use lzma_rust2::XzReader;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::elf::{Elf, ElfError, SHF_COMPRESSED, Section};
use super::fields::{Class, Fields};

/// Unpacked bytes of one section, at most: a header can promise 2^64.
const MAX_UNPACKED: u64 = 512 << 20;
const ELFCOMPRESS_ZLIB: u32 = 1;

/// A file, mapped read only. If it is truncated meanwhile, reading it is a SIGBUS: only the worker, which may die,
/// makes one.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the whole file.
    pub(crate) fn of(file: &File, len: u64) -> Result<Mapping, ElfError> {
        let len = usize::try_from(len).map_err(|_| ElfError::TooLarge { what: "file size", value: len })?;
        if len == 0 {
            return Err(ElfError::Malformed("the file is empty"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, 0) };
        let start = start.map_err(|e| ElfError::Read { offset: 0, len: len as u64, source: e.into() })?;
        let start = NonNull::new(start.cast()).ok_or(ElfError::Malformed("mapped at address 0"))?;
        Ok(Mapping { start, len })
    }

    /// Gives the pages that were read back to the kernel: they come again from its cache when they are needed.
    pub(crate) fn release(&self) {
        // SAFETY: this is all of our mapping, private and never written to, so that what is read of it again is what the
        // file has.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `of` made this mapping with this length, and slices of it do not outlive the `Bytes` that hold it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[derive(Debug)]
enum Store {
    Mapped(Rc<Mapping>, std::ops::Range<usize>),
    Heap(Vec<u8>),
}

/// A section's bytes, unpacked.
#[derive(Debug)]
pub(crate) struct Bytes(Store);

impl Bytes {
    /// The section `name` of `elf`, of whose file `mapping` is; copied if it has none. Empty if there is no such section.
    pub(crate) fn of(elf: &Elf, mapping: Option<&Rc<Mapping>>, name: &str) -> Result<Bytes, ElfError> {
        let Some(section) = elf.section(name) else { return Ok(Bytes(Store::Heap(Vec::new()))) };
        if section.flags & SHF_COMPRESSED != 0 {
            return unpack(elf, section).map(|bytes| Bytes(Store::Heap(bytes)));
        }
        let Some(mapping) = mapping else {
            return elf
                .bytes(section.offset, section.size, MAX_UNPACKED)
                .map(|bytes| Bytes(Store::Heap(bytes)));
        };
        let start = usize::try_from(section.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(section.size).unwrap_or(usize::MAX));
        if end > mapping.len {
            return Err(ElfError::Malformed("a section lies outside the file"));
        }
        Ok(Bytes(Store::Mapped(Rc::clone(mapping), start..end)))
    }

    /// Bytes on the heap.
    pub(crate) fn heap(&self) -> usize {
        match &self.0 {
            Store::Mapped(..) => 0,
            Store::Heap(bytes) => bytes.len(),
        }
    }

    /// The bytes, with a lifetime that the compiler does not follow.
    ///
    /// # Safety
    /// The caller keeps this `Bytes` for as long as the slice is used. (The bytes themselves do not move when it does.)
    pub(crate) unsafe fn unbound(&self) -> &'static [u8] {
        match &self.0 {
            // SAFETY: `of` has checked the range against the mapping's length, and the mapping lives in `self`.
            Store::Mapped(mapping, range) => unsafe {
                std::slice::from_raw_parts(mapping.start.as_ptr().add(range.start), range.len())
            },
            // SAFETY: the heap block lives in `self` and is never grown.
            Store::Heap(bytes) => unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) },
        }
    }
}

/// Unpacks a section with `SHF_COMPRESSED`; sizes are believed only as far as bytes really come.
fn unpack(elf: &Elf, section: &Section) -> Result<Vec<u8>, ElfError> {
    let packed = elf.bytes(section.offset, section.size, MAX_UNPACKED)?;
    let fields = Fields(&packed);
    let (header, size) = match elf.class() {
        Class::Elf64 => (24, fields.u64(8)),
        Class::Elf32 => (12, u64::from(fields.u32(4))),
    };
    if fields.u32(0) != ELFCOMPRESS_ZLIB {
        return Err(ElfError::Malformed("a section is compressed, and not by zlib"));
    }
    if size > MAX_UNPACKED {
        return Err(ElfError::TooLarge { what: "unpacked section size", value: size });
    }
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed.get(header..).unwrap_or_default())
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|_| ElfError::Malformed("a compressed section does not unpack"))?;
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// Unpacks `.gnu_debugdata`, an ELF file with the symbols that `.dynsym` lacks, compressed by xz ("MiniDebugInfo":
/// Fedora and its relatives strip everything else); `None` without one.
pub(crate) fn mini_debug_info(elf: &Elf) -> Option<Elf> {
    const MAX_PACKED: u64 = 64 << 20;
    const MAX_SYMBOLS: u64 = 128 << 20;
    let section = elf.section(".gnu_debugdata")?;
    let packed = elf.bytes(section.offset, section.size, MAX_PACKED).ok()?;
    let mut bytes = Vec::new();
    XzReader::new(&packed[..], false).take(MAX_SYMBOLS).read_to_end(&mut bytes).ok()?;
    bytes.shrink_to_fit();
    Elf::read_memory(bytes).ok()
}
