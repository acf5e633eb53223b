//! Memory laid out to make unwinding expensive: the reads for one stack are limited all the same.

use jbpf_prof::unwind::{BlockFields, CodeHeap, CodeSpan, HotSpotUnwindInfo};

use super::recording::{FAILED_READ, MAX_READS, Recording, Walked};
use testkit::skip;

/// The heap's code is readable up to its middle; its segment map is readable whole.
const HEAP: u64 = 0x7000_0000_0000;
const HEAP_END: u64 = HEAP + 0x2_0000;
const SEGMENT_MAP: u64 = 0x7100_0000_0000;
const STACK: u64 = 0x7200_0000_0000;
const FRAMES: usize = 1_024;
/// The words that are searched for a return address, and the words of a frame in the heap's only block.
const SEARCHED: usize = 63;
const FRAME: usize = 2;

/// The address follows a call, and is as far from the block's beginning as the segment map is followed.
const PC: u64 = HEAP + 0x1000;
const LEAF: u64 = PC - 64;
/// An address in readable code that follows no call, and an address without memory.
const READABLE: u64 = HEAP + 0x2000;
const UNREADABLE: u64 = HEAP_END - 0x1000;
/// An address in no known range: unwound by frame pointer.
const ELSEWHERE: u64 = HEAP - 0x1000;

fn jvm() -> HotSpotUnwindInfo {
    HotSpotUnwindInfo {
        heaps: vec![CodeHeap { span: CodeSpan { start: HEAP, end: HEAP_END }, segment_map: SEGMENT_MAP }],
        segment_log2: 7,
        block: BlockFields {
            used: 8,
            blob: 16,
            frame_size: 24,
            frame_complete: 28,
            code: 32,
            code_is_offset: true,
            ..BlockFields::default()
        },
        ..HotSpotUnwindInfo::default()
    }
}

/// One block from the heap's beginning on, with a call before `PC`; its frames have this many words.
fn code(frame: usize) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(HEAP_END - HEAP).unwrap() / 2];
    bytes[8] = 1;
    bytes[24] = frame as u8;
    bytes[32] = 64;
    bytes[0x1000 - 5] = 0xe8;
    bytes
}

/// A segment map in which the block is as many steps away as it has segments.
fn segments() -> Vec<u8> {
    let mut map = vec![1; 1024];
    map[0] = 0;
    map
}

/// Frames without a return address in its place: only the last searched word is one.
fn stack(word: u64) -> Vec<u64> {
    let mut frame = vec![0; FRAME];
    frame.resize(FRAME + SEARCHED - 1, word);
    frame.push(PC);
    frame.repeat(FRAMES + 64)
}

/// A recording in the format of `tests/programs/replay/recording.h`.
#[derive(Default)]
struct Made(Vec<u8>);

