//! The description of a JVM that the unwinder needs for its generated code: `struct jp_vm`, and the code heaps.

use serde::{Deserialize, Serialize};

/// First address, and the address after the last.
pub type CodeSpan = (u64, u64);

/// Maximum number of spans of hand-written code: `JP_VM_STUBS`.
pub const MAX_STUBS: usize = 8;
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

/// A JVM, as the unwinder needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSpot {
    /// The code of the template interpreter.
    pub interpreter: CodeSpan,
    /// The stubs to which frames of a virtual thread return while their callers are in the heap.
    pub continuation: CodeSpan,
    /// Hand-written code; each stub has its own frame layout.
    pub stubs: Vec<CodeSpan>,
    /// The code heaps, at most [`MAX_HEAPS`] of them.
    pub heaps: Vec<CodeHeap>,
    /// Binary logarithm of a segment's size in bytes.
    pub segment_log2: u32,
    /// The fields of blocks.
    pub block: BlockFields,
    /// Where an interpreter frame has the bytecode pointer: 0 or 1 words above fp - 64.
    pub bcp: u32,
    /// Whether compiled code keeps frame pointers (`-XX:+PreserveFramePointer`).
    pub frame_pointers: bool,
}

impl HotSpot {
    /// The bytes of `struct jp_vm`, without spans of stubs beyond [`MAX_STUBS`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut stubs = self.stubs.clone();
        stubs.resize(MAX_STUBS, (0, 0));
        let all = self.heaps.iter().map(|heap| heap.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let spans = [all.unwrap_or_default(), self.interpreter, self.continuation].into_iter().chain(stubs);
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
            self.bcp,
            u32::from(self.frame_pointers),
        ];
        let words = spans.flat_map(|(start, end)| [start, end]).flat_map(u64::to_le_bytes);
        words.chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_struct() {
        let hotspot = HotSpot {
            interpreter: (1, 2),
            continuation: (11, 12),
            stubs: vec![(3, 4); 9],
            heaps: [(5, 6), (7, 9)].map(|span| CodeHeap { span, segment_map: 0 }).to_vec(),
            segment_log2: 7,
            block: BlockFields { used: 8, blob: 16, code_is_offset: true, ..BlockFields::default() },
            bcp: 1,
            frame_pointers: true,
        };
        let bytes = hotspot.to_bytes();
        assert_eq!(bytes.len(), 48 + 16 * MAX_STUBS + 40);
        assert_eq!([0, 8, 16, 24, 32, 40, 48, 48 + 15 * 8].map(|at| bytes[at]), [5, 9, 1, 2, 11, 12, 3, 4]);
        let numbers: Vec<u32> =
            bytes[48 + 16 * MAX_STUBS..].as_chunks::<4>().0.iter().map(|n| u32::from_le_bytes(*n)).collect();
        assert_eq!(numbers, [7, 8, 16, 0, 0, 0, 0, 1, 1, 1]);
    }
}
