//! Decodes the bodies of records. A hostile process may have written them, so that every number is checked.

use crate::encode::{ClassName, code_flag};
use crate::record::RecordType;

/// A body that does not have the format of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A method's class, name and line table; load records refer to it by its offset in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method<'a> {
    /// Class and source file, or the offset of another method that has them.
    pub class: ClassName<'a>,
    /// The method's name, modified UTF-8.
    pub name: &'a [u8],
    lines: &'a [u8],
}

/// The source line of the bytecode from an index on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEntry {
    /// The first bytecode index of the line.
    pub bci: u32,
    /// Line in the source file, as the class file's line table has it.
    pub line: u32,
}

impl<'a> Method<'a> {
    /// The line table, in the order of the class file (usually ascending bci); ends at the first bad entry.
    pub fn lines(&self) -> impl Iterator<Item = LineEntry> + use<'a> {
        let mut bytes = Bytes(self.lines);
        let (mut bci, mut line) = (0i64, 0i64);
        std::iter::from_fn(move || {
            bci = bci.checked_add(bytes.zigzag()?)?;
            line = line.checked_add(bytes.zigzag()?)?;
            Some(LineEntry { bci: u32::try_from(bci).ok()?, line: u32::try_from(line).ok()? })
        })
    }
}

/// Address range and time of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// A replay reported this code.
    pub replayed: bool,
    /// Debug records at the end are missing.
    pub debug_cut: bool,
    /// The debug records lack inlined methods.
    pub no_inlines: bool,
    /// When the JVM reported the code, ns on its `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Order of the JVM's callbacks.
    pub sequence: u64,
    /// First address of the code in the JVM's memory.
    pub start: u64,
    /// Length in bytes; `start + size` does not overflow.
    pub size: u32,
}

impl Code {
    /// The first address after the code.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.size))
    }
}

/// A load record: the compiled code of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// Address range and time.
    pub code: Code,
    methods: &'a [u8],
    method_count: usize,
    debug: &'a [u8],
}

impl<'a> Load<'a> {
    /// Log offsets of the methods that debug records name by index; the compiled method is the first.
    pub fn methods(&self) -> impl Iterator<Item = u64> + use<'a> {
        let mut bytes = Bytes(self.methods);
        (0..self.method_count).map_while(move |_| bytes.varint()?.checked_mul(crate::record::ALIGN))
    }

    /// The length of [`Load::methods`].
    #[must_use]
    pub fn method_count(&self) -> usize {
        self.method_count
    }

    /// The encoded debug records, for [`PcDecoder`](crate::PcDecoder).
    #[must_use]
    pub fn debug(&self) -> &'a [u8] {
        self.debug
    }
}

/// An unload record: the end of a method's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unload {
    /// When the JVM reported the unload, ns on its `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Order of the JVM's callbacks.
    pub sequence: u64,
    /// First address of the code.
    pub start: u64,
}

/// A stub record: generated code that belongs to no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub<'a> {
    /// Address range and time.
    pub code: Code,
    /// HotSpot's name of the stub.
    pub name: &'a [u8],
}

/// The body of a record, decoded by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The names of a method.
    Method(Method<'a>),
    /// The JVM installed code.
    Load(Load<'a>),
    /// The JVM removed code.
    Unload(Unload),
    /// The JVM generated a stub.
    Stub(Stub<'a>),
    /// The replay is complete.
    ReplayEnd,
    /// Reserved space without a record, or a type of a later version.
    Unknown,
}

impl<'a> Decoded<'a> {
    /// Decodes a body of type `kind`.
    ///
    /// # Errors
    /// [`Malformed`] if the body does not have the format of its type.
    pub fn read(kind: u8, body: &'a [u8]) -> Result<Decoded<'a>, Malformed> {
        let mut bytes = Bytes(body);
        let read = match kind {
            k if k == RecordType::Method as u8 => method(&mut bytes).map(Decoded::Method),
            k if k == RecordType::Load as u8 => load(&mut bytes).map(Decoded::Load),
            k if k == RecordType::Unload as u8 => unload(&mut bytes).map(Decoded::Unload),
            k if k == RecordType::Stub as u8 => stub(&mut bytes).map(Decoded::Stub),
            k if k == RecordType::ReplayEnd as u8 => Some(Decoded::ReplayEnd),
            _ => Some(Decoded::Unknown),
        };
        read.ok_or(Malformed)
    }
}

fn method<'a>(bytes: &mut Bytes<'a>) -> Option<Method<'a>> {
    let class = match bytes.varint()?.checked_mul(crate::record::ALIGN)? {
        0 => ClassName::Named { class: bytes.text()?, file: bytes.text()? },
        offset => ClassName::As(offset),
    };
    Some(Method { class, name: bytes.text()?, lines: bytes.0 })
}

fn code(bytes: &mut Bytes<'_>) -> Option<Code> {
    let flags = bytes.byte()?;
    let code = Code {
        replayed: flags & code_flag::REPLAYED != 0,
        debug_cut: flags & code_flag::DEBUG_CUT != 0,
        no_inlines: flags & code_flag::NO_INLINES != 0,
        time: bytes.varint()?,
        sequence: bytes.varint()?,
        start: bytes.varint()?,
        size: u32::try_from(bytes.varint()?).ok()?,
    };
    code.start.checked_add(u64::from(code.size))?;
    Some(code)
}

fn load<'a>(bytes: &mut Bytes<'a>) -> Option<Load<'a>> {
    let code = code(bytes)?;
    // Each method takes at least one byte, so that the body's length bounds its table.
    let method_count = usize::try_from(bytes.varint()?).ok().filter(|&n| n <= bytes.0.len())?;
    let methods = bytes.0;
    for _ in 0..method_count {
        bytes.varint()?.checked_mul(crate::record::ALIGN)?;
    }
    Some(Load { code, methods, method_count, debug: bytes.0 })
}

fn unload(bytes: &mut Bytes<'_>) -> Option<Unload> {
    Some(Unload { time: bytes.varint()?, sequence: bytes.varint()?, start: bytes.varint()? })
}

fn stub<'a>(bytes: &mut Bytes<'a>) -> Option<Stub<'a>> {
    Some(Stub { code: code(bytes)?, name: bytes.text()? })
}

/// The unread bytes of a body.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }
}
