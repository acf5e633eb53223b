//! The outermost frame of a coroutine of glibc's `makecontext`: code that is never called. `makecontext` makes the
//! code's first byte the return address of the coroutine's function. The words above it are no frame, even if its
//! description says so (`sysdeps/unix/sysv/linux/x86_64/__start_context.S`, the same from 2.31 to 2.43 at least).

use super::elf::Elf;

/// `mov rsp, rbx; mov rdi, [rsp]; test rdi, rdi; je +8; call`: no other function begins by switching the stack.
const BEGINNING: [u8; 13] = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74, 0x08, 0xe8];
/// `endbr64`, where glibc is built for Intel's CET.
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Bytes of the whole function, without the mark.
const LEN: u64 = 26;

/// Whether a function of this length may be the outermost frame of a coroutine.
pub(super) fn has_length(len: u64) -> bool {
    len == LEN || len == LEN + MARK.len() as u64
}

/// `ret; lea esp, [esp + 4 * ebx]`: on i386 this code stands behind the described part of `makecontext` itself
/// (`sysdeps/unix/sysv/linux/i386/makecontext.S`, the same from 2.31 to 2.43 at least).
const BEHIND_I386: [u8; 4] = [0xc3, 0x8d, 0x24, 0x9c];
/// How long the described part may be, bytes; in glibc 2.36 it has 74.
const LEN_I386: std::ops::RangeInclusive<u64> = 48..=128;

/// Whether the range `start..end` of a description in an i386 file is `makecontext`, and the outermost frame follows
/// it.
pub(super) fn begins_behind(elf: &Elf, start: u64, end: u64) -> bool {
    if !LEN_I386.contains(&(end - start)) {
        return false;
    }
    let Some(place) = elf.place_of(end) else { return false };
    elf.bytes(place.offset, BEHIND_I386.len() as u64, BEHIND_I386.len() as u64)
        .is_ok_and(|code| code == BEHIND_I386)
}

/// Whether the code of the outermost frame begins at this address.
pub(super) fn begins(elf: &Elf, address: u64) -> bool {
    if !elf.is_x86_64() {
        return false;
    }
    let Some(place) = elf.place_of(address) else { return false };
    let mut code = [0; BEGINNING.len() + MARK.len()];
    let Ok(read) = elf.read_some(&mut code, place.offset) else { return false };
    let code = &code[..read];
    code.strip_prefix(&MARK).unwrap_or(code).starts_with(&BEGINNING)
}
