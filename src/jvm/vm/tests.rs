//! Code and methods in fake memory: valid data, changing data, and forged data.

use std::cell::Cell;

use super::layout::ClassUnloadLayout;
use super::made::{
    BASE, CODE, FakeMemory, HEAP, HEAP_IS_STOPPED, LIBRARY, MAP, METHOD, NAME, NUMBER, POINTER, STRING, jvm,
    layout, read,
};
use super::unloads::UnloadCounter;
use super::{AddressQuery, MethodQuery, VmAnswer, VmCode, VmLayout, VmMiss};
use crate::jvm::inspection::inspect;
use crate::jvm::memory::Memory;
use crate::sample::MonoNs;

fn code(bytes: &FakeMemory) -> VmCode<&FakeMemory> {
    let mut code = VmCode::new(bytes, layout(), false);
    code.check(MonoNs(0));
    code
}

fn ask(code: &mut VmCode<&FakeMemory>, pc: u64, leaf: bool, at: u64) -> VmAnswer {
    code.lookup(&[AddressQuery { pc, leaf, at: MonoNs(at) }]).remove(0)
}

/// Name, line and bytecode index of each frame, innermost first.
fn shown(answer: &VmAnswer) -> Result<Vec<String>, VmMiss> {
    let frames = answer.frames.as_ref().map_err(|&miss| miss)?;
    Ok(frames.iter().map(|f| format!("{}:{}@{}", f.name, f.line, f.bci.map_or(-1, i64::from))).collect())
}

#[test]
fn the_layout_is_what_the_library_says() {
    let bytes = FakeMemory::made();
    bytes.library("17.0.1+1", false);
    assert_eq!(VmLayout::read(&&bytes, BASE + LIBRARY), Ok(layout()));
    let inspection = inspect(&&bytes, BASE + LIBRARY).unwrap();
    assert_eq!(
        (inspection.release.as_str(), inspection.flags.preserve_frame_pointer),
        ("17.0.1+1", Some(true))
    );
    bytes.java(0, "m");
    bytes.library("25.0.1+1", true);
    bytes.classes();
    let later = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
    assert!(later.null_free);
    let ClassUnloadLayout { unloads, links, permanent, .. } = later.classes;
    assert!(unloads.is_some() && links.is_some());
    assert_eq!(permanent.len(), 1, "the boot loader");
}

#[test]
fn what_is_fuzzed_has_names_if_it_is_left_as_it_is() {
    assert_eq!(read(&jvm().0, |_| ()), 2 * (8 + 1 + 2 + 2));
}

#[test]
fn threads_have_the_names_that_their_objects_have() {
    for (release, shorts) in [("17.0.1+1", true), ("21.0.1+1", false)] {
        let bytes = FakeMemory::made();
        bytes.library(release, true);
        bytes.threads(shorts);
        let layout = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
        let mut code = VmCode::new(&bytes, layout, false);
        code.check(MonoNs(0));
        bytes.put(HEAP_IS_STOPPED, &[1]);
        assert_eq!(code.thread_names(&[NUMBER]), [None]);
        bytes.put(HEAP_IS_STOPPED, &[0]);
        let name = Some(NAME.to_owned());
        assert_eq!(code.thread_names(&[1, NUMBER, 2]), [None, name.clone(), None], "{release}");
        // A collection moves the objects: the thread keeps its name.
        bytes.put(HEAP_IS_STOPPED, &[1]);
        assert_eq!(code.thread_names(&[1, NUMBER, 2]), [None, name, None], "{release}");
        bytes.put(HEAP_IS_STOPPED, &[0]);
        // The string's class is invalid, as in memory that a collector left behind.
        bytes.half(STRING + 8, 0);
        assert_eq!(code.thread_names(&[NUMBER]), [None]);
    }
}

/// Memory of a JVM whose collection ends after some looks at it.
struct EndingCollection<'a> {
    bytes: &'a FakeMemory,
    looks: Cell<u32>,
}

impl Memory for &EndingCollection<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        if address == BASE + HEAP_IS_STOPPED {
            self.looks.set(self.looks.get() + 1);
            self.bytes.put(HEAP_IS_STOPPED, &[u8::from(self.looks.get() < 3)]);
        }
        self.bytes.read(address, buffer)
    }
}

