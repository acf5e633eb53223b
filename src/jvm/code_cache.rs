//! Generated code that is no method (the interpreter, stubs, adapters), read from the JVM's own code cache: for builds
//! where the event that tells of it may crash the JVM ([`super::policy`]).
//!
//! A code heap (memory/heap.hpp of JDK 8 to 16) is a row of blocks, each as many segments long as its header says; one
//! in use holds a `CodeBlob`. The JVM runs on meanwhile: what does not read the same twice is left out.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::memory::{Memory, Nonsense, half_in, word_in};
use super::vm_structs::{Field, VmStructs};
use crate::text::clean;

/// Three with a segmented code cache.
const MAX_HEAPS: u32 = 8;
/// Blocks of one heap: 240 MB of the shortest methods.
const MAX_BLOCKS: u32 = 1 << 18;
/// Adapters are one for each sort of signature: some thousand in a large program.
const MAX_BLOBS: usize = 4096;
/// There are about a hundred.
const MAX_NAMES: usize = 256;
/// Longest name, characters.
const MAX_NAME: usize = 64;
/// How far from its start a block is read: its header and the head of its blob, bytes.
const MAX_HEAD: usize = 256;
/// Powers of two that are the size of a segment.
const SEGMENT_BITS: std::ops::RangeInclusive<u32> = 4..=16;

const FIELDS: &[Field] = &[
    ("CodeCache", "_heap"),
    ("CodeCache", "_heaps"),
    ("GenericGrowableArray", "_len"),
    ("GrowableArrayBase", "_len"),
    ("GrowableArray<int>", "_data"),
    ("CodeHeap", "_memory"),
    ("CodeHeap", "_log2_segment_size"),
    ("VirtualSpace", "_low"),
    ("VirtualSpace", "_high"),
    ("HeapBlock", "_header"),
    ("HeapBlock::Header", "_length"),
    ("HeapBlock::Header", "_used"),
    ("CodeBlob", "_name"),
    ("CodeBlob", "_code_begin"),
    ("CodeBlob", "_code_end"),
    ("CodeBlob", "_code_offset"),
    ("CodeBlob", "_data_offset"),
];

/// Generated code: where it lies, and its name's place in [`Blobs::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// First address.
    pub start: u64,
    /// Length, bytes.
    pub size: u32,
    /// Index of the name.
    pub name: u16,
}

/// What a code cache holds besides methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blobs {
    /// HotSpot's names, each once, fit to print.
    pub names: Vec<String>,
    /// The code.
    pub blobs: Vec<Blob>,
}

/// Reads the code cache. `base` is where `libjvm.so` is mapped.
pub(super) fn blobs<M: Memory>(memory: &M, base: u64) -> Result<Blobs, Nonsense> {
    let tables = VmStructs::read(memory, base, FIELDS, &["HeapBlock"])?;
    let layout = Layout::of(&tables).ok_or(Nonsense)?;
    let mut walk = Walk { memory, layout: &layout, names: HashMap::new(), found: Vec::new() };
    for heap in heaps(memory, &tables)? {
        // A heap of another sort (of code compiled ahead of time) makes no sense; the others do.
        let _ = walk.heap(heap);
    }
    Ok(walk.finish())
}

fn heaps<M: Memory>(memory: &M, tables: &VmStructs) -> Result<Vec<u64>, Nonsense> {
    if let Some(heap) = tables.field("CodeCache", "_heap") {
        return Ok(vec![memory.word(heap)?]);
    }
    let length = ["GenericGrowableArray", "GrowableArrayBase"].into_iter();
    let length = length.filter_map(|class| tables.field(class, "_len")).next().ok_or(Nonsense)?;
    let data = tables.field("GrowableArray<int>", "_data").ok_or(Nonsense)?;
    let array = memory.word(tables.field("CodeCache", "_heaps").ok_or(Nonsense)?)?;
    let mut count = [0; 4];
    memory.read_all(array.wrapping_add(length), &mut count)?;
    let data = memory.word(array.wrapping_add(data))?;
    let count = u32::from_ne_bytes(count).min(MAX_HEAPS);
    (0..count).map(|index| memory.word(data.wrapping_add(u64::from(index) * 8))).collect()
}

/// Where things are.
#[derive(Debug)]
struct Layout {
    /// In a heap: where its memory begins and ends, and the size of its segments.
    low: u64,
    high: u64,
    segment_bits: u64,
    /// In a block: its length, in how many bytes, and whether it is used; where the blob begins.
    length: u64,
    length_is_half: bool,
    used: u64,
    blob: u64,
    /// In a blob.
    name: u64,
    code: Code,
}

