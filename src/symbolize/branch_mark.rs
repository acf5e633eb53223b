//! `endbr64` in front of a function's frame description.
//!
//! Some assembler opens its description behind the mark of Intel's CET and leaves these four bytes out. All functions
//! of `libjsvml.so` in JDK 17 to 25 begin so (`src/jdk.incubator.vector/linux/native/libjsvml`, built with
//! `-fcf-protection`). They look like padding of the previous function, whose rule would find no or a wrong caller.

use super::elf::Elf;
use crate::unwind::{Cfa, Fp, Rule};

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Bytes of the mark.
pub(super) const LEN: u64 = ENDBR64.len() as u64;
/// Alignment of functions, bytes.
const ALIGNMENT: u64 = 16;
/// At its first instruction, a function has only its return address on the stack.
pub(super) const RULE: Rule = Rule::Frame { cfa: Cfa::Sp(8), fp: Fp::Same };

/// Whether the function whose description begins at `address` begins with a mark before it.
pub(super) fn stands_before(elf: &Elf, address: u64) -> bool {
    let mut code = [0; ENDBR64.len()];
    let start = address.checked_sub(LEN).filter(|start| start % ALIGNMENT == 0);
    start
        .and_then(|start| elf.place_of(start))
        .is_some_and(|place| elf.read_some(&mut code, place.offset).is_ok() && code == ENDBR64)
}
