//! How to unwind the hand-written stubs that neither keep rbp nor have frames of one size, found by their instructions.
//!
//! Most stubs begin with `enter` (push rbp; mov rbp, rsp) and keep rbp. A few use rbp for something else. They align
//! rsp, so the distance from rsp to the caller's frame differs from call to call. There are two forms, the same in JDK
//! 11.0.24, 17.0.15, 21.0.13 and 25.0.3; JDK 8 has neither:
//!
//! - **The old rsp in a slot**: `mov rax, rsp; sub rsp, n; and rsp, -32; mov [rsp + slot], rax`, and at the end
//!   `mov rsp, [rsp + slot]`. In between rbp has data: `MacroAssembler::sha256_AVX2` and `sha512_AVX2`
//!   (`macroAssembler_x86_sha.cpp`).
//! - **A frame in the frame**: `push rbp; mov rbp, rsp; and rsp, -64`, and at the end `mov rsp, rbp; pop rbp`. In
//!   between the word above the saved rbp is a saved register, not a return address: AES-GCM with AVX-512 in JDK 21
//!   (`generate_galoisCounterMode_AESCrypt`), Poly1305 and P-256 with AVX-IFMA in JDK 25
//!   (`poly1305_process_blocks_avx2`, `generate_intpoly_montgomeryMult_P256`).
//!
//! The code is memory of the JVM, which may be forged and may change meanwhile. A wrong rule cannot lead outside of
//! generated code: the unwinder follows a rule only to a return address there (`step_stub` in `bpf/step_hotspot.h`).

use std::ops::Range;

use super::stubs::NamedStub;
use crate::jvm::memory::Memory;
use crate::unwind::hotspot::MAX_STUB_RULES;
use crate::unwind::{Cfa, CodeSpan, Fp, Rule, StubRule};

/// Most bytes of stubs that are read of one JVM.
const MAX_CODE: usize = 1 << 20;
/// Most bytes from the first to the last instruction with a rule of one stub.
const MAX_LENGTH: usize = 1 << 17;
/// How many stubs of one blob may be searched for their end.
const MAX_SEARCHES: usize = 32;
/// Most instructions of a prologue or an epilogue. `sha256_AVX2` has 13 and 8.
const MAX_INSTRUCTIONS: usize = 32;
/// Most bytes that one instruction reserves on the stack.
const MAX_RESERVED: i32 = 1 << 14;

/// Numbers of registers in instructions.
const RSP: u8 = 4;
const RBP: u8 = 5;
/// push rbp; mov rbp, rsp.
const ENTER: &[u8] = &[0x55, 0x48, 0x8b, 0xec];
/// mov rsp, rbp; pop rbp: the end of a frame in the frame. A stub itself ends with leave; ret.
const END_INNER: &[u8] = &[0x48, 0x8b, 0xe5, 0x5d];
/// Bytes on the stack behind [`ENTER`]: the return address and the caller's rbp.
const ENTERED: i32 = 16;
/// Bytes of a register on the stack.
const WORD: i32 = 8;

/// The rules of all such stubs, in ascending order of addresses within each blob.
pub(super) fn stub_rules<M: Memory>(memory: &M, stubs: &[NamedStub]) -> Vec<StubRule> {
    let mut rules = Vec::new();
    let mut left = MAX_CODE;
    for stub in stubs {
        let CodeSpan { start, end } = stub.code;
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX).min(left);
        left -= length;
        let mut code = vec![0; length];
        let got = memory.read(start, &mut code);
        code.truncate(got);
        rules.extend(rules_in(&code, start));
    }
    rules.truncate(MAX_STUB_RULES);
    rules
}

/// The rules of the stubs in this code, which begins at the address `start`.
fn rules_in(code: &[u8], start: u64) -> Vec<StubRule> {
    let mut scan = StubScan { code, start, searches: MAX_SEARCHES, rules: Vec::new() };
    scan.run();
    scan.rules
}

/// The search for stubs in a piece of code. Offsets count from its beginning.
struct StubScan<'c> {
    code: &'c [u8],
    /// The address of the code.
    start: u64,
    /// How many more stubs may be searched for their end.
    searches: usize,
    /// The rules so far.
    rules: Vec<StubRule>,
}

