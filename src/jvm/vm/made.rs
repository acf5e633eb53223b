//! Fake memory of a JVM, for tests and for `fuzz/targets/jvm_memory.rs`: its library, a code heap, compiled methods and
//! classes.

mod library;
mod threads;

use std::cell::RefCell;
use std::ops::Range;

use self::library::{LOADERS, PERF_DATA};
#[cfg(test)]
pub use self::threads::HEAP_IS_STOPPED;
pub use self::threads::{NAME, NUMBER, STRING};
use self::threads::{THREADS, THREADS_END};
use super::layout::{
    BlobOffsets, BlobPlace, ClassUnloadLayout, DebugDataOffsets, FrameOffsets, HeapOffsets, MethodOffsets,
    NmethodOffsets, SpaceOffsets,
};
use super::stub_frames::stub_rules;
use super::stubs::NamedStub;
use super::{
    AddressQuery, ClassQuery, Memory, MethodQuery, VmCode, VmLayout, blobs, lock_fields, read_unwind_info,
};
use crate::jvm::inspection::inspect;
use crate::sample::MonoNs;
use crate::unwind::CodeSpan;
use crate::unwind::hotspot::MAX_STUB_RULES;

/// The address of the first byte.
pub const BASE: u64 = 0x7f00_0000_0000;
const SIZE: usize = 1 << 20;
/// Offset of the heap's description from [`BASE`]; the following constants are such offsets too.
pub const HEAP: u64 = 0x100;
/// The pointer to the heap.
pub const POINTER: u64 = 0x200;
/// The pointer to the interpreter's code.
pub const INTERPRETER: u64 = 0x208;
/// The interpreter's `StubQueue`: address and length of its code.
pub const QUEUE: u64 = 0x300;
/// The segment map of the heap, one byte a segment.
pub const MAP: u64 = 0x1_0000;
/// The heap's memory, with its blocks.
pub const CODE: u64 = 0x2_0000;
const CODE_END: u64 = 0x4_0000;
const CODE_LIMIT: u64 = 0x6_0000;
/// A stub, of 4 KiB with the zeros behind it: [`SHA_256`].
pub const STUB: u64 = 0x4_0000;
/// Names of blobs, at 16 bytes a segment of the heap.
pub const NAMES: u64 = 0x5_0000;
/// Methods, a page each.
pub const METHOD: u64 = 0x6_0000;
/// The image of `libjvm.so`, with its VMStructs tables.
pub const LIBRARY: u64 = 0x8_0000;
const SEGMENT: u64 = 7;
const CALL_STUB_RETURN: u64 = BASE + CODE + 0x1000 + 16 + 0x110;

/// The instructions of HotSpot's `sha256_implCompressMB` for AVX2 that concern the frame, in the order of
/// `StubGenerator::generate_sha256_implCompress` and `MacroAssembler::sha256_AVX2`.
pub const SHA_256: &[u8] = &[
    0x55, 0x48, 0x8b, 0xec, // push rbp; mov rbp, rsp
    0x48, 0x83, 0xec, 0x20, // sub rsp, 32
    0x51, 0x52, 0x53, 0x55, // push rcx; push rdx; push rbx; push rbp
    0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, // push r12; push r13; push r14; push r15
    0x48, 0x8b, 0xc4, // mov rax, rsp
    0x48, 0x81, 0xec, 0x20, 0x02, 0x00, 0x00, // sub rsp, 544
    0x48, 0x83, 0xe4, 0xe0, // and rsp, -32
    0x48, 0x89, 0x84, 0x24, 0x18, 0x02, 0x00, 0x00, // mov [rsp + 536], rax
    0x4c, 0x8b, 0xc9, 0x4c, 0x8b, 0xc2, 0x48, 0x8b, 0xd6, 0x48, 0x8b, 0xcf, // arguments
    0x48, 0xbd, 1, 2, 3, 4, 5, 6, 7, 8, // mov rbp, the table of constants
    0x48, 0x8b, 0xa4, 0x24, 0x18, 0x02, 0x00, 0x00, // mov rsp, [rsp + 536]
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r15; pop r14; pop r13; pop r12
    0x5d, 0x5b, 0x5a, 0x59, // pop rbp; pop rbx; pop rdx; pop rcx
    0x48, 0x8b, 0xc2, // mov rax, rdx
    0x48, 0x83, 0xc4, 0x20, // add rsp, 32
    0xc5, 0xf8, 0x77, 0xc9, 0xc3, // vzeroupper; leave; ret
];

/// Memory that can be written.
#[derive(Clone, Debug)]
pub struct FakeMemory(pub RefCell<Vec<u8>>);

impl Memory for &FakeMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let bytes = self.0.borrow();
        let from = address.checked_sub(BASE).and_then(|at| bytes.get(usize::try_from(at).ok()?..));
        let from = from.unwrap_or_default();
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        count
    }
}