#[test]
fn a_thread_without_a_name_waits_for_the_end_of_a_collection() {
    let bytes = FakeMemory::made();
    bytes.library("17.0.1+1", true);
    bytes.threads(true);
    let layout = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
    let memory = EndingCollection { bytes: &bytes, looks: Cell::new(0) };
    let mut code = VmCode::new(&memory, layout.clone(), false);
    code.check(MonoNs(0));
    assert_eq!(code.thread_names(&[NUMBER]), [Some(NAME.to_owned())]);
    assert!(memory.looks.get() > 3, "{}", memory.looks.get());
    // A JVM that always collects costs no more than a fixed time.
    bytes.put(HEAP_IS_STOPPED, &[1]);
    let mut code = VmCode::new(&bytes, layout, false);
    code.check(MonoNs(0));
    for _ in 0..10_000 {
        assert_eq!(code.thread_names(&[NUMBER]), [None]);
    }
}

#[test]
fn an_address_has_the_chain_of_the_record_at_or_above() {
    let bytes = FakeMemory::made();
    let (outer, inner) = (bytes.java(0, "outer"), bytes.java(1, "inner"));
    let start = bytes.method(0, 7, outer, inner);
    let mut code = code(&bytes);
    let both = Ok(vec!["p.C.inner:12@5".to_owned(), "p.C.outer:12@7".to_owned()]);
    for (pc, leaf) in [(0, true), (0x40, true), (0x40, false)] {
        assert_eq!(shown(&ask(&mut code, start + pc, leaf, 10)), both, "{pc:x}");
    }
    let one = |code: &mut _, pc, leaf| shown(&ask(code, start + pc, leaf, 10));
    assert_eq!(one(&mut code, 0x41, true), Ok(vec!["p.C.outer:12@7".to_owned()]));
    // Above the last record, and behind the last instruction.
    assert_eq!(one(&mut code, 0x3ff, true), Ok(vec!["p.C.outer:0@-1".to_owned()]));
    assert_eq!(one(&mut code, 0x400, false), Ok(vec!["p.C.outer:0@-1".to_owned()]));
    assert_eq!(one(&mut code, 0x400, true), Err(VmMiss::NoCode));
    assert_eq!(one(&mut code, 0x0, false), Err(VmMiss::NoCode));
    let frames = ask(&mut code, start, true, 10).frames.unwrap();
    assert_eq!(frames[0].method.as_ref().unwrap().file.as_deref(), Some("C.java"));
}

#[test]
fn stubs_have_their_blobs_names() {
    let bytes = FakeMemory::made();
    let start = BASE + bytes.blob(32, "StubRoutines (1)") + 0x100;
    let mut code = code(&bytes);
    let stub = Ok(vec!["StubRoutines (1):0@-1".to_owned()]);
    assert_eq!(shown(&ask(&mut code, start + 0x10, true, 10)), stub);
    assert_eq!(shown(&ask(&mut code, start + 0x10, false, 10)), Ok(vec!["call_stub:0@-1".to_owned()]));
    assert_eq!(shown(&ask(&mut code, start + 0x11, false, 10)), stub);
}

#[test]
fn code_that_goes_is_not_believed_for_the_samples_before() {
    let bytes = FakeMemory::made();
    let (old, new) = (bytes.java(0, "old"), bytes.java(1, "new"));
    let start = bytes.method(0, 7, old, old);
    let mut code = code(&bytes);
    let first = ask(&mut code, start + 0x41, true, 10);
    assert_eq!((shown(&first), first.lasting), (Ok(vec!["p.C.old:12@7".to_owned()]), true));
    assert!(code.check(MonoNs(20)).is_empty());
    bytes.method(0, 8, new, new);
    assert_eq!(code.check(MonoNs(30)).len(), 1);
    let moved = ask(&mut code, start + 0x41, true, 25);
    assert_eq!((shown(&moved), moved.lasting), (Err(VmMiss::CodeMoved), false));
    assert!(code.changes(start + 0x41, true, MonoNs(25), MonoNs(35)));
    assert!(!code.changes(start + 0x41, true, MonoNs(31), MonoNs(35)));
    assert_eq!(shown(&ask(&mut code, start + 0x41, true, 35)), Ok(vec!["p.C.new:12@7".to_owned()]));
    // Dead, but still there.
    bytes.word(CODE + 16 + 32, 0);
    assert_eq!(shown(&ask(&mut code, start + 0x41, true, 36)), Err(VmMiss::CodeMoved));
    // Freed, and the memory is not reused.
    bytes.put(CODE + 8, &[0]);
    assert_eq!(code.check(MonoNs(40)).len(), 1);
    assert_eq!(shown(&ask(&mut code, start + 0x41, true, 45)), Err(VmMiss::NoCode));
}

