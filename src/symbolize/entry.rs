//! The code at which the kernel enters a file. Of a program it is described as all its functions are; of glibc's loader
//! it is assembler without size and description (`RTLD_START` of `sysdeps/x86_64/dl-machine.h`, up to 2.42 at least),
//! and the outermost frame of each process until it comes to its program.

use super::elf::Elf;
use super::extents::Extents;

/// Code that belongs to the entry reaches no further, bytes: glibc has 61.
const REACH: u64 = 128;
/// A call, as compilers and assemblers write it: the opcode, and how far it leads.
const CALL: u8 = 0xe8;
const CALL_LEN: u64 = 5;

/// Whether code at `address` may belong to the entry, by its distance.
pub(super) fn reaches(elf: &Elf, address: u64) -> bool {
    elf.entry() != 0 && address.checked_sub(elf.entry()).is_some_and(|distance| distance < REACH)
}

/// The entry, if the code at `address`, which nothing describes, is the entry's: its first byte, or the last byte of a
/// call of a described function that stands before any other function that is known. The latter tells it from start code
/// whose callees are described no better than itself (musl's): there the neighbour begins nobody knows where.
pub(super) fn start_of(elf: &Elf, extents: &Extents, address: u64) -> Option<u64> {
    let entry = elf.entry();
    let own = reaches(elf, address)
        && (address == entry || (extents.next(entry)? > address && extents.begins(called(elf, address)?)));
    own.then_some(entry)
}

/// Where the call leads to whose last byte is at `address`.
fn called(elf: &Elf, address: u64) -> Option<u64> {
    if !elf.is_x86_64() {
        return None;
    }
    let start = address.checked_sub(CALL_LEN - 1).filter(|&start| start >= elf.entry())?;
    let (offset, _) = elf.offset_of(start)?;
    let code = elf.bytes(offset, CALL_LEN, CALL_LEN).ok()?;
    let [CALL, a, b, c, d] = code[..] else { return None };
    address.checked_add(1)?.checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
}
