//! Encodes the debug records of compiled code compactly: the chain of inlined methods for each range of code.
//!
//! The chains of one method's code form a tree. A node is (parent, method, bci); nodes are numbered in the order of
//! their first use. A chain is the path from the root to a node. A record has the end of its range and its chain,
//! usually as a difference from the record before. Ranges of equal chains share one record, that of the highest pc,
//! since a record holds for the code below.
//!
//! A record is a string of bits. Numbers are exponential Golomb codes (`bits.rs`) of the order in brackets; signed ones
//! are zigzag. Zeros fill the last byte; fewer than eight of them mark the end.
//!
//! ```text
//! pc step [4], then two or three bits, least significant first:
//! 00   KNOWN     nodes made after the chain's innermost one [6]
//! 01   SIBLING   bci difference to the last chain's innermost frame, of whose method and parent a new node is [4]
//! 10   SAME      frames dropped - 1 [0], frames new - 1 [0], bci difference [4], new frames but for the first
//! 11 0 BELOW     frames dropped [0], frames new - 1 [0], new frames
//! 11 1 ELSEWHERE nodes made from the parent on [5], frames new - 1 [0], new frames
//! frame: 1 (the lowest method that was not named yet) or 0, method [3]; then bci [2]
//! ```
//!
//! The first new frame of `SAME` has the method of the outermost dropped frame. New frames come outermost first.
//! Methods are indices of the load's method table; the compiled method, 0, counts as named.

use crate::bits::BitWriter;
use crate::out::Out;

/// Frames of the deepest chain.
pub const MAX_DEPTH: usize = 512;

/// How a record gives its chain.
pub(crate) mod how {
    pub(crate) const KNOWN: u64 = 0;
    pub(crate) const SIBLING: u64 = 1;
    pub(crate) const SAME: u64 = 2;
    pub(crate) const OTHER: u64 = 3;
}

/// Orders of the codes. These gave the shortest log of the Scala compiler.
pub(crate) mod order {
    pub(crate) const STEP: u32 = 4;
    pub(crate) const BACK: u32 = 6;
    pub(crate) const PARENT: u32 = 5;
    pub(crate) const FRAMES: u32 = 0;
    pub(crate) const DIFFERENCE: u32 = 4;
    pub(crate) const METHOD: u32 = 3;
    pub(crate) const BCI: u32 = 2;
}

/// Stands for no node: the parent of outermost frames.
pub(crate) const NONE: u32 = u32::MAX;

/// Slots of the hash table of nodes, a power of two.
const SLOTS: usize = 8192;
/// Slots that are used at most. Further nodes are not remembered, and are written again at each use.
const MAX_KNOWN: usize = SLOTS / 4 * 3;

/// A node in the hash table, whose key is (parent, method, bci).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Slot {
    /// Distinguishes nodes of this code from those of code that was encoded before.
    code: u32,
    parent: u32,
    method: u32,
    bci: i32,
    node: u32,
}

/// A frame of the last chain.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct PathFrame {
    node: u32,
    method: u32,
    bci: i32,
}

/// The nodes of one method's code: working memory of a [`PcEncoder`]. All zeros is a valid value.
#[derive(Debug)]
#[repr(C)]
pub struct Nodes {
    code: u32,
    known: usize,
    /// Number of nodes so far.
    count: u32,
    depth: usize,
    path: [PathFrame; MAX_DEPTH],
    slots: [Slot; SLOTS],
}

impl Default for Nodes {
    fn default() -> Nodes {
        let slot = Slot { code: 0, parent: 0, method: 0, bci: 0, node: 0 };
        let path = [PathFrame::default(); MAX_DEPTH];
        Nodes { code: 0, known: 0, count: 0, depth: 0, path, slots: [slot; SLOTS] }
    }
}

impl Nodes {
    fn begin(&mut self) {
        self.code = self.code.wrapping_add(1);
        if self.code == 0 {
            for slot in &mut self.slots {
                slot.code = 0;
            }
            self.code = 1;
        }
        (self.known, self.count, self.depth) = (0, 0, 0);
    }

