//! Generated code that is no method (the interpreter, stubs, adapters), read from the JVM's code cache. Some builds
//! need it, since the event that reports such code may crash them ([`crate::jvm::policy`]).
//!
//! A code heap (memory/heap.hpp) is a row of blocks. A block's header has its length in segments, and a block in use
//! holds a `CodeBlob`. The JVM runs meanwhile: blobs that do not read the same twice are left out.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::blob::{BlobIdentity, block_at, is_method};
use super::heaps::{Heap, is_used, read_heaps, segments};
use super::layout::VmLayout;
use crate::jvm::memory::{InvalidMemory, Memory, word_in};
use crate::text::clean;
use crate::unwind::CodeSpan;

/// Most blocks of one heap: 240 MB of the shortest methods.
const MAX_BLOCKS: u32 = 1 << 18;
/// Most blobs. Each sort of signature has its own adapter: some thousand in a large program.
const MAX_BLOBS: usize = 4096;
/// Most names. There are about a hundred.
const MAX_NAMES: usize = 256;
/// Characters of a name; the middle of a longer name is cut out.
const MAX_NAME: usize = 64;

/// Generated code: its place, and the index of its name in [`StubBlobs::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StubBlob {
    /// First address of the code, behind the blob's header.
    pub start: u64,
    /// Length of the code, bytes.
    pub size: u32,
    /// Index of the name.
    pub name_index: u16,
}

/// The code in a code cache that is no method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StubBlobs {
    /// HotSpot's names, each once, fit to print.
    pub names: Vec<String>,
    /// The pieces of code, heap by heap in ascending order of addresses.
    pub blobs: Vec<StubBlob>,
}

/// Reads the code cache. `base` is where `libjvm.so` is mapped.
pub(in crate::jvm) fn blobs<M: Memory>(memory: &M, base: u64) -> Result<StubBlobs, InvalidMemory> {
    walk(memory, &VmLayout::read(memory, base)?)
}

fn walk<M: Memory>(memory: &M, layout: &VmLayout) -> Result<StubBlobs, InvalidMemory> {
    let mut walk = HeapWalk { memory, layout, names: HashMap::new(), found: Vec::new() };
    for heap in read_heaps(memory, &layout.heaps)?.iter().flatten() {
        // An invalid block ends the reading of its heap; the other heaps are still read.
        let _ = walk.heap(heap);
    }
    Ok(walk.finish())
}

/// A stub by HotSpot's name.
pub(super) struct NamedStub {
    pub(super) name: String,
    pub(super) code: CodeSpan,
}

/// The code in one heap that is no method.
pub(super) fn stubs_of<M: Memory>(memory: &M, layout: &VmLayout, heap: &Heap) -> Vec<NamedStub> {
    let mut walk = HeapWalk { memory, layout, names: HashMap::new(), found: Vec::new() };
    // An invalid block ends the reading of the heap; the stubs before it are kept.
    let _ = walk.heap(heap);
    let StubBlobs { names, blobs } = walk.finish();
    let stub = |blob: &StubBlob| NamedStub {
        name: names.get(usize::from(blob.name_index)).cloned().unwrap_or_default(),
        code: CodeSpan { start: blob.start, end: blob.start + u64::from(blob.size) },
    };
    blobs.iter().map(stub).collect()
}

/// A blob that was read once.
struct FoundBlob {
    start: u64,
    identity: BlobIdentity,
}

/// The state while the heaps are read.
struct HeapWalk<'a, M> {
    memory: &'a M,
    layout: &'a VmLayout,
    /// Names by their addresses; `None` for those of methods.
    names: HashMap<u64, Option<String>>,
    /// In ascending order of addresses within each heap.
    found: Vec<FoundBlob>,
}

