//! Tests with the instructions of HotSpot's stubs that concern the frame. The order of the instructions is that of the
//! calls of HotSpot's assembler in `libjvm.so` of JDK 11.0.24, 17.0.15, 21.0.13 and 25.0.3, disassembled; the bytes are
//! those that `Assembler` (`assembler_x86.cpp`) emits for these calls. Other instructions are left out or are examples.

use super::super::made::{BASE, FakeMemory, SHA_256, STUB};
use super::*;

/// `generate_sha512_implCompress` and `sha512_AVX2`, JDK 11 to 25.
const SHA_512: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x52, 0x51, // push rdx; push rcx
    0x48, 0x8b, 0xc4, // mov rax, rsp
    0x48, 0x83, 0xec, 0x70, // sub rsp, 112
    0x48, 0x83, 0xe4, 0xe0, // and rsp, -32
    0x48, 0x89, 0x44, 0x24, 0x38, // mov [rsp + 56], rax
    0x48, 0x89, 0x6c, 0x24, 0x40, 0x48, 0x89, 0x5c, 0x24,
    0x48, // mov [rsp + 64], rbp; mov [rsp + 72], rbx
    0x48, 0xbd, 1, 2, 3, 4, 5, 6, 7, 8, // mov rbp, the table of constants
    0x48, 0x8b, 0x6c, 0x24, 0x40, 0x48, 0x8b, 0x5c, 0x24,
    0x48, // mov rbp, [rsp + 64]; mov rbx, [rsp + 72]
    0x48, 0x8b, 0x64, 0x24, 0x38, // mov rsp, [rsp + 56]
    0x59, 0x5a, // pop rcx; pop rdx
    0xc5, 0xf8, 0x77, 0xc9, 0xc3, // vzeroupper; leave; ret
];

/// `generate_galoisCounterMode_AESCrypt`, JDK 21.
const AES_GCM: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57,
    0x53, // push r12; push r13; push r14; push r15; push rbx
    0x4c, 0x8b, 0x5d, 0x10, 0x4c, 0x8b, 0x65, 0x18, // mov r11, [rbp + 16]; mov r12, [rbp + 24]
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x48, 0x83, 0xe4, 0xc0, // and rsp, -64
    0x48, 0x81, 0xec, 0x00, 0x03, 0x00, 0x00, // sub rsp, 768
    0x4c, 0x8b, 0xec, // mov r13, rsp
    0xc5, 0xf8, 0x77, // vzeroupper
    0x48, 0x8b, 0xe5, 0x5d, // mov rsp, rbp; pop rbp
    0x5b, // pop rbx
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r15; pop r14; pop r13; pop r12
    0xc9, 0xc3, // leave; ret
];

/// `generate_poly1305_processBlocks` and `poly1305_process_blocks_avx2`, JDK 25.
const POLY_1305: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41,
    0x57, // push rbx; push r12; push r13; push r14; push r15
    0x48, 0x8b, 0xde, 0x4c, 0x8b, 0xc1, 0x48, 0x8b, 0xca, // mov rbx, rsi; mov r8, rcx; mov rcx, rdx
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x48, 0x83, 0xe4, 0xe0, // and rsp, -32
    0x48, 0x81, 0xec, 0x00, 0x01, 0x00, 0x00, // sub rsp, 256
    0x4c, 0x8b, 0xee, // mov r13, rsi
    0x48, 0x8b, 0xe5, 0x5d, // mov rsp, rbp; pop rbp
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r15; pop r14; pop r13; pop r12
    0x5b, // pop rbx
    0xc9, 0xc3, // leave; ret
];

/// `generate_intpoly_montgomeryMult_P256`, JDK 25.
const P_256: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x41, 0x54, 0x41, 0x55, 0x41, 0x56, // push r12; push r13; push r14
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x48, 0x83, 0xe4, 0xe0, // and rsp, -32
    0x48, 0x83, 0xec, 0x20, // sub rsp, 32
    0x4c, 0x8b, 0xc2, // mov r8, rdx
    0x48, 0x8b, 0xe5, 0x5d, // mov rsp, rbp; pop rbp
    0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r14; pop r13; pop r12
    0xc9, 0xc3, // leave; ret
];

