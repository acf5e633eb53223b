//! The description of a JVM that the unwinder needs for its generated code: `struct jp_vm`, and the code heaps.

use serde::{Deserialize, Serialize};

use super::rule::Rule;

/// A range of addresses of generated code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSpan {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
}

/// Maximum number of spans of `StubRoutines`: `JP_VM_STUBS`.
pub const MAX_STUBS: usize = 8;
/// Maximum number of rules of stubs: `JP_STUB_RULES`.
pub const MAX_STUB_RULES: usize = 32;
/// Maximum number of code heaps; HotSpot has three.
pub const MAX_HEAPS: usize = 16;
/// How many bytes of a block the BPF program reads, including the header: `JP_BLOB_BYTES`.
pub const BLOB_BYTES: u32 = 128;

/// A code heap: memory for a JVM's generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeHeap {
    /// The whole heap, including memory that is not in use yet.
    pub span: CodeSpan,
    /// Address of the heap's segment map.
    pub segment_map: u64,
}

/// The rule for some instructions of a stub that neither keeps rbp nor has frames of one size: `struct jp_stub_rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StubRule {
    /// The addresses of the instructions.
    pub code: CodeSpan,
    /// How to go from such an instruction to the stub's caller.
    pub rule: Rule,
}

/// Bytes of `struct jp_stub_rule`.
const STUB_RULE_BYTES: usize = 24;

impl StubRule {
    fn to_bytes(self) -> [u8; STUB_RULE_BYTES] {
        let mut bytes = [0; STUB_RULE_BYTES];
        bytes[..8].copy_from_slice(&self.code.start.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.code.end.to_le_bytes());
        bytes[16..].copy_from_slice(&self.rule.encode());
        bytes
    }
}

/// Where a block of a code heap describes the frames of its code: offsets in bytes from the start of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFields {
    /// A byte: 1 if the block is in use.
    pub used: u32,
    /// Where the `CodeBlob` begins.
    pub blob: u32,
    /// The frame's size: an `s32`, in words.
    pub frame_size: u32,
    /// The offset in the code from which on the frame is complete.
    pub frame_complete: u32,
    /// Whether `frame_complete` is a number of two bytes, not of four.
    pub frame_complete_is_short: bool,
    /// Where the code begins.
    pub code: u32,
    /// Whether `code` is an offset from the `CodeBlob`, not an address.
    pub code_is_offset: bool,
}

/// Where a JVM has the locks of its threads: `struct jp_vm_locks`. Offsets in bytes; `call_stub`, `heap_busy` and
/// `colours` are addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFields {
    /// The address to which the first Java frame of a thread returns.
    pub call_stub: u64,
    /// Address of a byte that is not 0 while a collection has stopped the program.
    pub heap_busy: u64,
    /// Addresses of the masks of ZGC's pointers, good and bad; 0: pointers have no colour.
    pub colours: [u64; 2],
    /// How compressed pointers of objects become addresses.
    pub oops: PointerCompression,
    /// How compressed pointers of classes become addresses.
    pub classes: PointerCompression,
    /// In a `JavaThread`: its `OSThread`.
    pub os_thread: u32,
    /// In an `OSThread`: the thread's id in its own PID namespace.
    pub thread_id: u32,
    /// In a `JavaThread`: the `java.lang.Thread`, a virtual one if it is mounted.
    pub thread_object: u32,
    /// In a `java.lang.Thread`: offset of `parkBlocker`.
    pub park_blocker: u32,
    /// In a `JavaThread`: the monitor that it enters.
    pub pending: u32,
    /// In a `JavaThread`: the monitor for whose notification it waits.
    pub waiting: u32,
    /// In an `ObjectMonitor`: its object.
    pub monitor_object: u32,
    /// In an `ObjectMonitor`: its owner.
    pub monitor_owner: u32,
    /// In an object: its class.
    pub class: u32,
    /// What else differs between JVMs.
    pub traits: LockTraits,
}

