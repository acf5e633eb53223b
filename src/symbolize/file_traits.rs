//! Traits of a file that explain why it has no names or no callers.

use super::elf::Elf;
use super::fields::ElfClass;
use crate::profile::file_trait::{FileTrait, FileTraits};

/// Executable bytes from which on a file counts as a browser, or as a program that contains one.
const HUGE: u64 = 64 << 20;
/// UPX writes its mark behind the program headers, within these first bytes of the file (upx,
/// `src/stub/src/include/linux.h`, `l_info`).
const PACKED_WITHIN: usize = 1024;
const PACKED_MARK: &[u8] = b"UPX!";
const MAX_INTERPRETER: u64 = 4096;

pub(super) fn traits(elf: &Elf) -> FileTraits {
    let has_section = |name: &str| elf.section(name).is_some();
    FileTraits::default()
        .with(FileTrait::Go, has_section(".note.go.buildid") || has_section(".go.buildinfo"))
        .with(FileTrait::NoSections, elf.sections().is_empty())
        .with(FileTrait::Bits32, elf.class() == ElfClass::Elf32)
        .with(FileTrait::Musl, runs_with_musl(elf))
        .with(FileTrait::NoBuildId, elf.build_id().is_none())
        .with(FileTrait::Packed, is_packed(elf))
        .with(FileTrait::Huge, elf.code_size() >= HUGE)
}

/// Whether the program's dynamic loader is musl's.
fn runs_with_musl(elf: &Elf) -> bool {
    let Some(section) = elf.section(".interp") else { return false };
    let path = elf.bytes(section.offset, section.size, MAX_INTERPRETER).unwrap_or_default();
    path.windows(7).any(|part| part == b"ld-musl")
}

fn is_packed(elf: &Elf) -> bool {
    let mut head = [0; PACKED_WITHIN];
    let read = elf.read_some(&mut head, 0).unwrap_or(0);
    head[..read].windows(PACKED_MARK.len()).any(|part| part == PACKED_MARK)
}