/// `generate_avx2_galoisCounterMode_AESCrypt`, JDK 25: rbp is kept, and r14 has the old rsp.
const AES_GCM_AVX2: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57,
    0x53, // push r12; push r13; push r14; push r15; push rbx
    0x4c, 0x8b, 0x5d, 0x10, 0x4c, 0x8b, 0x65, 0x18, // mov r11, [rbp + 16]; mov r12, [rbp + 24]
    0x4c, 0x8b, 0xf4, // mov r14, rsp
    0x48, 0x83, 0xe4, 0xc0, // and rsp, -64
    0x48, 0x81, 0xec, 0x80, 0x00, 0x00, 0x00, // sub rsp, 128
    0xc5, 0xf8, 0x77, // vzeroupper
    0x49, 0x8b, 0xe6, // mov rsp, r14
    0x5b, // pop rbx
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r15; pop r14; pop r13; pop r12
    0xc9, 0xc3, // leave; ret
];

/// `generate_sha256_implCompress` and `fast_sha256`, on CPUs with SHA-NI: rbp is kept.
const SHA_256_NI: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x48, 0x83, 0xec, 0x20, // sub rsp, 32
    0xf3, 0x0f, 0x6f, 0x0e, // movdqu xmm1, [rsi]
    0x48, 0x83, 0xc4, 0x20, // add rsp, 32
    0xc5, 0xf8, 0x77, 0xc9, 0xc3, // vzeroupper; leave; ret
];

fn rule(start: u64, end: u64, cfa: Cfa) -> StubRule {
    StubRule { code: CodeSpan { start, end }, rule: Rule::Frame { cfa, fp: Fp::AtCfa(-16) } }
}

/// The rules of [`SHA_256`] at an address.
fn sha_256_rules(at: u64) -> Vec<StubRule> {
    vec![
        rule(at + 11, at + 42, Cfa::Fp(16)),
        rule(at + 42, at + 72, Cfa::AtSp(536, 112)),
        rule(at + 72, at + 74, Cfa::Sp(112)),
        rule(at + 74, at + 76, Cfa::Sp(104)),
        rule(at + 76, at + 78, Cfa::Sp(96)),
        rule(at + 78, at + 80, Cfa::Sp(88)),
        rule(at + 80, at + 81, Cfa::Sp(80)),
    ]
}

#[test]
fn stubs_get_the_rules_of_their_instructions() {
    assert_eq!(rules_in(SHA_256, 1000), sha_256_rules(1000));
    let inner = |start, entered, end, cfa| vec![rule(start, entered, Cfa::Fp(16)), rule(entered, end, cfa)];
    for (what, code, expected) in [
        ("SHA-512", SHA_512, vec![rule(22, 57, Cfa::AtSp(56, 32))]),
        ("AES-GCM", AES_GCM, inner(21, 25, 46, Cfa::Fp(64))),
        ("Poly1305", POLY_1305, inner(22, 26, 44, Cfa::Fp(64))),
        ("P-256", P_256, inner(10, 14, 29, Cfa::Fp(48))),
        ("AES-GCM with AVX2", AES_GCM_AVX2, Vec::new()),
        ("SHA-256 with SHA-NI", SHA_256_NI, Vec::new()),
    ] {
        assert_eq!(rules_in(code, 0), expected, "{what}");
    }
}

/// What a CPU with AVX2 and AVX-IFMA, and without SHA-NI, has in JDK 25: each of the two digests twice.
#[test]
fn all_stubs_of_a_jvm_have_room() {
    let stubs = [SHA_256_NI, SHA_256, SHA_256, SHA_512, SHA_512, AES_GCM_AVX2, POLY_1305, P_256];
    let code = stubs.map(|stub| [stub, &[0x90; 32]].concat()).concat();
    let rules = rules_in(&code, 0);
    assert_eq!(rules.len(), 7 + 7 + 1 + 1 + 2 + 2);
    assert!(rules.is_sorted_by_key(|rule| rule.code.start));
    assert!(rules.windows(2).all(|pair| pair[0].code.end <= pair[1].code.start), "{rules:?}");
    let second = (SHA_256_NI.len() + SHA_256.len() + 2 * 32) as u64;
    assert_eq!(rules[7..14], sha_256_rules(second));
}