/// Compressed pointers: the address is `base + (pointer << shift)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointerCompression {
    /// Base address that is added to a shifted pointer.
    pub base: u64,
    /// Number of bits by which a pointer is shifted left.
    pub shift: u32,
}

/// Traits of a JVM: `JP_VM_HANDLES` and those that follow it, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a bit of its own")]
pub struct LockTraits {
    /// `JavaThread` and `ObjectMonitor` have handles of objects.
    pub handles: bool,
    /// Fields of objects have compressed pointers.
    pub narrow_oops: bool,
    /// Objects have compressed pointers to their classes.
    pub narrow_classes: bool,
    /// The class is in the upper bits of the mark word.
    pub compact: bool,
    /// A pointer is an address, shifted, and a colour below (generational ZGC).
    pub shifted: bool,
    /// The mark word of a locked object does not have the monitor's address.
    pub monitor_table: bool,
}

/// Bytes of `struct jp_vm_locks`.
const LOCK_BYTES: usize = 96;

impl LockFields {
    fn to_bytes(&self) -> Vec<u8> {
        let [good, bad] = self.colours;
        let words = [self.call_stub, self.heap_busy, good, bad, self.oops.base, self.classes.base];
        let LockTraits { handles, narrow_oops, narrow_classes, compact, shifted, monitor_table } =
            self.traits;
        let traits = [handles, narrow_oops, narrow_classes, compact, shifted, monitor_table];
        let traits = traits.into_iter().zip(0..).map(|(is_set, bit)| u32::from(is_set) << bit).sum();
        let numbers = [
            self.oops.shift,
            self.classes.shift,
            self.os_thread,
            self.thread_id,
            self.thread_object,
            self.park_blocker,
            self.pending,
            self.waiting,
            self.monitor_object,
            self.monitor_owner,
            self.class,
            traits,
        ];
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words.chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect()
    }
}

/// What the unwinder must know about a JVM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSpotUnwindInfo {
    /// The code of the template interpreter.
    pub interpreter: CodeSpan,
    /// The stubs to which frames of a virtual thread return while their callers are in the heap.
    pub continuation: CodeSpan,
    /// `StubRoutines`: code generated from hand-written assembler; each has its own frame layout.
    pub stubs: Vec<CodeSpan>,
    /// Rules for instructions of stubs, at most [`MAX_STUB_RULES`] of them, without overlap.
    pub stub_rules: Vec<StubRule>,
    /// The code heaps, at most [`MAX_HEAPS`] of them.
    pub heaps: Vec<CodeHeap>,
    /// Binary logarithm of a segment's size in bytes.
    pub segment_log2: u32,
    /// The fields of blocks.
    pub block: BlockFields,
    /// Where an interpreter frame has the bytecode pointer: 0 or 1 words above fp - 64.
    pub bcp_slot: u32,
    /// Whether compiled code keeps frame pointers (`-XX:+PreserveFramePointer`).
    pub frame_pointers: bool,
    /// Where the locks of threads are, if that is known.
    pub locks: Option<LockFields>,
}