/// How a blob says where its code lies.
#[derive(Debug)]
enum Code {
    /// JDK 9 and later.
    Addresses(u64, u64),
    /// JDK 8: from the blob's start.
    Offsets(u64, u64),
}

impl Layout {
    fn of(tables: &VmStructs) -> Option<Layout> {
        let memory = tables.field("CodeHeap", "_memory")?;
        let header = tables.field("HeapBlock", "_header")?;
        let (length, used) =
            (tables.field("HeapBlock::Header", "_length")?, tables.field("HeapBlock::Header", "_used")?);
        let pair = |begin, end| tables.field("CodeBlob", begin).zip(tables.field("CodeBlob", end));
        let addresses = pair("_code_begin", "_code_end").map(|(begin, end)| Code::Addresses(begin, end));
        let offsets = || pair("_code_offset", "_data_offset").map(|(begin, end)| Code::Offsets(begin, end));
        Some(Layout {
            low: memory.checked_add(tables.field("VirtualSpace", "_low")?)?,
            high: memory.checked_add(tables.field("VirtualSpace", "_high")?)?,
            segment_bits: tables.field("CodeHeap", "_log2_segment_size")?,
            length: header.checked_add(length)?,
            length_is_half: used.checked_sub(length)? < 8,
            used: header.checked_add(used)?,
            blob: tables.size("HeapBlock")?,
            name: tables.field("CodeBlob", "_name")?,
            code: addresses.or_else(offsets)?,
        })
    }
}

/// A block as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// Segments.
    length: u64,
    /// Address of the name and the code's addresses, if the block is in use.
    blob: Option<(u64, u64, u64)>,
}

/// The way through the heaps.
struct Walk<'a, M> {
    memory: &'a M,
    layout: &'a Layout,
    /// Names by their addresses; `None` for those of methods.
    names: HashMap<u64, Option<String>>,
    found: Vec<(u64, Block)>,
}