impl Made {
    fn words(&mut self, words: &[u64]) {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn memory(&mut self, address: u64, bytes: &[u8]) {
        for (at, block) in (address..).step_by(256).zip(bytes.chunks(256)) {
            self.words(&[1, at]);
            self.0.extend(block);
            self.0.resize(self.0.len() + 256 - block.len(), 0);
        }
    }

    fn stack(&mut self, address: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory(address, &bytes);
    }

    /// `registers`: ip, sp, fp, ax, bx, r13.
    fn tick(&mut self, registers: [u64; 6]) {
        self.words(&[2, 0]);
        self.words(&registers);
        self.words(&[0]);
    }

    fn walk(&self, name: &str) -> Vec<Walked> {
        self.walk_in(name, &jvm())
    }

    fn walk_in(&self, name: &str, jvm: &HotSpotUnwindInfo) -> Vec<Walked> {
        Recording::made(name, jvm, &self.0).walk()
    }
}

/// The read that reaches the limit may be one that fails.
#[track_caller]
fn assert_bounded(name: &str, stacks: &[Walked]) {
    let most_expensive = stacks.iter().map(Walked::cost).max().unwrap();
    eprintln!("{name}: {} stacks, the most expensive needs {most_expensive} reads", stacks.len());
    assert!(most_expensive < MAX_READS + FAILED_READ, "{name}: {most_expensive} reads");
}

#[test]
fn expensive_frames_end_the_unwind() {
    if !applies() {
        return;
    }
    for (name, word, least) in [("readable", READABLE, 90), ("unreadable", UNREADABLE, 60 * FAILED_READ)] {
        let mut made = Made::default();
        made.memory(HEAP, &code(FRAME));
        made.memory(SEGMENT_MAP, &segments());
        made.stack(STACK, &stack(word));
        made.tick([LEAF, STACK, 0, 0, 0, 0]);
        let stacks = made.walk(name);
        assert_bounded(name, &stacks);
        let [stack] = &stacks[..] else { panic!("{} stacks", stacks.len()) };
        assert_eq!(stack.end, "depth", "{name}");
        assert!(stack.cost() >= MAX_READS, "{name}: {} reads", stack.cost());
        // The stack is true as far as it goes, and each frame but the last one cost as much as intended.
        assert!(stack.addresses()[1..].iter().all(|pc| *pc == PC), "{name}: {:x?}", stack.words);
        let each = stack.cost() / (stack.words.len() as u64 - 1);
        assert!(stack.words.len() > 3 && each > least, "{name}: {each} reads a frame");
    }
}

/// Each frame lies at the end of a page. Memory behind it that no frame needs is missing: no read goes beyond.
#[test]
fn frames_at_the_end_of_memory_are_read() {
    if !applies() {
        return;
    }
    // In the second case, frames lie on both sides of a page's end.
    for (name, place, zeros) in [("ends", 0xff0, 30), ("borders", 0xff8, 31)] {
        let mut made = Made::default();
        for frame in 0..FRAMES as u64 {
            let at = STACK + 0x2000 * frame;
            made.stack(at + 0xf00, &[vec![0; zeros], vec![at + 0x2000 + place, ELSEWHERE]].concat());
        }
        made.tick([ELSEWHERE, STACK + place, STACK + place, 0, 0, 0]);
        let stacks = made.walk(name);
        assert_bounded(name, &stacks);
        // The read that fails is that of the leaf's code.
        assert_eq!((stacks[0].end.as_str(), stacks[0].failed), ("depth", 1), "{name}");
        assert_eq!(stacks[0].words.len(), FRAMES, "{name}");
    }
}

/// The stack words that the walk before has read may be those of another process.
#[test]
fn a_walk_sees_nothing_of_the_one_before() {
    if !applies() {
        return;
    }
    let mut made = Made::default();
    made.stack(STACK, &[[STACK + 16, ELSEWHERE, 0, ELSEWHERE].as_slice(), &[0; 508]].concat());
    made.tick([ELSEWHERE, STACK, STACK, 0, 0, 0]);
    // No memory is recorded at this stack pointer.
    made.tick([ELSEWHERE, 0, 8, 0, 0, 0]);
    let stacks = made.walk("stale");
    assert_eq!(stacks[0].words.len(), 3, "{:x?}", stacks[0].words);
    assert_eq!((stacks[1].words.len(), stacks[1].end.as_str()), (1, "bad_read"), "{:x?}", stacks[1].words);
}

/// Each stack is also unwound by the steps of those before, but other code may have come meanwhile.
#[test]
fn code_that_is_replaced_is_stepped_from_by_what_is_there_now() {
    if !applies() {
        return;
    }
    let mut made = Made::default();
    made.memory(SEGMENT_MAP, &segments());
    for frame in [4, 4, 6, 5] {
        let mut words: Vec<u64> = (1..=40 * frame).map(|at| if at % frame == 0 { PC } else { 0 }).collect();
        // Clears all words of the stack before.
        words.resize(320, 0);
        made.memory(HEAP, &code(frame));
        made.stack(STACK, &words);
        made.tick([LEAF, STACK, 0, 0, 0, 0]);
    }
    let stacks = made.walk("replaced");
    for stack in &stacks {
        let frames = stack.addresses().iter().filter(|pc| **pc == PC).count();
        assert!(frames == 40, "{frames} frames: {:x?}", stack.words);
    }
    let again: Vec<bool> = stacks.iter().map(|stack| stack.again * 3 < stack.looks * 2).collect();
    assert_eq!(again, [false, true, false, false], "only one of them has stood there before");
}

/// Random memory, made of words that lead somewhere.
#[test]
fn whatever_memory_holds_a_walk_is_bounded() {
    if !applies() {
        return;
    }
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) % below
    };
    let mut all = Vec::new();
    for round in 0..48 {
        let mut made = Made::default();
        let mut heap = code(FRAME);
        for byte in &mut heap[40..] {
            *byte = [0, 0xff, 0xe8, 0xd0, 0xc3, 0x55, 0x48, 0x89][random(8) as usize];
        }
        heap[24] = random(12) as u8;
        made.memory(HEAP, &heap);
        let map: Vec<u8> = (0..1024).map(|segment| segment.min(1 + random(60)) as u8).collect();
        made.memory(SEGMENT_MAP, &map);
        let (likely, length) = (random(100), 0x2_0000);
        let mut word = || match random(100) {
            n if n < likely => HEAP + random(0x1_0000),
            n if n < 60 => PC,
            n if n < 90 => HEAP + random(HEAP_END - HEAP),
            n if n < 95 => STACK + 8 * random(length),
            n => n,
        };
        let words: Vec<u64> = (0..length).map(|_| word()).collect();
        made.stack(STACK, &words);
        for at in 0..32 {
            made.tick([word(), STACK + 64 * at, STACK + 64 * at + 80, word(), word(), word()]);
        }
        // In every second round a part of the heap is the interpreter's, whose frames contain the method that it runs.
        let part = CodeSpan { start: HEAP + 0x2000, end: HEAP + 0xa000 };
        let interpreter = if round % 2 == 0 { part } else { CodeSpan::default() };
        let vm = HotSpotUnwindInfo { interpreter, bcp_slot: round / 2 % 2, ..jvm() };
        all.extend(made.walk_in(&format!("chance-{round}"), &vm));
    }
    assert_bounded("chance", &all);
    let interpreted = all.iter().flat_map(|stack| &stack.words).filter(|word| *word >> 60 == 3).count();
    assert!(interpreted > 100, "{interpreted} frames of the interpreter");
    let deepest = all.iter().map(|stack| stack.words.len()).max().unwrap();
    let ends: std::collections::BTreeSet<&str> = all.iter().map(|stack| stack.end.as_str()).collect();
    assert!(deepest > 50 && ends.len() > 3, "{deepest} frames, {ends:?}");
}

fn applies() -> bool {
    let applies = cfg!(target_arch = "x86_64");
    if !applies {
        skip("code heaps are walked on x86-64 only");
    }
    applies
}