impl HotSpotUnwindInfo {
    /// The bytes of `struct jp_vm`, without spans of stubs beyond [`MAX_STUBS`] and rules beyond [`MAX_STUB_RULES`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut stubs = self.stubs.clone();
        stubs.resize(MAX_STUBS, CodeSpan::default());
        let around =
            |a: CodeSpan, b: CodeSpan| CodeSpan { start: a.start.min(b.start), end: a.end.max(b.end) };
        let all = self.heaps.iter().map(|heap| heap.span).reduce(around);
        let mut rules: Vec<StubRule> = self.stub_rules.iter().copied().take(MAX_STUB_RULES).collect();
        rules.sort_by_key(|rule| rule.code.start);
        let ruled = rules.iter().map(|rule| rule.code).reduce(around);
        let mut rules: Vec<[u8; STUB_RULE_BYTES]> = rules.into_iter().map(StubRule::to_bytes).collect();
        rules.resize(MAX_STUB_RULES, [0; STUB_RULE_BYTES]);
        let spans = [all.unwrap_or_default(), self.interpreter, self.continuation].into_iter().chain(stubs);
        let spans = spans.chain([ruled.unwrap_or_default()]);
        let BlockFields {
            used,
            blob,
            frame_size,
            frame_complete,
            frame_complete_is_short,
            code,
            code_is_offset,
        } = self.block;
        let numbers = [
            self.segment_log2,
            used,
            blob,
            frame_size,
            frame_complete,
            u32::from(frame_complete_is_short),
            code,
            u32::from(code_is_offset),
            self.bcp_slot,
            u32::from(self.frame_pointers),
        ];
        let words = spans.flat_map(|CodeSpan { start, end }| [start, end]).flat_map(u64::to_le_bytes);
        let locks = self.locks.as_ref().map_or_else(|| vec![0; LOCK_BYTES], LockFields::to_bytes);
        let words = words.chain(rules.into_iter().flatten());
        words.chain(numbers.into_iter().flat_map(u32::to_le_bytes)).chain(locks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::{Cfa, Fp};

    #[test]
    fn the_bytes_are_those_of_the_struct() {
        let span = |start, end| CodeSpan { start, end };
        let rule = |start, end, cfa| StubRule {
            code: span(start, end),
            rule: Rule::Frame { cfa, fp: Fp::AtCfa(-16) },
        };
        let hotspot = HotSpotUnwindInfo {
            interpreter: span(1, 2),
            continuation: span(11, 12),
            stubs: vec![span(3, 4); 9],
            stub_rules: vec![rule(17, 18, Cfa::Sp(80)), rule(13, 16, Cfa::AtSp(0x38, 32))],
            heaps: [span(5, 6), span(7, 9)].map(|span| CodeHeap { span, segment_map: 0 }).to_vec(),
            segment_log2: 7,
            block: BlockFields { used: 8, blob: 16, code_is_offset: true, ..BlockFields::default() },
            bcp_slot: 1,
            frame_pointers: true,
            locks: None,
        };
        let bytes = hotspot.to_bytes();
        let after_stubs = 48 + 16 * MAX_STUBS;
        let after_rules = after_stubs + 16 + MAX_STUB_RULES * STUB_RULE_BYTES;
        assert_eq!(bytes.len(), after_rules + 40 + LOCK_BYTES);
        assert_eq!([0, 8, 16, 24, 32, 40, 48, 48 + 15 * 8].map(|at| bytes[at]), [5, 9, 1, 2, 11, 12, 3, 4]);
        let numbers = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks::<4>().0.iter().map(|n| u32::from_le_bytes(*n)).collect()
        };
        let words: Vec<u64> = bytes[after_stubs..after_rules]
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        // At the end the CFA, the distance of fp from it, and the kinds.
        let rules: [u64; 6] = [13, 16, 0x20_0038_fff0_0105, 17, 18, 0x50_fff0_0102];
        assert_eq!(words[..8], [&[13, 18][..], &rules].concat(), "sorted, and the span around them");
        assert!(words[8..].iter().all(|word| *word == 0));
        let (own, locks) = bytes[after_rules..].split_at(40);
        assert_eq!(numbers(own), [7, 8, 16, 0, 0, 0, 0, 1, 1, 1]);
        assert!(locks.iter().all(|byte| *byte == 0));
        let locks = LockFields {
            call_stub: 1,
            heap_busy: 2,
            colours: [3, 4],
            oops: PointerCompression { base: 5, shift: 7 },
            classes: PointerCompression { base: 6, shift: 8 },
            os_thread: 9,
            thread_id: 10,
            thread_object: 11,
            park_blocker: 12,
            pending: 13,
            waiting: 14,
            monitor_object: 15,
            monitor_owner: 16,
            class: 17,
            traits: LockTraits { handles: true, compact: true, monitor_table: true, ..LockTraits::default() },
        };
        let bytes = locks.to_bytes();
        assert_eq!([0, 8, 16, 24, 32, 40].map(|at| bytes[at]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(&bytes[48..]), [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 1 | 8 | 32]);
    }
}
