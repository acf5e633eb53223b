//! Decodes debug records in the format of [`pc_encoder`](crate::pc_encoder). Every number is checked, as in
//! `decode.rs`.

use crate::bits::BitReader;
use crate::decode::Malformed;
use crate::pc_encoder::{MAX_DEPTH, NONE, how, order};

/// A frame at a debug record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcFrame {
    /// Index in the load's method table.
    pub method: u32,
    /// Bytecode index; negative where HotSpot has no index (synchronization at entry).
    pub bci: i32,
}

/// A debug record as [`PcDecoder::step`] returns it; [`PcDecoder::chain`] has its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugPc {
    /// Bytes from the code's start. The record holds for the code below, down to the record before.
    pub pc: u32,
    /// Length of the record's chain.
    pub depth: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    depth: u32,
    frame: PcFrame,
}

/// Iterates over debug records in ascending order of pc.
#[derive(Debug)]
pub struct PcDecoder<'a> {
    bits: BitReader<'a>,
    methods: usize,
    /// The lowest index of a method that no record has named yet.
    next_method: u32,
    pc: u32,
    nodes: Vec<Node>,
    /// The innermost frame of the last record.
    last: u32,
}

impl<'a> PcDecoder<'a> {
    /// Decodes the bytes of [`Load::debug`](crate::Load::debug), which name `methods` methods.
    #[must_use]
    pub fn new(debug: &'a [u8], methods: usize) -> PcDecoder<'a> {
        PcDecoder {
            bits: BitReader::new(debug),
            methods,
            next_method: 1,
            pc: 0,
            nodes: Vec::new(),
            last: NONE,
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`Malformed`] if a record breaks the format. Earlier records remain valid; the caller must stop.
    pub fn step(&mut self) -> Result<Option<DebugPc>, Malformed> {
        if self.bits.is_at_end() {
            return Ok(None);
        }
        self.record().ok_or(Malformed)?;
        Ok(Some(DebugPc { pc: self.pc, depth: self.depth(self.last) }))
    }

    /// The chain of the last record, outermost frame first.
    #[must_use]
    pub fn chain(&self) -> Vec<PcFrame> {
        let mut chain = Vec::with_capacity(self.depth(self.last));
        let mut node = self.last;
        while let Some(&Node { parent, frame, .. }) = self.node(node) {
            chain.push(frame);
            node = parent;
        }
        chain.reverse();
        chain
    }

    fn record(&mut self) -> Option<()> {
        let step = self.bits.golomb(order::STEP)?;
        self.pc = u32::try_from(step).ok().and_then(|step| self.pc.checked_add(step))?;
        match self.bits.take(2)? {
            how::KNOWN => {
                let back = self.bits.golomb(order::BACK)?;
                self.last = self.made_before(back + 1)?;
                return Some(());
            }
            how::SIBLING => return self.in_place_of(self.last, 0),
            how::SAME => {
                let dropped = self.bits.golomb(order::FRAMES)?;
                let more = self.bits.golomb(order::FRAMES)?;
                let replaced = self.ancestor(dropped)?;
                return self.in_place_of(replaced, more);
            }
            _ => {}
        }
        self.last = if self.bits.take(1)? == 0 {
            let dropped = self.bits.golomb(order::FRAMES)?;
            self.ancestor(dropped)?
        } else {
            let made = self.bits.golomb(order::PARENT)?;
            self.made_before(made)?
        };
        let more = self.bits.golomb(order::FRAMES)?;
        self.frames(more.checked_add(1)?)
    }

    /// Adds a node with the method and parent of `replaced` and another bci, and `more` frames below the new node.
    fn in_place_of(&mut self, replaced: u32, more: u64) -> Option<()> {
        let Node { parent, frame: PcFrame { method, bci }, .. } = *self.node(replaced)?;
        let bci = i64::from(bci).checked_add(self.bits.zigzag(order::DIFFERENCE)?)?;
        self.last = parent;
        self.push(PcFrame { method, bci: i32::try_from(bci).ok()? })?;
        self.frames(more)
    }

    /// Reads frames and adds them below the last one.
    fn frames(&mut self, count: u64) -> Option<()> {
        for _ in 0..count {
            let method = if self.bits.take(1)? == 1 {
                let next = self.next_method;
                self.next_method = next.checked_add(1)?;
                next
            } else {
                u32::try_from(self.bits.golomb(order::METHOD)?).ok()?
            };
            let bci = i32::try_from(self.bits.zigzag(order::BCI)?).ok()?;
            if method as usize >= self.methods {
                return None;
            }
            self.push(PcFrame { method, bci })?;
        }
        Some(())
    }

    fn push(&mut self, frame: PcFrame) -> Option<()> {
        let depth = self.depth(self.last) + 1;
        let number = u32::try_from(self.nodes.len()).ok().filter(|&n| n != NONE && depth <= MAX_DEPTH)?;
        self.nodes.push(Node { parent: self.last, depth: u32::try_from(depth).ok()?, frame });
        self.last = number;
        Some(())
    }

    /// The node that was added `next` nodes before the next new one.
    fn made_before(&self, next: u64) -> Option<u32> {
        let place =
            usize::try_from(next).ok().filter(|&n| n > 0).and_then(|n| self.nodes.len().checked_sub(n))?;
        u32::try_from(place).ok()
    }

    /// The node above the innermost `frames` frames of the last chain; [`NONE`] above all of them.
    fn ancestor(&self, frames: u64) -> Option<u32> {
        let frames = usize::try_from(frames).ok().filter(|&n| n <= self.depth(self.last))?;
        let mut node = self.last;
        for _ in 0..frames {
            node = self.node(node)?.parent;
        }
        Some(node)
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)
    }

    fn depth(&self, number: u32) -> usize {
        self.node(number).map_or(0, |node| node.depth as usize)
    }
}