#[test]
fn blobs_are_read_from_memory() {
    let memory = FakeMemory::made();
    memory.put(STUB + 0x100, SHA_256);
    memory.put(STUB + 0x300, SHA_512);
    let stub = |start, end| NamedStub {
        name: String::new(),
        code: CodeSpan { start: BASE + STUB + start, end: BASE + STUB + end },
    };
    let (first, second) = (BASE + STUB + 0x100, BASE + STUB + 0x300);
    let expected = [sha_256_rules(first), vec![rule(second + 22, second + 57, Cfa::AtSp(56, 32))]].concat();
    let of = |stubs: &[NamedStub]| stub_rules(&&memory, stubs);
    assert_eq!(of(&[stub(0, 0x1000)]), expected);
    assert_eq!(of(&[stub(0x80, 0x200), stub(0x280, 0x400)]), expected);
    assert_eq!(of(&[stub(0x200, 0x100), stub(0, 0x100), stub(0x200, 0x300)]), []);
    let nowhere = CodeSpan { start: 8, end: u64::MAX };
    assert_eq!(of(&[NamedStub { name: String::new(), code: nowhere }]), []);
    // Only so many bytes are read of one JVM.
    assert_eq!(of(&[stub(0, MAX_CODE as u64), stub(0, 0x1000)]), expected);
}

#[test]
fn code_that_only_looks_like_a_stub_has_no_rules() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 7] = [
        ("another slot is restored", |code| code[68] = 0x10),
        ("rsp is not aligned", |code| code[32] = 0xe0),
        ("a positive mask", |code| code[33] = 0x20),
        ("another register is stored", |code| code[36] = 0x8c),
        ("no copy of rsp", |code| code[22] = 0xc1),
        ("no frame", |code| code[0] = 0x90),
        ("another stub before the end", |code| code[54..58].copy_from_slice(ENTER)),
    ];
    for (what, change) in changes {
        let mut code = SHA_256.to_vec();
        change(&mut code);
        assert_eq!(rules_in(&code, 0), [], "{what}");
    }
    assert_eq!(rules_in(&AES_GCM[21..], 0), [], "a frame in no frame");
    assert_eq!(rules_in(&AES_GCM[..42], 0), [], "a frame without an end");
    for end in 0..SHA_256.len() {
        // The JVM may be about to write the stub.
        let rules = rules_in(&SHA_256[..end], 0);
        assert!(rules.iter().all(|rule| rule.code.end <= end as u64), "{end}: {rules:?}");
        assert_eq!(rules.is_empty(), end < 72, "{end}: {rules:?}");
    }
}

#[test]
fn hostile_code_has_few_rules_and_costs_little() {
    // Frames in a frame without end, and prologues without end.
    let inner = [ENTER, &[0x48, 0x83, 0xe4, 0xe0]].concat().repeat(MAX_CODE / 8);
    assert_eq!(rules_in(&[ENTER, &[0x90], &inner[..]].concat(), 0), []);
    assert_eq!(rules_in(&SHA_256[..42].repeat(MAX_CODE / 42), 0), []);
    assert_eq!(rules_in(&[ENTER, &[0x55].repeat(MAX_CODE)[..]].concat(), 0), []);
    // More stubs than there is room for, at the end of all addresses.
    let memory = FakeMemory::made();
    memory.put(STUB, &SHA_256.repeat(40));
    let code = CodeSpan { start: BASE + STUB, end: BASE + STUB + 0x1000 };
    let rules = stub_rules(&&memory, &[NamedStub { name: String::new(), code }]);
    assert_eq!(rules.len(), MAX_STUB_RULES);
    assert!(rules_in(SHA_256, u64::MAX - 20).iter().all(|rule| rule.code.start <= rule.code.end));
    // A large frame, and one that is too large for a rule.
    let reserve: [u8; 7] = [0x48, 0x81, 0xec, 0x00, 0x40, 0x00, 0x00];
    let large = |count| [ENTER, &reserve.repeat(count)[..], &SHA_512[6..]].concat();
    assert_eq!(rules_in(&large(1), 0).len(), 1);
    assert_eq!(rules_in(&large(2), 0), []);
    // Any bytes.
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..2_000 {
        let mut code = SHA_256.to_vec();
        for _ in 0..3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state % code.len() as u64).unwrap();
            code[at] = state.to_le_bytes()[7];
        }
        assert!(rules_in(&code, 0).len() <= MAX_STUB_RULES);
    }
}

