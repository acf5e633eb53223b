//! Code and methods over memory made here: what is true, what changes, and what lies.

use std::cell::RefCell;

use super::layout::{Blobs, Classes, Frames, Heaps, Layout, Methods, Nmethods, Parts, Place};
use super::{Answer, Asked, AskedMethod, Memory, VmCode, VmMiss};
use crate::process::MonoNs;

pub(super) const BASE: u64 = 0x7f00_0000_0000;
const SIZE: usize = 1 << 20;
/// Where things are made, from the base.
pub(super) const HEAP: u64 = 0x100;
const POINTER: u64 = 0x200;
/// The pointer to the interpreter's code.
pub(super) const INTERPRETER: u64 = 0x208;
const MAP: u64 = 0x1_0000;
pub(super) const CODE: u64 = 0x2_0000;
const CODE_END: u64 = 0x4_0000;
const CODE_LIMIT: u64 = 0x6_0000;
pub(super) const NAMES: u64 = 0x5_0000;
pub(super) const METHOD: u64 = 0x6_0000;
const SEGMENT: u64 = 7;

/// Memory that a test writes.
pub(super) struct Bytes(pub(super) RefCell<Vec<u8>>);

impl Memory for &Bytes {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let bytes = self.0.borrow();
        let from = address.checked_sub(BASE).and_then(|at| bytes.get(usize::try_from(at).ok()?..));
        let from = from.unwrap_or_default();
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        count
    }
}