    /// The innermost node of the first `depth` frames.
    fn node_at(&self, depth: usize) -> u32 {
        depth.checked_sub(1).and_then(|last| self.path.get(last)).map_or(NONE, |frame| frame.node)
    }

    /// The node of a frame below `parent`, and whether the node is new.
    fn child(&mut self, parent: u32, method: u32, bci: i32) -> (u32, bool) {
        let fresh = self.count;
        let key =
            u64::from(parent) << 32 ^ u64::from(method).wrapping_mul(0x9e37_79b9) ^ u64::from(bci as u32);
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for step in 0..SLOTS {
            let Some(slot) = self.slots.get_mut((hash as usize).wrapping_add(step) & (SLOTS - 1)) else {
                break;
            };
            if slot.code != self.code {
                if self.known < MAX_KNOWN {
                    *slot = Slot { code: self.code, parent, method, bci, node: fresh };
                    self.known = self.known.wrapping_add(1);
                }
                break;
            }
            if (slot.parent, slot.method, slot.bci) == (parent, method, bci) {
                return (slot.node, false);
            }
        }
        self.count = fresh.wrapping_add(1);
        (fresh, true)
    }

    fn push(&mut self, frame: PathFrame) -> bool {
        let Some(place) = self.path.get_mut(self.depth) else { return false };
        *place = frame;
        self.depth = self.depth.wrapping_add(1);
        true
    }

    /// The frames of the last chain from `depth` on.
    fn below(&self, depth: usize) -> &[PathFrame] {
        self.path.get(depth..self.depth).unwrap_or_default()
    }
}

/// How to write the last chain.
#[derive(Clone, Copy, Debug)]
enum ChainEncoding {
    /// All nodes exist: the distance back to the innermost one.
    Known(u32),
    /// Frames from `at` on are new. The first replaces a frame of the same method at `bci`; `dropped` frames end there.
    Same { at: usize, bci: i32, dropped: usize },
    /// Frames from `at` on are new.
    Other { at: usize, by_reference: bool, place: u32 },
}

/// Writes the debug records of one method's code as bits, in ascending order of pc.
#[derive(Debug)]
pub struct PcEncoder<'o, 'b, 'n> {
    out: &'o mut Out<'b>,
    bits: BitWriter,
    nodes: &'n mut Nodes,
    written_pc: u32,
    /// The lowest index of a method that no record has named yet.
    next_method: u32,
    /// The last record, which is written when its chain ends.
    pending: Option<(u32, ChainEncoding)>,
}