impl StubScan<'_> {
    fn run(&mut self) {
        let mut at = 0;
        // Of the last stub that began.
        let mut depth = None;
        while self.rules.len() < MAX_STUB_RULES
            && let Some(found) = position(rest(self.code, at), ENTER)
        {
            let begin = at + found;
            at = begin + ENTER.len();
            let next = decode(rest(self.code, at)).map(|decoded| decoded.instruction);
            if next == Some(Instruction::Align) {
                let end = depth.and_then(|depth| self.add_inner_frame(begin, depth));
                at = end.unwrap_or(at);
            } else {
                let prologue = Prologue::read(self.code, at);
                depth = prologue.copy.is_none().then_some(prologue.depth);
                at = self.add_saved_sp(&prologue).unwrap_or(prologue.end);
            }
        }
    }

    /// Adds the rules of a stub with its old rsp in a slot. Returns the offset behind the instruction that restores
    /// rsp; `None` if the stub has no such slot.
    fn add_saved_sp(&mut self, prologue: &Prologue) -> Option<usize> {
        let slot = prologue.slot?;
        let at_sp = Cfa::AtSp(i16::try_from(slot).ok()?, i16::try_from(prologue.depth).ok()?);
        let restored = self.find_end(prologue.end, &restore_sp(slot))?;
        if let Some(pushed) = prologue.pushed_rbp {
            // rbp still leads to the frame, but the unwinder takes this push for that of a caller's rbp.
            self.add(pushed..prologue.end, Cfa::Fp(ENTERED));
        }
        self.add(prologue.end..restored, at_sp);
        if prologue.pushed_rbp.is_some() {
            self.add_pops(restored, prologue.depth);
        }
        Some(restored)
    }

    /// Adds rules for the pops from `at` on, the last one that of rbp: behind it rbp leads to the frame again. `depth`:
    /// bytes from the CFA to rsp.
    fn add_pops(&mut self, mut at: usize, mut depth: i32) {
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(Decoded { instruction: Instruction::Pop(register), length }) =
                decode(rest(self.code, at))
            else {
                return;
            };
            self.add(at..at + length, Cfa::Sp(depth));
            if register == RBP {
                return;
            }
            at += length;
            depth -= WORD;
        }
    }

    /// Adds the rules of a frame in the frame. `begin`: its offset. `depth`: bytes from the CFA to rsp before it.
    /// Returns the offset behind the frame; `None` if it has no end.
    fn add_inner_frame(&mut self, begin: usize, depth: i32) -> Option<usize> {
        let entered = begin + ENTER.len();
        let end = self.find_end(entered, END_INNER)?;
        self.add(begin..entered, Cfa::Fp(ENTERED));
        self.add(entered..end, Cfa::Fp(depth + WORD));
        Some(end)
    }

    /// The offset behind these instructions, which belong to the stub that has the offset `from`.
    fn find_end(&mut self, from: usize, instructions: &[u8]) -> Option<usize> {
        self.searches = self.searches.checked_sub(1)?;
        let body = rest(self.code, from);
        let body = body.get(..MAX_LENGTH).unwrap_or(body);
        let found = position(body, instructions)?;
        // Another stub begins before.
        if position(body.get(..found)?, ENTER).is_some() {
            return None;
        }
        Some(from + found + instructions.len())
    }

    /// Adds a rule. The caller's rbp is always where `enter` has pushed it.
    fn add(&mut self, offsets: Range<usize>, cfa: Cfa) {
        let start = self.start.saturating_add(offsets.start as u64);
        let end = self.start.saturating_add(offsets.end as u64);
        let rule = Rule::Frame { cfa, fp: Fp::AtCfa(-16) };
        self.rules.push(StubRule { code: CodeSpan { start, end }, rule });
    }
}

/// What follows `enter`: instructions that push registers, reserve memory on the stack and align rsp.
struct Prologue {
    /// The offset behind the last instruction.
    end: usize,
    /// Bytes from the CFA to rsp, before rsp was aligned.
    depth: i32,
    /// The offset of the instruction that pushed rbp once more.
    pushed_rbp: Option<usize>,
    /// The register with a copy of rsp, from before rsp was aligned.
    copy: Option<u8>,
    is_aligned: bool,
    /// The distance from the aligned rsp to the copy on the stack.
    slot: Option<i32>,
}

impl Prologue {
    /// Reads the instructions from the offset `at` on.
    fn read(code: &[u8], at: usize) -> Prologue {
        let mut prologue =
            Prologue { end: at, depth: ENTERED, pushed_rbp: None, copy: None, is_aligned: false, slot: None };
        for _ in 0..MAX_INSTRUCTIONS {
            let rest = rest(code, prologue.end);
            if prologue.slot.is_some() || rest.starts_with(ENTER) {
                break;
            }
            let Some(Decoded { instruction, length }) = decode(rest) else { break };
            if !prologue.accept(instruction) {
                break;
            }
            prologue.end += length;
        }
        prologue
    }

