//! Finds the function start for addresses in a file's entry code that no CFI covers, so that the entry of glibc's
//! loader gets a name.
//!
//! A program's entry has CFI like all its functions. The entry of glibc's loader is assembler without size and CFI
//! (`RTLD_START` of `sysdeps/x86_64/dl-machine.h`, up to 2.42 at least). This entry is the outermost frame of each
//! process until the program itself starts.

use super::elf::Elf;
use super::extents::Extents;

/// Longest code of an entry, bytes: glibc's has 61.
const MAX_ENTRY_LEN: u64 = 128;
/// Opcode of a call, as compilers and assemblers write it; the relative target follows.
const CALL: u8 = 0xe8;
const CALL_LEN: u64 = 5;

/// Whether code at `address` may belong to the entry, by its distance from the entry point.
pub(super) fn reaches(elf: &Elf, address: u64) -> bool {
    elf.entry() != 0 && address.checked_sub(elf.entry()).is_some_and(|distance| distance < MAX_ENTRY_LEN)
}

/// The entry, if `address` is in code without description that belongs to the entry. Accepts the first byte, and the
/// last byte of a call to a described function, with no other known function in between. The call is required because
/// of start code whose callees have no description either (musl's): where the next function begins is unknown there.
pub(super) fn start_of(elf: &Elf, extents: &Extents, address: u64) -> Option<u64> {
    let entry = elf.entry();
    let own = reaches(elf, address)
        && (address == entry || (extents.next(entry)? > address && extents.begins(called(elf, address)?)));
    own.then_some(entry)
}

/// The target of the call whose last byte is at `address`.
fn called(elf: &Elf, address: u64) -> Option<u64> {
    if !elf.is_x86_64() {
        return None;
    }
    let start = address.checked_sub(CALL_LEN - 1).filter(|&start| start >= elf.entry())?;
    let offset = elf.place_of(start)?.offset;
    let code = elf.bytes(offset, CALL_LEN, CALL_LEN).ok()?;
    let [CALL, a, b, c, d] = code[..] else { return None };
    address.checked_add(1)?.checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
}
