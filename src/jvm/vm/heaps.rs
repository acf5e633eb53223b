//! The code heaps of a JVM, and the block around an address (`CodeHeap::find_block_for` in memory/heap.cpp).

use std::ops::Range;

use super::layout;
use crate::jvm::memory::{InvalidMemory, Memory, byte_in, half_in, word_in};

/// Most code heaps. JDK 9 and later have up to three, and one more with JVMCI or AOT.
const MAX_HEAPS: u32 = 16;
/// Most steps through the segment map: each leads up to 254 segments back.
const MAX_STEPS: u32 = 1 << 14;
/// In the segment map: no block is here.
const FREE: u8 = 0xff;
/// Most bytes of a `CodeHeap` that are read.
const MAX_HEAP: usize = 1024;

/// One code heap; addresses are the JVM's.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    pub(super) memory: Range<u64>,
    /// The end of the memory that the heap may grow to.
    pub(super) limit: u64,
    pub(super) segment_map: Range<u64>,
    pub(super) segment_log2: u32,
}

/// All code heaps as they were when they were read: heaps grow.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeHeaps(Vec<Heap>);

impl CodeHeaps {
    pub(super) fn read<M: Memory>(
        memory: &M,
        layout: &layout::HeapOffsets,
    ) -> Result<CodeHeaps, InvalidMemory> {
        Ok(CodeHeaps(read_heaps(memory, layout)?.into_iter().collect::<Result<_, _>>()?))
    }

    /// Whether a heap has the address, by its size when it was read: the segment map grows after the memory.
    pub(super) fn contain(&self, pc: u64) -> bool {
        let mapped = |heap: &Heap| {
            let segments = heap.segment_map.end.saturating_sub(heap.segment_map.start);
            (pc - heap.memory.start) >> heap.segment_log2 < segments
        };
        self.heap_with(pc).is_some_and(mapped)
    }

    fn heap_with(&self, pc: u64) -> Option<&Heap> {
        self.0.iter().find(|heap| heap.memory.contains(&pc))
    }

    /// The start of the blob around this address; `None` if no block in use is there.
    pub(super) fn blob_of<M: Memory>(
        &self,
        memory: &M,
        layout: &layout::HeapOffsets,
        pc: u64,
    ) -> Option<u64> {
        let heap = self.heap_with(pc)?;
        let mut segment = (pc - heap.memory.start) >> heap.segment_log2;
        for _ in 0..MAX_STEPS {
            let mut step = [0];
            let at = heap.segment_map.start.checked_add(segment).filter(|at| *at < heap.segment_map.end)?;
            memory.read_all(at, &mut step).ok()?;
            match step[0] {
                FREE => return None,
                0 => {
                    let block = heap.memory.start.checked_add(segment << heap.segment_log2)?;
                    return block.checked_add(layout.block_size).filter(|blob| *blob <= pc);
                }
                back => segment = segment.checked_sub(u64::from(back))?,
            }
        }
        None
    }
}

/// Reads each heap by itself: an invalid heap (of code compiled ahead of time) does not hide the others.
pub(super) fn read_heaps<M: Memory>(
    memory: &M,
    layout: &layout::HeapOffsets,
) -> Result<Vec<Result<Heap, InvalidMemory>>, InvalidMemory> {
    let first = memory.word(layout.address)?;
    let Some(array) = layout.array else {
        return Ok(vec![Heap::read(memory, layout, first)]);
    };
    let at = |offset: u64| first.checked_add(offset).ok_or(InvalidMemory);
    let mut count = [0; 4];
    memory.read_all(at(array.length)?, &mut count)?;
    let pointers = memory.word(at(array.pointers)?)?;
    let heaps = (0..u64::from(u32::from_ne_bytes(count).min(MAX_HEAPS))).map(|index| {
        let heap = memory.word(pointers.checked_add(index * 8).ok_or(InvalidMemory)?)?;
        Heap::read(memory, layout, heap)
    });
    Ok(heaps.collect())
}

impl Heap {
    fn read<M: Memory>(
        memory: &M,
        layout: &layout::HeapOffsets,
        address: u64,
    ) -> Result<Heap, InvalidMemory> {
        let fields = [
            layout.memory.end,
            layout.segment_map.end,
            layout.segment_log2,
            layout.memory.start,
            layout.memory_limit,
        ];
        let size = fields.into_iter().max().unwrap_or(0).max(layout.segment_map.start) + 8;
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_HEAP).ok_or(InvalidMemory)?;
        let mut bytes = vec![0; size];
        memory.read_all(address, &mut bytes)?;
        let space = |at: layout::SpaceOffsets| Ok(word_in(&bytes, at.start)?..word_in(&bytes, at.end)?);
        // Segments have 64 or 128 bytes; a page at most.
        let segment_log2 = half_in(&bytes, layout.segment_log2)?;
        if !(4..=12).contains(&segment_log2) {
            return Err(InvalidMemory);
        }
        let (memory, segment_map) = (space(layout.memory)?, space(layout.segment_map)?);
        Ok(Heap { memory, limit: word_in(&bytes, layout.memory_limit)?, segment_map, segment_log2 })
    }
}

/// Whether the block before a blob is in use. `bytes` begin with the block.
pub(super) fn is_used(bytes: &[u8], layout: &layout::HeapOffsets) -> bool {
    // The field is a `bool`: other values are invalid.
    byte_in(bytes, layout.block_used) == Ok(1)
}

/// The number of segments of a block, its blob included. `bytes` begin with the block.
pub(super) fn segments(bytes: &[u8], layout: &layout::HeapOffsets) -> Result<u64, InvalidMemory> {
    if layout.block_length_is_half {
        half_in(bytes, layout.block_length).map(u64::from)
    } else {
        word_in(bytes, layout.block_length)
    }
}