impl<M: Memory> Walk<'_, M> {
    fn heap(&mut self, heap: u64) -> Result<(), Nonsense> {
        let word = |offset: u64| self.memory.word(heap.wrapping_add(offset));
        let (mut at, end) = (word(self.layout.low)?, word(self.layout.high)?);
        let mut bits = [0; 4];
        self.memory.read_all(heap.wrapping_add(self.layout.segment_bits), &mut bits)?;
        let bits =
            Some(u32::from_ne_bytes(bits)).filter(|bits| SEGMENT_BITS.contains(bits)).ok_or(Nonsense)?;
        for _ in 0..MAX_BLOCKS {
            if at >= end || self.found.len() >= MAX_BLOBS {
                break;
            }
            let block = self.block(at)?;
            let size = block.length.checked_mul(1 << bits).filter(|&size| size > 0).ok_or(Nonsense)?;
            let next = at.checked_add(size).filter(|&next| next <= end).ok_or(Nonsense)?;
            if let Some((name, from, to)) = block.blob
                && at <= from
                && from < to
                && to <= next
                && self.is_stub(name)
            {
                self.found.push((at, block));
            }
            at = next;
        }
        Ok(())
    }

    fn block(&self, at: u64) -> Result<Block, Nonsense> {
        let mut head = [0; MAX_HEAD];
        let got = self.memory.read(at, &mut head);
        let head = head.get(..got).ok_or(Nonsense)?;
        let layout = self.layout;
        let length = if layout.length_is_half {
            u64::from(half_in(head, layout.length)?)
        } else {
            word_in(head, layout.length)?
        };
        let used = usize::try_from(layout.used).ok().and_then(|at| head.get(at)).ok_or(Nonsense)?;
        if *used != 1 {
            return Ok(Block { length, blob: None });
        }
        let blob = at.checked_add(layout.blob).ok_or(Nonsense)?;
        let name = word_in(head, layout.blob.saturating_add(layout.name))?;
        let word = |offset: u64| word_in(head, layout.blob.saturating_add(offset));
        let half = |offset: u64| half_in(head, layout.blob.saturating_add(offset)).map(u64::from);
        let (from, to) = match layout.code {
            Code::Addresses(from, to) => (word(from)?, word(to)?),
            Code::Offsets(from, to) => (blob.wrapping_add(half(from)?), blob.wrapping_add(half(to)?)),
        };
        Ok(Block { length, blob: Some((name, from, to)) })
    }

    /// Whether a blob of that name is no method.
    fn is_stub(&mut self, name: u64) -> bool {
        let memory = self.memory;
        let read = || match memory.string(name) {
            Ok(text) if !text.is_empty() && !text.ends_with(b"nmethod") => Some(clean(&text, MAX_NAME)),
            _ => None,
        };
        self.names.entry(name).or_insert_with(read).is_some()
    }

    /// What reads the same once more.
    fn finish(self) -> Blobs {
        let mut blobs = Blobs::default();
        for &(at, block) in &self.found {
            let Some((name, from, to)) = block.blob.filter(|_| self.block(at) == Ok(block)) else { continue };
            let Some(Some(text)) = self.names.get(&name) else { continue };
            let known = blobs.names.iter().position(|known| known == text);
            let place = known.unwrap_or(blobs.names.len());
            let (Ok(size), Ok(name)) = (u32::try_from(to - from), u16::try_from(place)) else { continue };
            if known.is_none() {
                if blobs.names.len() >= MAX_NAMES {
                    continue;
                }
                blobs.names.push(text.clone());
            }
            blobs.blobs.push(Blob { start: from, size, name });
        }
        blobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: u64 = 0x1000;
    const LOW: u64 = 0x10_0000;
    const SEGMENT: u64 = 128;

    /// Memory from address 0, little more than a heap.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let from = usize::try_from(address).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
            let len = from.len().min(buffer.len());
            buffer[..len].copy_from_slice(&from[..len]);
            len
        }
    }

    impl Bytes {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            let at = usize::try_from(at).unwrap();
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        /// A heap of `segments`, its low end at `LOW`.
        fn with_heap(segments: u64) -> Bytes {
            let mut memory = Bytes(vec![0; usize::try_from(LOW + segments * SEGMENT).unwrap()]);
            memory.put(HEAP, &LOW.to_ne_bytes());
            memory.put(HEAP + 8, &(LOW + segments * SEGMENT).to_ne_bytes());
            memory.put(HEAP + 16, &7_u32.to_ne_bytes());
            memory.put(0x100, b"Interpreter\0");
            memory.put(0x200, b"native nmethod\0");
            memory
        }

        fn block(&mut self, segment: u64, length: u64, used: u8, name: u64, (from, to): (u64, u64)) {
            let at = LOW + segment * SEGMENT;
            self.put(at, &length.to_ne_bytes());
            self.put(at + 8, &[used]);
            for (offset, value) in [(16, name), (24, at + from), (32, at + to)] {
                self.put(at + offset, &value.to_ne_bytes());
            }
        }

        fn walk(&self) -> Blobs {
            let layout = Layout {
                low: 0,
                high: 8,
                segment_bits: 16,
                length: 0,
                length_is_half: false,
                used: 8,
                blob: 16,
                name: 0,
                code: Code::Addresses(8, 16),
            };
            let mut walk = Walk { memory: self, layout: &layout, names: HashMap::new(), found: Vec::new() };
            let _ = walk.heap(HEAP);
            walk.finish()
        }
    }

    #[test]
    fn all_but_methods_and_free_blocks_are_found() {
        let mut memory = Bytes::with_heap(20);
        memory.block(0, 3, 1, 0x100, (64, 300));
        memory.block(3, 2, 0, 0x100, (64, 200));
        memory.block(5, 4, 1, 0x200, (64, 200));
        memory.block(9, 2, 1, 0x100, (64, 256));
        let found = memory.walk();
        assert_eq!(found.names, ["Interpreter"]);
        let expected = [(LOW + 64, 236), (LOW + 9 * SEGMENT + 64, 192)];
        assert_eq!(found.blobs, expected.map(|(start, size)| Blob { start, size, name: 0 }));
    }

    #[test]
    fn blocks_that_lie_are_passed_over_or_end_the_walk() {
        type Lie = fn(&mut Bytes);
        let good = |memory: &mut Bytes| memory.block(0, 1, 1, 0x100, (64, 100));
        let lies: [(&str, Lie); 7] = [
            ("endless", |m| m.block(1, u64::MAX, 1, 0x100, (64, 100))),
            ("longer than the heap", |m| m.block(1, 30, 1, 0x100, (64, 100))),
            ("code outside", |m| m.block(1, 1, 1, 0x100, (64, 129))),
            ("backwards", |m| m.block(1, 1, 1, 0x100, (100, 64))),
            ("name nowhere", |m| m.block(1, 1, 1, u64::MAX - 3, (64, 100))),
            ("no name", |m| m.block(1, 1, 1, 0, (64, 100))),
            ("neither used nor free", |m| m.block(1, 1, 7, 0x100, (64, 100))),
        ];
        for (what, lie) in lies {
            let mut memory = Bytes::with_heap(4);
            good(&mut memory);
            lie(&mut memory);
            assert_eq!(memory.walk().blobs.len(), 1, "{what}");
        }
    }
}