/// The unwinder at instructions with rules: the caller is compiled code with a frame pointer.
#[cfg(target_arch = "x86_64")]
mod unwinder {
    use super::*;
    use crate::outside::{OutsidePages, OutsideStack, unwind};
    use crate::sample::{Leaf, SavedRegisters, StillWaiting, StopReason, UserWord};
    use crate::unwind::{CodeHeap, HotSpotUnwindInfo, PAGE, ProgramLayout, RangeCode, Space, UnwindRange};

    const HEAP: u64 = 0x7f00_1000_0000;
    const HEAP_END: u64 = HEAP + 0x10_0000;
    const CALLED: u64 = HEAP + 0x1000;
    /// Return addresses to compiled code; a call is in front of each.
    const CALLER: u64 = HEAP + 0x200;
    const OUTER: u64 = HEAP + 0x300;
    const STACK: u64 = 0x7f00_2000_0000;
    /// The stack pointer after the return from the stub, and the caller's frame pointer.
    const CFA: u64 = STACK + 0x1000;
    const CALLER_FP: u64 = CFA + 0x40;

    /// A JVM's memory: its code heap, and a thread's stack.
    struct Jvm {
        stub: &'static [u8],
        code: Vec<u8>,
        stack: Vec<u8>,
    }

    impl Jvm {
        /// A thread in a stub.
        fn new(stub: &'static [u8]) -> Jvm {
            let mut jvm = Jvm { stub, code: vec![0; 0x2000], stack: vec![0; 0x2000] };
            jvm.code[0x1000..0x1000 + stub.len()].copy_from_slice(stub);
            for back in [CALLER, OUTER] {
                jvm.code[usize::try_from(back - HEAP).unwrap() - 5] = 0xe8;
            }
            jvm.write(CFA - 8, CALLER);
            jvm.write(CFA - 16, CALLER_FP);
            jvm.write(CALLER_FP + 8, OUTER);
            jvm
        }

        fn write(&mut self, at: u64, word: u64) {
            let at = usize::try_from(at - STACK).unwrap();
            self.stack[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }

        /// Unwinds from the instruction at this offset in the stub.
        fn unwind(&self, offset: u64, sp: u64, fp: u64) -> OutsideStack {
            let hotspot = HotSpotUnwindInfo {
                heaps: vec![CodeHeap {
                    span: CodeSpan { start: HEAP, end: HEAP_END },
                    segment_map: HEAP_END,
                }],
                stub_rules: rules_in(self.stub, CALLED),
                segment_log2: 7,
                frame_pointers: true,
                ..HotSpotUnwindInfo::default()
            };
            let range = UnwindRange { start: HEAP, end: HEAP_END, code: RangeCode::Heap(HEAP_END), table: 1 };
            let space = Space { layout: ProgramLayout::default(), ranges: vec![range] };
            let mut pages = vec![0; PAGE];
            for bytes in [hotspot.to_bytes(), space.to_bytes()] {
                pages.extend(bytes);
                pages.resize(pages.len().next_multiple_of(PAGE), 0);
            }
            let registers = SavedRegisters { ip: CALLED + offset, sp, fp, ..SavedRegisters::default() };
            let thread = StillWaiting { tid: 1, own_tid: 1, switches: 1, registers };
            let mut read = |address: u64, buffer: &mut [u8]| {
                let memory = [(HEAP, &self.code), (STACK, &self.stack)];
                let part = memory.iter().find_map(|(start, bytes)| {
                    let from = usize::try_from(address.checked_sub(*start)?).ok()?;
                    bytes.get(from..)?.get(..buffer.len())
                });
                if let Some(part) = part {
                    buffer.copy_from_slice(part);
                }
                part.is_some()
            };
            unwind(&OutsidePages::new(&pages, 2), &thread, Leaf::User, &mut read).unwrap()
        }

        /// Checks that the frames above the stub are found. The segment map is not readable, so the caller's frame is
        /// found by its frame pointer only, and the outer frame ends the stack.
        fn check(&self, offset: u64, sp: u64, fp: u64) {
            let stack = self.unwind(offset, sp, fp);
            let expected =
                [UserWord::Leaf(CALLED + offset), UserWord::Return(CALLER), UserWord::Return(OUTER)];
            assert_eq!(stack.user, expected, "offset {offset}, sp {sp:#x}, fp {fp:#x}: {stack:?}");
            assert_eq!(stack.stop_reason, StopReason::NoBlob);
        }
    }