impl Bytes {
    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn half(&self, at: u64, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    pub(super) fn word(&self, at: u64, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    pub(super) fn get(&self, at: u64) -> u64 {
        (&self).word(BASE + at).unwrap()
    }

    pub(super) fn text(&self, at: u64, text: &str) -> u64 {
        self.put(at, text.as_bytes());
        self.put(at + text.len() as u64, &[0]);
        BASE + at
    }

    /// A heap with nothing in it.
    pub(super) fn new() -> Bytes {
        let bytes = Bytes(RefCell::new(vec![0; SIZE]));
        bytes.word(POINTER, BASE + HEAP);
        for (place, value) in [(0, CODE), (8, CODE_END), (16, MAP), (24, MAP + (CODE_END - CODE) / 128)] {
            bytes.word(HEAP + place, BASE + value);
        }
        bytes.word(HEAP + 40, BASE + CODE_LIMIT);
        bytes.half(HEAP + 32, u32::try_from(SEGMENT).unwrap());
        bytes.put(MAP, &[0xff; 1024]);
        bytes
    }

    /// A compiled method of a page, `segment` segments into the heap: `outer` has `inner` inlined up to offset 0x40.
    fn method(&self, segment: u64, compile_id: u32, outer: u64, inner: u64) -> u64 {
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
    fn blob(&self, segment: u64, name: &str) -> u64 {
        let block = CODE + (segment << SEGMENT);
        for step in 0..32 {
            self.put(MAP + segment + step, &[u8::try_from(step).unwrap()]);
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
    pub(super) fn java(&self, number: u64, name: &str) -> u64 {
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

    fn symbol(&self, at: u64, text: &str) -> u64 {
        self.put(at, &u16::try_from(text.len()).unwrap().to_ne_bytes());
        self.text(at + 2, text);
        BASE + at
    }
}

pub(super) fn layout() -> Layout {
    Layout {
        heaps: Heaps {
            at: BASE + POINTER,
            array: None,
            memory: (0, 8),
            memory_limit: 40,
            segment_map: (16, 24),
            segment_log2: 32,
            block_size: 16,
            block_used: 8,
            block_length: 0,
            block_length_is_half: false,
        },
        blob: Blobs { name: 0, size: 8, code: Place::Offset(12), code_end: Place::Offset(16) },
        nmethod: Nmethods {
            size: 64,
            method: 32,
            compile_id: 40,
            parts: Parts::Inside { metadata: 44, scopes: Place::Offset(48), records: 52, dependencies: 56 },
            record_size: 16,
            record_pc: 0,
            record_scope: 4,
        },
        frames: Frames {
            size: 20,
            complete: 24,
            complete_is_short: false,
            interpreter: BASE + INTERPRETER,
            interpreter_code: 8,
            interpreter_length: 16,
            has_mirror: true,
        },
        classes: Classes::default(),
        method: Methods {
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
        call_stub_return: Some(BASE + CODE + 0x1000 + 16 + 0x110),
        null_free: false,
    }
}

fn code(bytes: &Bytes) -> VmCode<&Bytes> {
    let mut code = VmCode::new(bytes, layout(), false);
    code.check(MonoNs(0));
    code
}

fn ask(code: &mut VmCode<&Bytes>, pc: u64, leaf: bool, at: u64) -> Answer {
    code.lookup(&[Asked { pc, leaf, at: MonoNs(at) }]).remove(0)
}

/// Name, line and index of each frame, innermost first.
fn told(answer: &Answer) -> Result<Vec<String>, VmMiss> {
    let frames = answer.frames.as_ref().map_err(|&miss| miss)?;
    Ok(frames.iter().map(|f| format!("{}:{}@{}", f.name, f.line, f.bci.map_or(-1, i64::from))).collect())
}

#[test]
fn an_address_has_the_chain_of_the_record_at_or_above() {
    let bytes = Bytes::new();
    let (outer, inner) = (bytes.java(0, "outer"), bytes.java(1, "inner"));
    let start = bytes.method(0, 7, outer, inner);
    let mut code = code(&bytes);
    let both = Ok(vec!["p.C.inner:12@5".to_owned(), "p.C.outer:12@7".to_owned()]);
    for (pc, leaf) in [(0, true), (0x40, true), (0x40, false)] {
        assert_eq!(told(&ask(&mut code, start + pc, leaf, 10)), both, "{pc:x}");
    }
    let one = |code: &mut _, pc, leaf| told(&ask(code, start + pc, leaf, 10));
    assert_eq!(one(&mut code, 0x41, true), Ok(vec!["p.C.outer:12@7".to_owned()]));
    // Above the last record, and behind the last instruction.
    assert_eq!(one(&mut code, 0x3ff, true), Ok(vec!["p.C.outer:0@-1".to_owned()]));
    assert_eq!(one(&mut code, 0x400, false), Ok(vec!["p.C.outer:0@-1".to_owned()]));
    assert_eq!(one(&mut code, 0x400, true), Err(VmMiss::None));
    assert_eq!(one(&mut code, 0x0, false), Err(VmMiss::None));
    let frames = ask(&mut code, start, true, 10).frames.unwrap();
    assert_eq!(frames[0].method.as_ref().unwrap().file.as_deref(), Some("C.java"));
}

#[test]
fn stubs_have_their_blobs_names() {
    let bytes = Bytes::new();
    let start = BASE + bytes.blob(32, "StubRoutines (1)") + 0x100;
    let mut code = code(&bytes);
    let stub = Ok(vec!["StubRoutines (1):0@-1".to_owned()]);
    assert_eq!(told(&ask(&mut code, start + 0x10, true, 10)), stub);
    assert_eq!(told(&ask(&mut code, start + 0x10, false, 10)), Ok(vec!["call_stub:0@-1".to_owned()]));
    assert_eq!(told(&ask(&mut code, start + 0x11, false, 10)), stub);
}

#[test]
fn code_that_goes_is_not_believed_for_the_ticks_before() {
    let bytes = Bytes::new();
    let (old, new) = (bytes.java(0, "old"), bytes.java(1, "new"));
    let start = bytes.method(0, 7, old, old);
    let mut code = code(&bytes);
    let first = ask(&mut code, start + 0x41, true, 10);
    assert_eq!((told(&first), first.lasting), (Ok(vec!["p.C.old:12@7".to_owned()]), true));
    assert!(code.check(MonoNs(20)).is_empty());
    bytes.method(0, 8, new, new);
    assert_eq!(code.check(MonoNs(30)).len(), 1);
    let moved = ask(&mut code, start + 0x41, true, 25);
    assert_eq!((told(&moved), moved.lasting), (Err(VmMiss::Moved), false));
    assert!(code.changes(start + 0x41, true, MonoNs(25), MonoNs(35)));
    assert!(!code.changes(start + 0x41, true, MonoNs(31), MonoNs(35)));
    assert_eq!(told(&ask(&mut code, start + 0x41, true, 35)), Ok(vec!["p.C.new:12@7".to_owned()]));
    // Dead, but still there.
    bytes.word(CODE + 16 + 32, 0);
    assert_eq!(told(&ask(&mut code, start + 0x41, true, 36)), Err(VmMiss::Moved));
    // Freed, and nothing has come to its place.
    bytes.put(CODE + 8, &[0]);
    assert_eq!(code.check(MonoNs(40)).len(), 1);
    assert_eq!(told(&ask(&mut code, start + 0x41, true, 45)), Err(VmMiss::None));
}

#[test]
fn a_process_that_has_ended_is_told_as_such() {
    let bytes = Bytes::new();
    let method = bytes.java(0, "m");
    let start = bytes.method(0, 7, method, method);
    let mut code = code(&bytes);
    assert!(ask(&mut code, start, true, 10).frames.is_ok());
    bytes.0.borrow_mut().clear();
    assert!(code.check(MonoNs(20)).is_empty(), "what was known stays as it was");
    assert!(!code.stats().readable);
    assert_eq!(told(&ask(&mut code, start + 1, true, 15)), Err(VmMiss::Gone));
}

#[test]
fn lies_cost_frames_and_nothing_else() {
    let lie = |tell: fn(&Bytes)| {
        let bytes = Bytes::new();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        tell(&bytes);
        let mut code = code(&bytes);
        told(&ask(&mut code, start + 0x20, true, 10))
    };
    let blob = CODE + 16;
    assert_eq!(lie(|_| ()).map(|frames| frames.len()), Ok(2));
    // A scope that is its own sender.
    assert_eq!(lie(|b| b.put(CODE + 16 + 0x624, &[4])), Err(VmMiss::Nonsense));
    // Offsets and sizes without end.
    for field in [44, 48, 52, 56] {
        let bytes = Bytes::new();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        bytes.half(blob + field, u32::MAX);
        assert_eq!(told(&ask(&mut code(&bytes), start + 0x20, true, 10)), Err(VmMiss::Nonsense), "{field}");
    }
    assert_eq!(lie(|b| b.half(CODE + 16 + 8, u32::MAX)), Err(VmMiss::None));
    assert_eq!(lie(|b| b.half(CODE + 16 + 12, 0x700)), Err(VmMiss::None));
    // A segment map that leads nowhere, or in front of the heap.
    assert_eq!(lie(|b| b.put(MAP, &[1; 64])), Err(VmMiss::None));
    assert_eq!(lie(|b| b.word(HEAP, 0)), Err(VmMiss::None));
    assert_eq!(lie(|b| b.word(HEAP + 8, u64::MAX)).map(|frames| frames.len()), Ok(2));
    assert_eq!(lie(|b| b.half(HEAP + 32, 63)), Err(VmMiss::Gone));
    // Methods without sense.
    assert_eq!(lie(|b| b.word(METHOD + 8, u64::MAX - 3)), Err(VmMiss::Nonsense));
    assert_eq!(lie(|b| b.half(METHOD + 0x100 + 8, 0)), Err(VmMiss::Nonsense));
    assert_eq!(lie(|b| b.put(METHOD + 0x100 + 16, &[0xff, 0xff])), Err(VmMiss::Nonsense));
}

/// Values at random in what is read, those first that break sums, loops and sizes: nothing panics, runs on or grows.
#[test]
fn whatever_stands_in_memory_costs_frames_only() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let places = [(HEAP, 0x40), (POINTER, 0x120), (MAP, 0x40), (CODE, 0x840), (METHOD, 0x800)];
    let (mut right, mut wrong, mut described) = (0, 0, 0);
    for _ in 0..4_000 {
        let bytes = Bytes::new();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        bytes.word(INTERPRETER, BASE + 0x300);
        bytes.word(0x308, BASE + CODE + 64);
        bytes.half(0x310, 236);
        for _ in 0..=random(6) {
            let (place, length) = places[usize::try_from(random(5)).unwrap()];
            let at = place + random(length / 4) * 4;
            let odd = [
                0,
                1,
                7,
                0x7fff_ffff,
                1 << 31,
                u64::MAX,
                u64::MAX - 7,
                1 << 60,
                BASE + at,
                start,
                random(1 << 20),
            ];
            let value = odd[usize::try_from(random(odd.len() as u64)).unwrap()];
            let size = [1, 2, 4, 8][usize::try_from(random(4)).unwrap()];
            bytes.put(at, &value.to_ne_bytes()[..size]);
        }
        described += usize::from(super::hotspot(&&bytes, &layout()).is_ok());
        let mut code = code(&bytes);
        let asked = AskedMethod { method, bcp: method + 0x100 + 64, at: MonoNs(10) };
        assert_eq!(code.interpreted(&[asked]).len(), 1);
        for pc in [0, 0x20, 0x41, 0x3ff] {
            match told(&ask(&mut code, start + pc, true, 10)) {
                Ok(frames) => right += usize::from(frames.len() < 100),
                Err(_) => wrong += 1,
            }
        }
    }
    assert!(right > 1_000 && wrong > 1_000 && described > 100, "{right} {wrong} {described}");
    assert_eq!(right + wrong, 16_000, "chains are short");
}

#[test]
fn only_so_much_is_read_of_one_jvm() {
    let bytes = Bytes::new();
    let method = bytes.java(0, "m");
    // Records of a megabyte, read again for each address: the memory is one, the blobs are many.
    let starts: Vec<u64> = (0..16).map(|i| bytes.method(i * 32, 7, method, method)).collect();
    let mut code = code(&bytes);
    let mut asked = 0_u32;
    let enough = loop {
        let answers: Vec<Answer> = starts
            .iter()
            .flat_map(|&start| code.lookup(&[Asked { pc: start, leaf: true, at: MonoNs(1) }]))
            .collect();
        asked += 1;
        if answers.iter().any(|answer| told(answer) == Err(VmMiss::Nonsense)) || asked > 20_000 {
            break asked;
        }
    };
    assert!(enough < 20_000, "it is read without end");
    code.check(MonoNs(2));
    assert!(ask(&mut code, starts[0], true, 3).frames.is_ok(), "the next window has its own");
}
