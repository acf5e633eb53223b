//! `endbr64` in front of a function's description.
//!
//! Assembler that opens its description behind the mark of Intel's CET leaves these four bytes out: all functions of
//! JDK 17 to 25's `libjsvml.so` begin so (`src/jdk.incubator.vector/linux/native/libjsvml`, built with
//! `-fcf-protection`). They look like padding behind the function before, whose rule would find a wrong caller, or none.

use super::elf::Elf;
use crate::unwind::{Cfa, Fp, Rule};

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Bytes of the mark.
pub(super) const LEN: u64 = ENDBR64.len() as u64;
/// Functions are aligned to so many bytes.
const ALIGNMENT: u64 = 16;
/// A function that was just called has nothing on the stack but its return address.
pub(super) const RULE: Rule = Rule::Frame { cfa: Cfa::Sp(8), fp: Fp::Same };

/// Whether the function whose description begins at `address` begins with a mark before it.
pub(super) fn stands_before(elf: &Elf, address: u64) -> bool {
    let mut code = [0; ENDBR64.len()];
    let start = address.checked_sub(LEN).filter(|start| start % ALIGNMENT == 0);
    start
        .and_then(|start| elf.offset_of(start))
        .is_some_and(|(offset, _)| elf.read_some(&mut code, offset).is_ok() && code == ENDBR64)
}