    #[test]
    fn callers_of_sha_256_are_found_at_each_instruction() {
        let mut jvm = Jvm::new(SHA_256);
        let saved = CFA - 112;
        let aligned = (saved - 544) & !31;
        assert!(saved - aligned > 544, "the alignment makes a difference");
        jvm.write(aligned + 536, saved);
        // push rbp, push r12, mov rax, sub, and, mov [rsp + 536].
        let frame = CFA - 16;
        let prologue =
            [(11, CFA - 72), (12, CFA - 80), (20, saved), (23, saved), (30, saved - 544), (34, aligned)];
        for (offset, sp) in prologue {
            jvm.check(offset, sp, frame);
        }
        // rbp has data, which may look like a frame pointer.
        for data in [7, 0, aligned + 8, saved, u64::MAX] {
            for offset in 42..=64 {
                jvm.check(offset, aligned, data);
            }
            for (offset, popped) in [(72, 0), (74, 8), (76, 16), (78, 24), (80, 32)] {
                jvm.check(offset, saved + popped, data);
            }
        }
    }

    #[test]
    fn callers_of_the_other_stubs_are_found_at_each_instruction() {
        let mut sha_512 = Jvm::new(SHA_512);
        let saved = CFA - 32;
        let aligned = (saved - 112) & !31;
        sha_512.write(aligned + 56, saved);
        for offset in 22..=52 {
            sha_512.check(offset, aligned, 0x1234_5678);
        }
        for (stub, inner, depth, aligned) in [
            (AES_GCM, 21, 56, (CFA - 64) & !63),
            (POLY_1305, 22, 56, (CFA - 64) & !31),
            (P_256, 10, 40, (CFA - 48) & !31),
        ] {
            let jvm = Jvm::new(stub);
            let (before, frame) = (CFA - depth, CFA - depth - 8);
            jvm.check(inner, before, CFA - 16);
            jvm.check(inner + 1, frame, CFA - 16);
            jvm.check(inner + 4, frame, frame);
            jvm.check(inner + 8, aligned, frame);
            let pop = rules_in(stub, 0)[1].code.end - 1;
            for offset in inner + 9..pop - 3 {
                jvm.check(offset, aligned - 32, frame);
            }
            jvm.check(pop, frame, frame);
        }
    }

    #[test]
    fn a_rule_that_leads_to_no_call_is_not_followed() {
        let mut jvm = Jvm::new(SHA_256);
        let saved = CFA - 112;
        let aligned = (saved - 544) & !31;
        let alone = [UserWord::Leaf(CALLED + 50)];
        // The slot leads below rsp, to no address, and to a word that is no return address.
        for wrong in [aligned - 112, 8, u64::MAX - 7, saved + 16, saved + 1] {
            jvm.write(aligned + 536, wrong);
            let stack = jvm.unwind(50, aligned, 7);
            assert_eq!((stack.user, stack.stop_reason), (alone.to_vec(), StopReason::NoBlob), "{wrong:#x}");
        }
        jvm.write(aligned + 536, saved);
        jvm.code[0x200 - 5] = 0x90;
        assert_eq!(jvm.unwind(50, aligned, 7).user, alone, "the return address follows no call");
        // Without a rule, rbp is followed: the unwinder then needs the code blob.
        assert_eq!(jvm.unwind(4, CFA - 16, CFA - 16).user, [UserWord::Leaf(CALLED + 4)]);
    }
}
