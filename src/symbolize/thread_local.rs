//! A thread-local variable of a program or library: where the file defines it, and where the dynamic linker writes how
//! threads find it.
//!
//! Sources: "ELF Handling For Thread-Local Storage" (U. Drepper), for the relocations of x86-64; "Thread-Local Storage
//! Descriptors" (A. Oliva); "ELF for the Arm 64-bit Architecture", 5.7.14.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::elf::{EM_X86_64, Elf, ElfError};
use super::fields::{ElfClass, Fields, TlsImage};
use super::probed_file::{PART, parts, places_of, within};

/// Limits on what is read of a file, bytes.
const MAX_SYMBOLS: u64 = 256 << 20;
const MAX_RELOCATIONS: u64 = 256 << 20;
/// Slots of one variable: compilers make one for each way of access.
const MAX_SLOTS: usize = 16;
/// Maximum number of executable segments of a file.
const MAX_CODE: usize = 16;

const SYMBOL: u64 = 24;
const RELOCATION: u64 = 24;
const STT_TLS: u8 = 6;
const EM_AARCH64: u16 = 183;

/// Where the threads of a process find a variable of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocal {
    /// The variable's place in the file's block of thread-local storage, bytes.
    pub in_block: u64,
    /// The variable's distance from the thread pointer, if the file is a program and not a library.
    pub in_program: i64,
    /// Words that the dynamic linker writes.
    pub slots: Vec<LinkerSlot>,
    /// Parts of the file with code, each with its virtual address.
    pub code: Vec<CodeAddress>,
}

/// A part of the file's code, and its virtual address as the other addresses of the file have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeAddress {
    /// Offsets in the file.
    pub offsets: Range<u64>,
    /// Virtual address of the first byte.
    pub address: u64,
}

/// Words of the file's memory that the dynamic linker writes for a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerSlot {
    /// Virtual address of the word, before relocation.
    pub address: u64,
    /// What the linker writes there.
    pub content: SlotContent,
}

/// What the dynamic linker writes into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotContent {
    /// The number of the file's module.
    Module,
    /// The variable's distance from the thread pointer.
    Offset,
    /// A descriptor of two words: a function and its argument.
    Descriptor,
}

impl ThreadLocal {
    /// The variable of a file in memory.
    ///
    /// # Errors
    /// If it is not an ELF file that can be read.
    #[cfg(any(test, fuzzing))]
    pub fn in_bytes(bytes: Vec<u8>, name: &str) -> Result<Option<ThreadLocal>, ElfError> {
        find(&Elf::read_memory(bytes)?, name)
    }

    /// How far the file's addresses are moved in a process that maps its code from this offset on at `start`.
    #[must_use]
    pub fn moved(&self, start: u64, offset: u64) -> Option<u64> {
        let code = self.code.iter().find(|code| code.offsets.contains(&offset))?;
        Some(start.wrapping_sub(code.address.wrapping_add(offset - code.offsets.start)))
    }
}

/// Finds an exported thread-local variable; `None` if the file defines none of this name.
pub(super) fn find(elf: &Elf, name: &str) -> Result<Option<ThreadLocal>, ElfError> {
    let Some(image) = elf.tls_image.filter(|_| elf.class() == ElfClass::Elf64) else { return Ok(None) };
    let Some((number, in_block)) = symbol(elf, name)? else { return Ok(None) };
    let code = elf.code().take(MAX_CODE).map(|code| CodeAddress {
        offsets: code.offset..code.offset.saturating_add(code.size),
        address: code.address,
    });
    Ok(Some(ThreadLocal {
        in_block,
        in_program: in_program(elf.machine(), image, in_block),
        slots: slots(elf, number, in_block)?,
        code: code.collect(),
    }))
}

/// The number of the variable's symbol, and its place in the block.
fn symbol(elf: &Elf, name: &str) -> Result<Option<(u64, u64)>, ElfError> {
    let Some(table) = elf.section(".dynsym") else { return Ok(None) };
    let Some(strings) = elf.strings_of(table) else { return Ok(None) };
    let places = places_of(elf, strings, name)?;
    if places.is_empty() {
        return Ok(None);
    }
    within(table.size, MAX_SYMBOLS)?;
    for part in parts(table.size / SYMBOL * SYMBOL, PART / SYMBOL * SYMBOL) {
        let offset = table.offset.saturating_add(part.start);
        let records = elf.bytes(offset, part.end - part.start, PART)?;
        for (record, number) in records.chunks_exact(SYMBOL as usize).zip(part.start / SYMBOL..) {
            let fields = Fields(record);
            let is_defined = fields.u16(6) != 0;
            if record[4] & 0xf == STT_TLS && is_defined && places.contains(&u64::from(fields.u32(0))) {
                return Ok(Some((number, fields.u64(8))));
            }
        }
    }
    Ok(None)
}

