//! Go code of an ELF file, named by Go's own line table, even if the file has symbols. The line table is right with and
//! without symbols. No DWARF is read: Go's linker compresses it, and unpacked it would stay in memory.

use std::ops::Range;

use super::demangle::MAX_NAME;
use super::elf::{EM_X86_64, Elf};
use super::fields::{ElfClass, SegmentPlace};
use super::function::{FunctionName, NativeFunction};
use super::go_table::image::{Image, MappedImage};
use super::go_table::{GoCall, GoTable};
use super::program_headers;
use crate::profile::Kind;
use crate::profile::frame::clean;

const EM_AARCH64: u16 = 183;
const R_X86_64_RELATIVE: u32 = 8;
const R_AARCH64_RELATIVE: u32 = 1027;

/// The Go code of a file, if it has any.
#[derive(Debug)]
pub(crate) struct GoCode(Option<GoTable>);

impl GoCode {
    pub(crate) fn read(elf: &Elf) -> GoCode {
        GoCode(GoTable::find(elf))
    }

    /// Whether Go alone linked the program: then no other source names its code better. A program with C code has its
    /// entry point in the C library.
    pub(crate) fn is_all(&self, elf: &Elf) -> bool {
        self.0.as_ref().is_some_and(|table| table.covers(elf.entry()))
    }

    /// The functions at `address`, outermost first; `None` if the address is not in Go code.
    pub(crate) fn functions(&self, elf: &Elf, address: u64) -> Option<Vec<NativeFunction>> {
        let calls = self.0.as_ref()?.calls(elf, address);
        let inlined = calls.len().checked_sub(1)?;
        let kinds = std::iter::once(Kind::Native).chain(std::iter::repeat_n(Kind::NativeInlined, inlined));
        Some(calls.into_iter().rev().zip(kinds).map(|(call, kind)| function(&call, kind)).collect())
    }
}

fn function(call: &GoCall, kind: Kind) -> NativeFunction {
    NativeFunction {
        kind,
        called: FunctionName::Name(clean(&call.name, MAX_NAME)),
        file: call.file.as_ref().map(|file| clean(file, MAX_NAME)),
        line: call.line,
    }
}

impl Image for Elf {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(SegmentPlace { offset, remaining }) = self.place_of(address) else { return 0 };
        let len = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        let mut filled = 0;
        while filled < len {
            match self.read_some(&mut buffer[filled..len], offset.saturating_add(filled as u64)) {
                Ok(got) if got > 0 => filled += got,
                _ => break,
            }
        }
        filled
    }

    fn mapped(&self) -> Vec<MappedImage> {
        Elf::mapped(self).collect()
    }

    fn is_code(&self, addresses: Range<u64>) -> bool {
        self.code_bias(addresses.start, addresses.end).is_some()
    }

    fn section(&self, name: &str) -> Option<u64> {
        Elf::section(self, name).map(|section| section.addr)
    }

    fn relocations(&self) -> Option<Range<u64>> {
        if self.class() == ElfClass::Elf64 { program_headers::relocations(self) } else { None }
    }

    fn relative(&self) -> u32 {
        match self.machine() {
            EM_X86_64 => R_X86_64_RELATIVE,
            EM_AARCH64 => R_AARCH64_RELATIVE,
            _ => u32::MAX,
        }
    }
}