/// Since the sample the method in the place of a newly seen one may have been freed with its class.
#[test]
fn a_method_first_seen_after_an_unload_has_no_earlier_names() {
    const UNLOADED: u64 = 0x3000;
    let bytes = FakeMemory::made();
    let method = bytes.java(0, "m");
    let [first, second, third] = [0, 32, 64].map(|segment| bytes.method(segment, 7, method, method));
    let mut layout = layout();
    layout.classes.unloads = Some(UnloadCounter::read(&&bytes, BASE + UNLOADED).unwrap());
    let mut code = VmCode::new(&bytes, layout, false);
    code.check(MonoNs::now());
    let before = MonoNs::now().0;
    assert!(ask(&mut code, first, true, before).frames.is_ok(), "no class has gone");
    bytes.word(UNLOADED, 1);
    assert!(ask(&mut code, first, true, before).frames.is_ok(), "it is known from before");
    assert_eq!(shown(&ask(&mut code, second, true, before)), Err(VmMiss::CodeMoved));
    assert_eq!(shown(&ask(&mut code, second, true, before)), Err(VmMiss::CodeMoved), "first seen too late");
    let after = MonoNs::now().0;
    assert!(ask(&mut code, third, true, after).frames.is_ok());
    assert!(ask(&mut code, second, true, after).frames.is_ok(), "it is known by then");
}

#[test]
fn stubs_stay_while_other_code_goes() {
    const UNLOADED: u64 = 0x3000;
    let bytes = FakeMemory::made();
    let stub = BASE + bytes.blob(0, "StubRoutines (1)") + 0x110;
    let mut layout = layout();
    layout.classes.unloads = Some(UnloadCounter::read(&&bytes, BASE + UNLOADED).unwrap());
    let mut code = VmCode::new(&bytes, layout, false);
    code.check(MonoNs::now());
    bytes.word(UNLOADED, 1);
    assert!(ask(&mut code, stub, true, 0).frames.is_ok());
}

#[test]
fn a_grown_heap_is_seen_at_the_next_check() {
    let bytes = FakeMemory::made();
    let method = bytes.java(0, "m");
    let start = bytes.method(32, 7, method, method);
    let end = bytes.get(HEAP + 8);
    bytes.word(HEAP + 8, BASE + CODE + 0x1000);
    let mut code = code(&bytes);
    assert_eq!(shown(&ask(&mut code, start, true, 10)), Err(VmMiss::NoCode));
    bytes.word(HEAP + 8, end);
    code.check(MonoNs(20));
    assert!(ask(&mut code, start, true, 30).frames.is_ok());
}

#[test]
fn unused_code_is_evicted() {
    let bytes = FakeMemory::made();
    let method = bytes.java(0, "m");
    let (often, once) = (bytes.method(0, 7, method, method), bytes.method(32, 8, method, method));
    let mut code = code(&bytes);
    let asked = |code: &mut _, start, second| ask(code, start, true, second * 1_000_000_000);
    assert!(asked(&mut code, once, 0).lasting);
    for second in 1..200 {
        code.check(MonoNs(second * 1_000_000_000));
        assert!(asked(&mut code, often, second).lasting);
        assert_eq!(code.stats().known, if second < 75 { 2 } else { 1 }, "after {second} s");
    }
    assert!(asked(&mut code, once, 200).lasting);
    assert_eq!(code.stats().known, 2);
}

