//! The bodies of records, written.

use crate::out::Out;
use crate::record::ALIGN;

/// Flags of load and stub records.
pub mod code_flag {
    /// Reported by a replay, not as it happened.
    pub const REPLAYED: u8 = 1;
    /// Debug records are missing: there were too many.
    pub const DEBUG_CUT: u8 = 2;
    /// The debug records name the compiled method only, its inlined methods are not known.
    pub const NO_INLINES: u8 = 4;
}

/// How a method record names its class: in full, or by another method's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassName<'a> {
    /// In the JVM's own spelling (modified UTF-8).
    Named {
        /// The signature as JVMTI gives it: `Lpackage/Class;`.
        class: &'a [u8],
        /// `Class.java`; empty if unknown.
        file: &'a [u8],
    },
    /// That of the method which is described at this offset of the log.
    As(u64),
}

/// Writes a method's body: its class and name (modified UTF-8), then (bci, line) pairs in the order of the class file.
pub fn method(
    out: &mut Out<'_>,
    class: &ClassName<'_>,
    name: &[u8],
    lines: impl Iterator<Item = (u32, u32)>,
) {
    match *class {
        ClassName::Named { class, file } => {
            out.varint(0);
            out.text(class);
            out.text(file);
        }
        ClassName::As(offset) => out.varint(offset / ALIGN),
    }
    out.text(name);
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
    /// Bits of [`code_flag`]: replayed, debug records cut, no inlined methods.
    pub flags: u8,
    /// When the JVM reported the event, `CLOCK_MONOTONIC` of the JVM, ns.
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
