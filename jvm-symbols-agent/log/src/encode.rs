//! The bodies of records, written.

use crate::out::Out;

/// Flags of load and stub records.
pub mod code_flag {
    /// Told by a replay, not as it happened.
    pub const REPLAYED: u8 = 1;
    /// Debug records are missing: there were too many.
    pub const DEBUG_CUT: u8 = 2;
    /// The debug records name the compiled method only, its inlined methods are not known.
    pub const NO_INLINES: u8 = 4;
}

/// A method's names, in the JVM's own spelling (modified UTF-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodNames<'a> {
    /// `Lpackage/Class;`
    pub class: &'a [u8],
    /// `name`
    pub name: &'a [u8],
    /// `(I)V`
    pub signature: &'a [u8],
    /// `Class.java`; empty if unknown.
    pub file: &'a [u8],
}

/// Writes a method's body: names, then (bci, line) pairs in ascending order of bci.
pub fn method(out: &mut Out<'_>, names: &MethodNames<'_>, lines: impl Iterator<Item = (u32, u32)>) {
    out.text(names.class);
    out.text(names.name);
    out.text(names.signature);
    out.text(names.file);
    let (mut last_bci, mut last_line) = (0i64, 0i64);
    for (bci, line) in lines {
        let start = out.len();
        let (bci, line) = (i64::from(bci), i64::from(line));
        out.zigzag(bci.wrapping_sub(last_bci));
        out.zigzag(line.wrapping_sub(last_line));
        if out.overflowed() {
            out.cut(start);
            return;
        }
        (last_bci, last_line) = (bci, line);
    }
}

/// The fixed part of a load or stub record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadHead {
    /// See [`code_flag`].
    pub flags: u8,
    /// When the JVM told, `CLOCK_MONOTONIC` of the JVM, ns.
    pub time: u64,
    /// Order of the callbacks, over all logs of an agent.
    pub sequence: u64,
    /// First address of the code.
    pub start: u64,
    /// Its length in bytes.
    pub size: u32,
}

impl LoadHead {
    /// Writes it. In a load record the method table follows (its length, then each method's log offset / 8, the
    /// compiled method first), then debug records to the end of the body.
    pub fn write(&self, out: &mut Out<'_>) {
        out.byte(self.flags);
        out.varint(self.time);
        out.varint(self.sequence);
        out.varint(self.start);
        out.varint(u64::from(self.size));
    }
}

/// Writes an unload's body.
pub fn unload(out: &mut Out<'_>, time: u64, sequence: u64, start: u64) {
    out.varint(time);
    out.varint(sequence);
    out.varint(start);
}

/// Writes a stub's body.
pub fn stub(out: &mut Out<'_>, head: &LoadHead, name: &[u8]) {
    head.write(out);
    out.text(name);
}

/// Writes the body of the record that ends a replay.
pub fn replay_end(out: &mut Out<'_>, time: u64, sequence: u64) {
    out.varint(time);
    out.varint(sequence);
}

/// Writes debug records, each as its difference from the one before: pc, frames kept at the root side, frames new.
#[derive(Debug)]
pub struct PcEncoder<'o, 'b> {
    out: &'o mut Out<'b>,
    last_pc: u32,
}

impl<'o, 'b> PcEncoder<'o, 'b> {
    /// Starts a table.
    pub fn new(out: &'o mut Out<'b>) -> PcEncoder<'o, 'b> {
        PcEncoder { out, last_pc: 0 }
    }

    /// One debug record at `pc` bytes from the code's start (not below the last one): `kept` frames at the root side
    /// are those of the record before, `new` more follow, outermost first, as (index in the method table, bci).
    ///
    /// Returns `false`, and leaves no trace of this record, if there was no room or pcs went backwards.
    pub fn record(
        &mut self,
        pc: u32,
        kept: u32,
        new: u32,
        frames: impl Iterator<Item = Option<(u32, i32)>>,
    ) -> bool {
        let start = self.out.len();
        let Some(step) = pc.checked_sub(self.last_pc) else { return false };
        self.out.varint(u64::from(step));
        self.out.varint(u64::from(kept));
        self.out.varint(u64::from(new));
        for frame in frames {
            let Some((method, bci)) = frame else {
                self.out.cut(start);
                return false;
            };
            self.out.varint(u64::from(method));
            self.out.zigzag(i64::from(bci));
        }
        if self.out.overflowed() {
            self.out.cut(start);
            return false;
        }
        self.last_pc = pc;
        true
    }
}