impl FakeMemory {
    /// Writes bytes at the offset `at` from [`BASE`].
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).expect("small");
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes four bytes in native order at the offset `at` from [`BASE`].
    pub fn half(&self, at: u64, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    /// Writes eight bytes in native order at the offset `at` from [`BASE`].
    pub fn word(&self, at: u64, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    /// Reads eight bytes in native order at the offset `at` from [`BASE`].
    pub fn get(&self, at: u64) -> u64 {
        (&self).word(BASE + at).expect("small")
    }

    /// Writes a string and a zero byte; returns the string's address.
    pub fn text(&self, at: u64, text: &str) -> u64 {
        self.put(at, text.as_bytes());
        self.put(at + text.len() as u64, &[0]);
        BASE + at
    }

    /// A JVM with an empty heap.
    pub fn made() -> FakeMemory {
        let bytes = FakeMemory(RefCell::new(vec![0; SIZE]));
        bytes.word(POINTER, BASE + HEAP);
        for (place, value) in [(0, CODE), (8, CODE_END), (16, MAP), (24, MAP + (CODE_END - CODE) / 128)] {
            bytes.word(HEAP + place, BASE + value);
        }
        bytes.word(HEAP + 40, BASE + CODE_LIMIT);
        bytes.half(HEAP + 32, u32::try_from(SEGMENT).expect("small"));
        bytes.put(MAP, &[0xff; 1024]);
        bytes
    }

    /// A compiled method of a page, `segment` segments into the heap: `outer` has `inner` inlined up to offset 0x40.
    pub fn method(&self, segment: u64, compile_id: u32, outer: u64, inner: u64) -> u64 {
        let at = self.blob(segment, "nmethod");
        self.word(at + 32, outer);
        self.half(at + 40, compile_id);
        // Metadata, scopes, records, end.
        for (field, offset) in [(44, 0x600), (48, 0x620), (52, 0x700), (56, 0x740)] {
            self.half(at + field, offset);
        }
        self.word(at + 0x600, inner);
        self.word(at + 0x608, outer);
        // Sender, method, index and one: at 1 the outer one, at 4 the inner one within it.
        self.put(at + 0x620, &[0xee, 0, 2, 8, 1, 1, 6]);
        for (place, pc, scope) in [(0, u32::MAX, 0), (1, 0x40, 4), (2, 0x80, 1), (3, 0x3ff, 0)] {
            self.half(at + 0x700 + place * 16, pc);
            self.half(at + 0x704 + place * 16, scope);
        }
        BASE + at + 0x100
    }

    /// A blob of a page: code from 0x100 to 0x500.
    pub fn blob(&self, segment: u64, name: &str) -> u64 {
        let block = CODE + (segment << SEGMENT);
        for step in 0..32 {
            self.put(MAP + segment + step, &[u8::try_from(step).expect("small")]);
        }
        self.put(block + 8, &[1]);
        let at = block + 16;
        let name = self.text(NAMES + segment * 16, name);
        self.word(at, name);
        for (field, value) in [(8, 0x800), (12, 0x100), (16, 0x500)] {
            self.half(at + field, value);
        }
        at
    }

    /// A `Method*` of class `p/C` with this name.
    pub fn java(&self, number: u64, name: &str) -> u64 {
        let at = METHOD + number * 0x1000;
        let (constant, pool, class) = (at + 0x100, at + 0x200, at + 0x400);
        self.word(at + 8, BASE + constant);
        self.word(constant, BASE + pool);
        self.half(constant + 8, 12);
        for (field, value) in [(12, 1_u16), (14, 4), (16, 1), (18, 2)] {
            self.put(constant + field, &value.to_ne_bytes());
        }
        // Bytecodes, then lines: 10 from 0, 12 from 5.
        self.put(constant + 64 + 4, &[0xff, 0, 20, 5 << 3 | 2, 0]);
        self.word(pool, BASE + class);
        self.half(pool + 8, 4);
        self.put(pool + 12, &3_u16.to_ne_bytes());
        for (place, text) in [(1, name), (2, "()V"), (3, "C.java")] {
            let symbol = at + 0x500 + place * 0x40;
            self.word(pool + 32 + place * 8, self.symbol(symbol, text));
        }
        self.word(class, self.symbol(at + 0x700, "p/C"));
        self.word(class + 8, BASE + pool);
        BASE + at
    }

    /// The interpreter: 236 bytes of code in the heap.
    pub fn interpreter(&self) {
        self.word(INTERPRETER, BASE + QUEUE);
        self.word(QUEUE + 8, BASE + CODE + 64);
        self.half(QUEUE + 16, 236);
    }

    fn symbol(&self, at: u64, text: &str) -> u64 {
        self.put(at, &u16::try_from(text.len()).expect("small").to_ne_bytes());
        self.text(at + 2, text);
        BASE + at
    }
}

/// The layout of the fake JVM.
pub fn layout() -> VmLayout {
    VmLayout {
        heaps: HeapOffsets {
            address: BASE + POINTER,
            array: None,
            memory: SpaceOffsets { start: 0, end: 8 },
            memory_limit: 40,
            segment_map: SpaceOffsets { start: 16, end: 24 },
            segment_log2: 32,
            block_size: 16,
            block_used: 8,
            block_length: 0,
            block_length_is_half: false,
        },
        blob: BlobOffsets { name: 0, size: 8, code: BlobPlace::Offset(12), code_end: BlobPlace::Offset(16) },
        nmethod: NmethodOffsets {
            size: 64,
            method: 32,
            compile_id: 40,
            parts: DebugDataOffsets::Inside {
                metadata: 44,
                scopes: BlobPlace::Offset(48),
                records: 52,
                dependencies: 56,
            },
            record_size: 16,
            record_pc: 0,
            record_scope: 4,
        },
        frames: FrameOffsets {
            size: 20,
            complete: 24,
            complete_is_short: false,
            interpreter: BASE + INTERPRETER,
            interpreter_code: 8,
            interpreter_length: 16,
            has_mirror: true,
        },
        classes: ClassUnloadLayout::default(),
        threads: None,
        locks: None,
        method: MethodOffsets {
            const_method: 8,
            const_method_size: 64,
            constants: 0,
            words: 8,
            flags: 12,
            code_size: 14,
            name_index: 16,
            pool_size: 32,
            pool_length: 8,
            pool_holder: 0,
            file_in_pool: Some(12),
            file_in_class: None,
            class_name: 0,
            class_pool: 8,
            symbol_length: 0,
            symbol_body: 2,
        },
        call_stub_return: Some(CALL_STUB_RETURN),
        null_free: false,
    }
}

/// A JVM with a method that has another one inlined, an interpreter and a loader; and the ranges of it that are read.
#[must_use]
pub fn jvm() -> (FakeMemory, Vec<Range<u64>>) {
    let bytes = FakeMemory::made();
    let (outer, inner) = (bytes.java(0, "outer"), bytes.java(1, "inner"));
    bytes.method(0, 7, outer, inner);
    bytes.interpreter();
    bytes.put(STUB, SHA_256);
    let end = bytes.library("17.0.1+1", true);
    bytes.classes();
    bytes.threads(true);
    let used = [
        HEAP..HEAP + 48,
        POINTER..POINTER + 16,
        QUEUE + 8..QUEUE + 24,
        MAP..MAP + 64,
        CODE..CODE + 0x50,
        CODE + 16 + 0x600..CODE + 16 + 0x740,
        NAMES..NAMES + 8,
        METHOD..METHOD + 0x800,
        METHOD + 0x1000..METHOD + 0x1800,
        THREADS..THREADS_END,
        LOADERS..PERF_DATA + 64,
        LIBRARY..end,
        STUB..STUB + SHA_256.len() as u64,
    ];
    (bytes, used.to_vec())
}

/// Reads everything that the profiler reads of JVMs, before and after `change`: version and flags, layout, unwind
/// description, stubs and their rules, frames of addresses and of the interpreter, a thread's name, and
/// the classes of locks. Returns how many have names.
pub fn read(bytes: &FakeMemory, change: impl FnOnce(&FakeMemory)) -> usize {
    let library = BASE + LIBRARY;
    // A refusal costs names only.
    let flags = inspect(&bytes, library).map(|inspection| inspection.flags).unwrap_or_default();
    let layout = VmLayout::read(&bytes, library).unwrap_or_else(|_| layout());
    let _ = (read_unwind_info(&bytes, &layout), blobs(&bytes, library), lock_fields(&bytes, &layout, &flags));
    let code = CodeSpan { start: BASE + STUB, end: BASE + STUB + 0x1000 };
    assert!(stub_rules(&bytes, &[NamedStub { name: String::new(), code }]).len() <= MAX_STUB_RULES);
    let mut code = VmCode::new(bytes, layout, false);
    code.check(MonoNs::now());
    let mut named = ask(&mut code);
    change(bytes);
    code.check(MonoNs::now());
    named += ask(&mut code);
    named
}

/// Looks up addresses, methods and threads.
fn ask(code: &mut VmCode<&FakeMemory>) -> usize {
    let at = MonoNs::now();
    let start = BASE + CODE + 16 + 0x100;
    let pcs = [0, 0x20, 0x41, 0x3ff, 0x400, 0x1000];
    let asked: Vec<AddressQuery> = pcs
        .iter()
        .flat_map(|pc| [true, false].map(|leaf| AddressQuery { pc: start + pc, leaf, at }))
        .collect();
    let answers = code.lookup(&asked);
    assert_eq!(answers.len(), asked.len());
    let methods = [0, 1].map(|number| BASE + METHOD + number * 0x1000);
    let asked = methods.map(|method| MethodQuery { method, bcp: method + 0x100 + 64, at });
    let interpreted = code.interpreted(&asked);
    assert_eq!(interpreted.len(), asked.len());
    let threads = code.thread_names(&[NUMBER, NUMBER + 1]);
    assert_eq!(threads.len(), 2);
    assert_eq!(code.owners_of(&[NUMBER, NUMBER + 1]).len(), 2);
    let classes = code.class_names(&methods.map(|method| ClassQuery { class: method + 0x400, at }));
    assert_eq!(classes.len(), 2);
    answers.iter().filter(|answer| answer.frames.is_ok()).count()
        + classes.iter().flatten().count()
        + threads.iter().flatten().count()
        + interpreted.iter().filter(|frame| frame.is_ok()).count()
}