    /// Takes the instruction at the end into the prologue; false if it is no part of one.
    fn accept(&mut self, instruction: Instruction) -> bool {
        match instruction {
            Instruction::Push(register) if self.copy.is_none() => {
                if register == RBP {
                    self.pushed_rbp = self.pushed_rbp.or(Some(self.end));
                }
                self.depth += WORD;
            }
            Instruction::Reserve(bytes) if (0..=MAX_RESERVED).contains(&bytes) => {
                if self.copy.is_none() {
                    self.depth += bytes;
                }
            }
            Instruction::CopySp(register) if self.copy.is_none() && ![RSP, RBP].contains(&register) => {
                self.copy = Some(register);
            }
            Instruction::Align if self.copy.is_some() => self.is_aligned = true,
            Instruction::Store { register, slot } if self.is_aligned && self.copy == Some(register) => {
                self.slot = Some(slot);
            }
            _ => return false,
        }
        true
    }
}

/// The instructions of prologues and epilogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    Push(u8),
    Pop(u8),
    /// sub rsp, bytes.
    Reserve(i32),
    /// and rsp, with a negative number.
    Align,
    /// mov register, rsp.
    CopySp(u8),
    /// mov [rsp + slot], register.
    Store {
        register: u8,
        slot: i32,
    },
}

/// An instruction, and its bytes.
struct Decoded {
    instruction: Instruction,
    length: usize,
}

/// The instruction at the beginning of the code, in HotSpot's encoding: `Assembler::movq`, `subq`, `andq`, `push` and
/// `pop` (`assembler_x86.cpp`). `None` for all others.
fn decode(code: &[u8]) -> Option<Decoded> {
    let decoded = |instruction, length| Some(Decoded { instruction, length });
    match *code {
        [op @ 0x50..=0x57, ..] => decoded(Instruction::Push(op - 0x50), 1),
        [0x41, op @ 0x50..=0x57, ..] => decoded(Instruction::Push(op - 0x50 + 8), 2),
        [op @ 0x58..=0x5f, ..] => decoded(Instruction::Pop(op - 0x58), 1),
        [0x41, op @ 0x58..=0x5f, ..] => decoded(Instruction::Pop(op - 0x58 + 8), 2),
        [0x48, 0x83, 0xec, byte, ..] => decoded(Instruction::Reserve(signed(byte)), 4),
        [0x48, 0x81, 0xec, a, b, c, d, ..] => {
            decoded(Instruction::Reserve(i32::from_le_bytes([a, b, c, d])), 7)
        }
        [0x48, 0x83, 0xe4, 0x80..=0xff, ..] => decoded(Instruction::Align, 4),
        [rex @ (0x48 | 0x4c), 0x8b, modrm, ..] if modrm & 0xc7 == 0xc4 => {
            decoded(Instruction::CopySp(register(rex, modrm)), 3)
        }
        [rex @ (0x48 | 0x4c), 0x89, modrm, 0x24, byte, ..] if modrm & 0xc7 == 0x44 => {
            decoded(Instruction::Store { register: register(rex, modrm), slot: signed(byte) }, 5)
        }
        [rex @ (0x48 | 0x4c), 0x89, modrm, 0x24, a, b, c, d, ..] if modrm & 0xc7 == 0x84 => {
            let slot = i32::from_le_bytes([a, b, c, d]);
            decoded(Instruction::Store { register: register(rex, modrm), slot }, 8)
        }
        _ => None,
    }
}

fn register(rex: u8, modrm: u8) -> u8 {
    ((rex & 4) << 1) | ((modrm >> 3) & 7)
}

fn signed(byte: u8) -> i32 {
    i32::from(i8::from_le_bytes([byte]))
}

/// The bytes of mov rsp, [rsp + slot].
fn restore_sp(slot: i32) -> Vec<u8> {
    match i8::try_from(slot) {
        Ok(slot) => [&[0x48, 0x8b, 0x64, 0x24][..], &slot.to_le_bytes()].concat(),
        Err(_) => [&[0x48, 0x8b, 0xa4, 0x24][..], &slot.to_le_bytes()].concat(),
    }
}

fn rest(code: &[u8], at: usize) -> &[u8] {
    code.get(at..).unwrap_or_default()
}

fn position(code: &[u8], instructions: &[u8]) -> Option<usize> {
    code.windows(instructions.len()).position(|window| window == instructions)
}

#[cfg(test)]
#[path = "stub_frames_tests.rs"]
mod tests;