impl<'o, 'b, 'n> PcEncoder<'o, 'b, 'n> {
    /// Starts the debug records of one method's code.
    pub fn new(out: &'o mut Out<'b>, nodes: &'n mut Nodes) -> PcEncoder<'o, 'b, 'n> {
        nodes.begin();
        PcEncoder { out, bits: BitWriter::default(), nodes, written_pc: 0, next_method: 1, pending: None }
    }

    /// Adds a debug record at `pc` bytes from the code's start (not below the last one). The outermost `kept` frames
    /// are those of the record before; `frames` follow, outermost first, as (index in the method table, bci).
    ///
    /// Returns `false` if there was no room, `pc` went backwards, or a frame is `None`. Then the earlier records are
    /// valid, and only [`Self::finish`] may follow.
    pub fn record(
        &mut self,
        pc: u32,
        kept: usize,
        mut frames: impl ExactSizeIterator<Item = Option<(u32, i32)>>,
    ) -> bool {
        if let Some((last, _)) = &mut self.pending {
            if pc < *last {
                return false;
            }
            if kept == self.nodes.depth && frames.len() == 0 {
                *last = pc;
                return true;
            }
        }
        if !self.write_pending() {
            return false;
        }
        let encoding = self.chain(kept, &mut frames);
        self.pending = encoding.map(|encoding| (pc, encoding));
        self.pending.is_some()
    }

    /// Writes the last record; `false` if there was no room for it.
    pub fn finish(mut self) -> bool {
        let all = self.write_pending();
        self.bits.finish(self.out);
        all
    }

    /// Adds the new frames to the last chain, and decides how to write the chain.
    fn chain(
        &mut self,
        kept: usize,
        frames: &mut impl Iterator<Item = Option<(u32, i32)>>,
    ) -> Option<ChainEncoding> {
        let nodes = &mut *self.nodes;
        let dropped = nodes.depth.checked_sub(kept)?;
        let replaced = nodes.below(kept).first().copied();
        nodes.depth = kept;
        let (mut last, mut encoding) = (nodes.node_at(kept), None);
        for frame in frames {
            let (method, bci) = frame?;
            let (newest, at) = (nodes.count, nodes.depth);
            let (node, is_new) = nodes.child(last, method, bci);
            if is_new && encoding.is_none() {
                encoding = Some(match replaced {
                    Some(old) if at == kept && old.method == method => {
                        ChainEncoding::Same { at, bci: old.bci, dropped }
                    }
                    _ if at == kept => {
                        ChainEncoding::Other { at, by_reference: false, place: dropped as u32 }
                    }
                    _ => ChainEncoding::Other { at, by_reference: true, place: newest.wrapping_sub(last) },
                });
            }
            if !nodes.push(PathFrame { node, method, bci }) {
                return None;
            }
            last = node;
        }
        let known = || nodes.count.wrapping_sub(1).wrapping_sub(last);
        if last == NONE { None } else { Some(encoding.unwrap_or(ChainEncoding::Known(known()))) }
    }

    fn write_pending(&mut self) -> bool {
        let Some((pc, encoding)) = self.pending.take() else { return true };
        let (start, bits, next_method) = (self.out.len(), self.bits, self.next_method);
        self.number(order::STEP, u64::from(pc.wrapping_sub(self.written_pc)));
        match encoding {
            ChainEncoding::Known(back) => {
                self.bits.put(self.out, how::KNOWN, 2);
                self.number(order::BACK, u64::from(back));
            }
            ChainEncoding::Same { at, bci, dropped } => self.write_same(at, bci, dropped),
            ChainEncoding::Other { at, by_reference, place } => {
                self.bits.put(self.out, how::OTHER, 2);
                self.bits.put(self.out, u64::from(by_reference), 1);
                self.number(if by_reference { order::PARENT } else { order::FRAMES }, u64::from(place));
                self.number(order::FRAMES, (self.nodes.below(at).len() as u64).wrapping_sub(1));
                self.frames(at);
            }
        }
        self.written_pc = pc;
        if self.bits.fits(self.out) {
            return true;
        }
        self.out.cut(start);
        (self.bits, self.next_method) = (bits, next_method);
        false
    }

    fn write_same(&mut self, at: usize, bci: i32, dropped: usize) {
        let Some((first, rest)) = self.nodes.below(at).split_first() else { return };
        let difference = i64::from(first.bci).wrapping_sub(i64::from(bci));
        let more = rest.len() as u64;
        if dropped == 1 && more == 0 {
            self.bits.put(self.out, how::SIBLING, 2);
        } else {
            self.bits.put(self.out, how::SAME, 2);
            self.number(order::FRAMES, (dropped as u64).wrapping_sub(1));
            self.number(order::FRAMES, more);
        }
        self.bits.zigzag(self.out, order::DIFFERENCE, difference);
        self.frames(at.wrapping_add(1));
    }

    /// Writes the frames of the chain from `depth` on.
    fn frames(&mut self, depth: usize) {
        for &PathFrame { method, bci, .. } in self.nodes.below(depth) {
            let is_next = method == self.next_method;
            self.bits.put(self.out, u64::from(is_next), 1);
            if is_next {
                self.next_method = method.wrapping_add(1);
            } else {
                self.bits.golomb(self.out, order::METHOD, u64::from(method));
            }
            self.bits.zigzag(self.out, order::BCI, i64::from(bci));
        }
    }

    fn number(&mut self, order: u32, number: u64) {
        self.bits.golomb(self.out, order, number);
    }
}