#[test]
fn an_exited_process_is_process_gone() {
    let bytes = FakeMemory::made();
    let method = bytes.java(0, "m");
    let start = bytes.method(0, 7, method, method);
    let mut code = code(&bytes);
    assert!(ask(&mut code, start, true, 10).frames.is_ok());
    bytes.0.borrow_mut().clear();
    assert!(code.check(MonoNs(20)).is_empty(), "what was known stays as it was");
    assert!(!code.stats().readable);
    assert_eq!(shown(&ask(&mut code, start + 1, true, 15)), Err(VmMiss::ProcessGone));
}

#[test]
fn lies_cost_frames_and_nothing_else() {
    let lie = |plant: fn(&FakeMemory)| {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        plant(&bytes);
        let mut code = code(&bytes);
        shown(&ask(&mut code, start + 0x20, true, 10))
    };
    let blob = CODE + 16;
    assert_eq!(lie(|_| ()).map(|frames| frames.len()), Ok(2));
    // A scope that is its own sender.
    assert_eq!(lie(|b| b.put(CODE + 16 + 0x624, &[4])), Err(VmMiss::BadMemory));
    // Offsets and sizes without end.
    for field in [44, 48, 52, 56] {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        bytes.half(blob + field, u32::MAX);
        assert_eq!(shown(&ask(&mut code(&bytes), start + 0x20, true, 10)), Err(VmMiss::BadMemory), "{field}");
    }
    assert_eq!(lie(|b| b.half(CODE + 16 + 8, u32::MAX)), Err(VmMiss::NoCode));
    assert_eq!(lie(|b| b.half(CODE + 16 + 12, 0x700)), Err(VmMiss::NoCode));
    // A segment map that leads nowhere, or in front of the heap.
    assert_eq!(lie(|b| b.put(MAP, &[1; 64])), Err(VmMiss::NoCode));
    assert_eq!(lie(|b| b.word(HEAP, 0)), Err(VmMiss::NoCode));
    assert_eq!(lie(|b| b.word(HEAP + 8, u64::MAX)).map(|frames| frames.len()), Ok(2));
    assert_eq!(lie(|b| b.half(HEAP + 32, 63)), Err(VmMiss::ProcessGone));
    // Invalid methods.
    assert_eq!(lie(|b| b.word(METHOD + 8, u64::MAX - 3)), Err(VmMiss::BadMemory));
    assert_eq!(lie(|b| b.half(METHOD + 0x100 + 8, 0)), Err(VmMiss::BadMemory));
    assert_eq!(lie(|b| b.put(METHOD + 0x100 + 16, &[0xff, 0xff])), Err(VmMiss::BadMemory));
}

/// Random values in memory that is read, often values that overflow sums, loops and sizes: no panic, hang or growth.
#[test]
fn invalid_memory_costs_frames_only() {
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
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let start = bytes.method(0, 7, method, method);
        bytes.interpreter();
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
        described += usize::from(super::read_unwind_info(&&bytes, &layout()).is_ok());
        let mut code = code(&bytes);
        let asked = MethodQuery { method, bcp: method + 0x100 + 64, at: MonoNs(10) };
        assert_eq!(code.interpreted(&[asked]).len(), 1);
        for pc in [0, 0x20, 0x41, 0x3ff] {
            match shown(&ask(&mut code, start + pc, true, 10)) {
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
    let bytes = FakeMemory::made();
    let method = bytes.java(0, "m");
    // Each lookup reads its blob again, and one limit covers all blobs.
    let starts: Vec<u64> = (0..16).map(|i| bytes.method(i * 32, 7, method, method)).collect();
    let mut code = code(&bytes);
    let mut asked = 0_u32;
    let enough = loop {
        let answers: Vec<VmAnswer> = starts
            .iter()
            .flat_map(|&start| code.lookup(&[AddressQuery { pc: start, leaf: true, at: MonoNs(1) }]))
            .collect();
        asked += 1;
        if answers.iter().any(|answer| shown(answer) == Err(VmMiss::BadMemory)) || asked > 20_000 {
            break asked;
        }
    };
    assert!(enough < 20_000, "it is read without end");
    code.check(MonoNs(2));
    assert!(ask(&mut code, starts[0], true, 3).frames.is_ok(), "the next window has its own");
}