/// The distance from the thread pointer of a place in a program's block, which lies directly below the thread pointer
/// (x86-64), or above it and two words (AArch64). The block keeps its alignment.
fn in_program(machine: u16, image: TlsImage, in_block: u64) -> i64 {
    let mask = image.align.max(1).wrapping_sub(1);
    let offset = if machine == EM_X86_64 {
        let end = image.address.wrapping_add(image.size);
        in_block.wrapping_sub(image.size).wrapping_sub(end.wrapping_neg() & mask)
    } else {
        in_block.wrapping_add(16).wrapping_add(image.address.wrapping_sub(16) & mask)
    };
    offset.cast_signed()
}

/// The slots of the symbol with this number. A relocation without a symbol means this file, and a variable by its place.
fn slots(elf: &Elf, number: u64, in_block: u64) -> Result<Vec<LinkerSlot>, ElfError> {
    let mut slots = Vec::new();
    for name in [".rela.dyn", ".rela.plt"] {
        let Some(section) = elf.section(name) else { continue };
        within(section.size, MAX_RELOCATIONS)?;
        for part in parts(section.size / RELOCATION * RELOCATION, PART / RELOCATION * RELOCATION) {
            let offset = section.offset.saturating_add(part.start);
            let records = elf.bytes(offset, part.end - part.start, PART)?;
            for record in records.chunks_exact(RELOCATION as usize) {
                let fields = Fields(record);
                let (symbol, addend) = (u64::from(fields.u32(12)), fields.u64(16));
                let Some(content) = slot_content(elf.machine(), fields.u32(8)) else { continue };
                let is_own = match symbol {
                    0 => content == SlotContent::Module || addend == in_block,
                    symbol => symbol == number && addend == 0,
                };
                if is_own && slots.len() < MAX_SLOTS {
                    slots.push(LinkerSlot { address: fields.u64(0), content });
                }
            }
        }
    }
    Ok(slots)
}

/// What a relocation of this type writes, if it is one of thread-local storage.
fn slot_content(machine: u16, kind: u32) -> Option<SlotContent> {
    match (machine, kind) {
        (EM_X86_64, 16) | (EM_AARCH64, 1028) => Some(SlotContent::Module),
        (EM_X86_64, 18) | (EM_AARCH64, 1030) => Some(SlotContent::Offset),
        (EM_X86_64, 36) | (EM_AARCH64, 1031) => Some(SlotContent::Descriptor),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_block_keeps_its_alignment() {
        let image = |address, size, align| TlsImage { address, size, align };
        // The block ends at the thread pointer, or below it if its size is no multiple of its alignment.
        assert_eq!(in_program(EM_X86_64, image(0x3000, 16, 8), 8), -8);
        assert_eq!(in_program(EM_X86_64, image(0x3000, 12, 8), 8), -8);
        assert_eq!(in_program(EM_X86_64, image(0x3000, 0x48, 0x40), 0), -0x80);
        assert_eq!(in_program(EM_AARCH64, image(0x3000, 16, 8), 8), 24);
        assert_eq!(in_program(EM_AARCH64, image(0x3000, 16, 0x40), 8), 0x48);
        // Headers of a hostile file.
        in_program(EM_X86_64, image(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        in_program(EM_AARCH64, image(0, u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn addresses_move_with_the_code() {
        let code = vec![CodeAddress { offsets: 0x1000..0x2000, address: 0x5000 }];
        let variable = ThreadLocal { code, ..ThreadLocal::default() };
        assert_eq!(variable.moved(0x7f00_0000_1000, 0x1000), Some(0x7eff_ffff_c000));
        assert_eq!(variable.moved(0x7f00_0000_1800, 0x1800), Some(0x7eff_ffff_c000));
        assert_eq!(variable.moved(0x7f00_0000_0000, 0), None);
    }

    #[test]
    fn a_program_without_the_variable_has_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(ThreadLocal::in_bytes(own, "no_such_variable_here").unwrap(), None);
        assert!(ThreadLocal::in_bytes(vec![0; 100], "x").is_err());
    }
}