impl<M: Memory> HeapWalk<'_, M> {
    fn heap(&mut self, heap: &Heap) -> Result<(), InvalidMemory> {
        let Range { start: mut at, end } = heap.memory.clone();
        for _ in 0..MAX_BLOCKS {
            if at >= end || self.found.len() >= MAX_BLOBS {
                break;
            }
            let block = block_at(self.memory, self.layout, at)?;
            let size = segments(&block, &self.layout.heaps)?.checked_mul(1 << heap.segment_log2);
            let size = size.filter(|&size| size > 0).ok_or(InvalidMemory)?;
            let next = at.checked_add(size).filter(|&next| next <= end).ok_or(InvalidMemory)?;
            if let Some(stub) = self.stub(at, &block).filter(|stub| stub.identity.code.end <= next) {
                self.found.push(stub);
            }
            at = next;
        }
        Ok(())
    }

    /// The blob in the block at `at`, if the block is in use and the blob has code and is no method.
    fn stub(&mut self, at: u64, block: &[u8]) -> Option<FoundBlob> {
        let start =
            at.checked_add(self.layout.heaps.block_size).filter(|_| is_used(block, &self.layout.heaps))?;
        let header = block.get(usize::try_from(start - at).ok()?..)?;
        let identity = BlobIdentity::of(header, self.layout, start, false).ok()?;
        let has_code = identity.code.start < identity.code.end;
        let name = word_in(header, self.layout.blob.name).ok()?;
        (has_code && self.is_stub(name)).then_some(FoundBlob { start, identity })
    }

    /// Whether a blob of that name is no method.
    fn is_stub(&mut self, name: u64) -> bool {
        let memory = self.memory;
        let read = || match memory.string(name) {
            Ok(text) if !text.is_empty() && !is_method(&text) => Some(clean(&text, MAX_NAME)),
            _ => None,
        };
        self.names.entry(name).or_insert_with(read).is_some()
    }

    /// The blobs whose identity is unchanged at a second read.
    fn finish(self) -> StubBlobs {
        let mut blobs = StubBlobs::default();
        for FoundBlob { start: blob_start, identity } in &self.found {
            let CodeSpan { start, end } = identity.code;
            let Some(Some(text)) = self.names.get(&identity.name) else { continue };
            if !identity.is_at(self.memory, self.layout, *blob_start) {
                continue;
            }
            let known = blobs.names.iter().position(|known| known == text);
            let index = known.unwrap_or(blobs.names.len());
            let (Ok(size), Ok(name_index)) = (u32::try_from(end - start), u16::try_from(index)) else {
                continue;
            };
            if known.is_none() {
                if blobs.names.len() >= MAX_NAMES {
                    continue;
                }
                blobs.names.push(text.clone());
            }
            blobs.blobs.push(StubBlob { start, size, name_index });
        }
        blobs
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::HeapArrayOffsets;
    use super::super::made::{BASE, CODE, FakeMemory, HEAP, NAMES, layout};
    use super::*;

    const SEGMENT: u64 = 128;

    impl FakeMemory {
        /// A heap of `segments`.
        pub(in crate::jvm::vm) fn with_heap(segments: u64) -> FakeMemory {
            let memory = FakeMemory::made();
            memory.word(HEAP + 8, BASE + CODE + segments * SEGMENT);
            memory.text(NAMES + 0x100, "Interpreter");
            memory.text(NAMES + 0x200, "native nmethod");
            memory
        }

        /// A block with code between these offsets, counted from the start of the block.
        pub(in crate::jvm::vm) fn block(
            &self,
            segment: u64,
            length: u64,
            used: u8,
            name: u64,
            from: u32,
            to: u32,
        ) {
            let at = CODE + segment * SEGMENT;
            self.word(at, length);
            self.put(at + 8, &[used]);
            self.word(at + 16, name);
            for (field, value) in [(24, from.max(to) - 16), (28, from - 16), (32, to - 16)] {
                self.half(at + field, value);
            }
        }
    }

    const INTERPRETER: u64 = BASE + NAMES + 0x100;
    const NATIVE: u64 = BASE + NAMES + 0x200;

    #[test]
    fn all_but_methods_and_free_blocks_are_found() {
        let memory = FakeMemory::with_heap(20);
        memory.block(0, 3, 1, INTERPRETER, 64, 300);
        memory.block(3, 2, 0, INTERPRETER, 64, 200);
        memory.block(5, 4, 1, NATIVE, 64, 200);
        memory.block(9, 2, 1, INTERPRETER, 64, 256);
        let found = walk(&&memory, &layout()).unwrap();
        assert_eq!(found.names, ["Interpreter"]);
        let expected = [(CODE + 64, 236), (CODE + 9 * SEGMENT + 64, 192)];
        assert_eq!(
            found.blobs,
            expected.map(|(start, size)| StubBlob { start: BASE + start, size, name_index: 0 })
        );
    }

    #[test]
    fn blocks_that_lie_are_passed_over_or_end_the_walk() {
        type Lie = fn(&FakeMemory);
        let good = |memory: &FakeMemory| memory.block(0, 1, 1, INTERPRETER, 64, 100);
        let lies: [(&str, Lie); 7] = [
            ("endless", |m| m.block(1, u64::MAX, 1, INTERPRETER, 64, 100)),
            ("longer than the heap", |m| m.block(1, 30, 1, INTERPRETER, 64, 100)),
            ("code outside", |m| m.block(1, 1, 1, INTERPRETER, 64, 129)),
            ("backwards", |m| m.block(1, 1, 1, INTERPRETER, 100, 64)),
            ("name nowhere", |m| m.block(1, 1, 1, u64::MAX - 3, 64, 100)),
            ("no name", |m| m.block(1, 1, 1, 0, 64, 100)),
            ("neither used nor free", |m| m.block(1, 1, 7, INTERPRETER, 64, 100)),
        ];
        for (what, lie) in lies {
            let memory = FakeMemory::with_heap(4);
            good(&memory);
            lie(&memory);
            assert_eq!(walk(&&memory, &layout()).unwrap().blobs.len(), 1, "{what}");
        }
    }

    #[test]
    fn a_heap_that_makes_no_sense_does_not_hide_the_others() {
        let memory = FakeMemory::with_heap(4);
        memory.block(0, 1, 1, INTERPRETER, 64, 100);
        // An array of two heaps: one without a segment size, and the valid one.
        let (array, pointers) = (0x300, 0x340);
        memory.half(array, 2);
        memory.word(array + 8, BASE + pointers);
        memory.word(pointers, BASE + 0x400);
        memory.word(pointers + 8, BASE + HEAP);
        memory.word(0x380, BASE + array);
        let mut layout = layout();
        layout.heaps.address = BASE + 0x380;
        layout.heaps.array = Some(HeapArrayOffsets { length: 0, pointers: 8 });
        assert_eq!(walk(&&memory, &layout).unwrap().blobs.len(), 1);
    }
}
