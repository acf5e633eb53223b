//! How to unwind a JVM's generated code: where the code is, and where its frame sizes are.

use super::heaps::{Heap, read_heaps};
use super::layout::{BlobPlace, VmLayout};
use super::stub_frames::stub_rules;
use super::stubs::stubs_of;
use crate::jvm::memory::{InvalidMemory, Memory, half_in, word_in};
use crate::unwind::hotspot::{BLOB_BYTES, MAX_HEAPS, MAX_STUBS};
use crate::unwind::{BlockFields, CodeHeap, CodeSpan, HotSpotUnwindInfo};

/// The blobs of hand-written code have names that begin so (runtime/stubRoutines.cpp, JDK 8 to 28).
const STUBS: &str = "StubRoutines";
/// The stubs of virtual threads: "(continuation stubs)" in JDK 21, 26 and 28, "(continuationstubs)" in 25.
const CONTINUATION: &str = "continuation";
/// Largest code cache: 2 GiB (`CODE_CACHE_SIZE_LIMIT`).
const MAX_HEAP: u64 = 2 << 30;
const MAX_INTERPRETER: u64 = 4 << 20;

/// Reads the unwind description without what depends on flags, which the caller knows: `frame_pointers` and `locks`. A
/// JVM that cannot run Java yet gives [`InvalidMemory`]; so do machines whose frames the unwinder does not know
/// (`bpf/step_hotspot.h`).
pub(in crate::jvm) fn read_unwind_info<M: Memory>(
    memory: &M,
    layout: &VmLayout,
) -> Result<HotSpotUnwindInfo, InvalidMemory> {
    if !cfg!(target_arch = "x86_64") {
        return Err(InvalidMemory);
    }
    let call_stub = layout.call_stub_return.ok_or(InvalidMemory)?;
    let heaps: Vec<Heap> = read_heaps(memory, &layout.heaps)?.into_iter().flatten().collect();
    let of_stubs = heaps.iter().find(|heap| heap.memory.contains(&call_stub)).ok_or(InvalidMemory)?;
    let mut stubs = stubs_of(memory, layout, of_stubs);
    stubs.retain(|stub| stub.name.starts_with(STUBS));
    let continuation = stubs.iter().find(|stub| stub.name.contains(CONTINUATION)).map(|stub| stub.code);
    stubs.truncate(MAX_STUBS);
    let stub_rules = stub_rules(memory, &stubs);
    let segment_log2 = of_stubs.segment_log2;
    let known = heaps.iter().filter(|heap| heap.segment_log2 == segment_log2).map(|heap| CodeHeap {
        span: CodeSpan { start: heap.memory.start, end: heap.limit },
        segment_map: heap.segment_map.start,
    });
    let known = known.filter(|heap| (1..=MAX_HEAP).contains(&heap.span.end.saturating_sub(heap.span.start)));
    Ok(HotSpotUnwindInfo {
        interpreter: interpreter(memory, layout)?,
        continuation: continuation.unwrap_or_default(),
        stubs: stubs.into_iter().map(|stub| stub.code).collect(),
        stub_rules,
        heaps: known.take(MAX_HEAPS).collect(),
        segment_log2,
        block: block(layout)?,
        bcp_slot: u32::from(!layout.frames.has_mirror),
        frame_pointers: false,
        locks: None,
    })
}

fn interpreter<M: Memory>(memory: &M, layout: &VmLayout) -> Result<CodeSpan, InvalidMemory> {
    let frames = &layout.frames;
    let queue = memory.word(frames.interpreter)?;
    let size = frames.interpreter_code.max(frames.interpreter_length) + 8;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| InvalidMemory)?];
    memory.read_all(queue, &mut bytes)?;
    let start = word_in(&bytes, frames.interpreter_code)?;
    let length = u64::from(half_in(&bytes, frames.interpreter_length)?);
    let sensible = start != 0 && (1..=MAX_INTERPRETER).contains(&length);
    let end = start.checked_add(length).filter(|_| sensible).ok_or(InvalidMemory)?;
    Ok(CodeSpan { start, end })
}

fn block(layout: &VmLayout) -> Result<BlockFields, InvalidMemory> {
    let blob = layout.heaps.block_size;
    let (code, code_is_offset) = match layout.blob.code {
        BlobPlace::Offset(field) => (field, true),
        BlobPlace::Address(field) => (field, false),
    };
    // The whole field must be in the bytes that the unwinder reads.
    let field =
        |offset: u64| u32::try_from(offset).ok().filter(|at| *at <= BLOB_BYTES - 8).ok_or(InvalidMemory);
    Ok(BlockFields {
        used: field(layout.heaps.block_used)?,
        blob: field(blob)?,
        frame_size: field(blob + layout.frames.size)?,
        frame_complete: field(blob + layout.frames.complete)?,
        frame_complete_is_short: layout.frames.complete_is_short,
        code: field(blob + code)?,
        code_is_offset,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, CODE, FakeMemory, INTERPRETER, NAMES, QUEUE, layout};
    use super::*;

    fn jvm() -> (FakeMemory, VmLayout) {
        let memory = FakeMemory::with_heap(20);
        memory.text(NAMES + 0x300, "StubRoutines (1)");
        memory.block(0, 3, 1, BASE + NAMES + 0x100, 64, 300);
        memory.block(3, 2, 1, BASE + NAMES + 0x300, 64, 200);
        memory.interpreter();
        (memory, VmLayout { call_stub_return: Some(BASE + CODE + 70), ..layout() })
    }

    #[test]
    fn code_heaps_and_their_code_are_found() {
        let (memory, layout) = jvm();
        let found = read_unwind_info(&&memory, &layout).unwrap();
        let span = |start, end| CodeSpan { start: BASE + CODE + start, end: BASE + CODE + end };
        assert_eq!(found.interpreter, span(64, 300));
        assert_eq!(found.stubs, [span(3 * 128 + 64, 3 * 128 + 200)]);
        assert_eq!(found.heaps.len(), 1);
        assert_eq!(found.heaps[0].span, span(0, 0x4_0000), "what it may grow to");
        assert_eq!((found.segment_log2, found.bcp_slot), (7, 0));
        let BlockFields { used, blob, frame_size, code, code_is_offset, .. } = found.block;
        assert_eq!((used, blob, frame_size, code, code_is_offset), (8, 16, 36, 28, true));
    }

    #[test]
    fn lies_are_nonsense() {
        type Lie = fn(&FakeMemory, &mut VmLayout);
        let lies: [(&str, Lie); 7] = [
            ("no Java yet", |_, layout| layout.call_stub_return = None),
            ("Java elsewhere", |_, layout| layout.call_stub_return = Some(7)),
            ("no interpreter yet", |memory, _| memory.word(INTERPRETER, 0)),
            ("an interpreter without code", |memory, _| memory.word(QUEUE + 8, 0)),
            ("an interpreter of no length", |memory, _| memory.half(QUEUE + 16, 0)),
            ("an endless interpreter", |memory, _| memory.half(QUEUE + 16, u32::MAX)),
            ("a field beyond what is read", |_, layout| layout.frames.size = 200),
        ];
        for (what, lie) in lies {
            let (memory, mut layout) = jvm();
            lie(&memory, &mut layout);
            assert_eq!(read_unwind_info(&&memory, &layout).err(), Some(InvalidMemory), "{what}");
        }
    }
}
