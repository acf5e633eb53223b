//! The word in front of each record.

/// Records begin at multiples of this.
pub const ALIGN: u64 = 8;
/// Longest body that the agent writes; a reader skips longer ones.
pub const MAX_BODY: u32 = 2 << 20;
/// Longest name, bytes: the longest of the class file format (JVM specification, 4.4.7), and room for the `L`, the `;`
/// and the suffix of a hidden class. No name is cut, because several methods could share the part that is left.
pub const MAX_NAME: usize = 65_535 + 64;

/// In the top bits of every word: distinguishes a record from garbage.
const MARK: u64 = 0x4a53_5200_0000_0000;
const MARK_MASK: u64 = 0xffff_ff00_0000_0000;

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// A method's names and lines, mostly once in a log: threads that log one method at the same time each write them.
    Method = 1,
    /// The JVM installed compiled code.
    Load = 2,
    /// The JVM removes compiled code.
    Unload = 3,
    /// HotSpot generated code that belongs to no method.
    Stub = 4,
    /// The replay of older code is complete.
    ReplayEnd = 5,
    /// Reserved space whose record could not be written.
    Skip = 6,
}

/// The eight bytes in front of a body: mark, type and length. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// A [`RecordType`], or a type that this version does not know.
    pub kind: u8,
    /// Length of the body without padding.
    pub body: u32,
}

impl RecordHeader {
    /// Size of a word.
    pub const LEN: u64 = 8;

    /// The word for a body of `body` bytes.
    #[must_use]
    pub fn new(kind: RecordType, body: u32) -> RecordHeader {
        RecordHeader { kind: kind as u8, body }
    }

    /// The word as it is written, little endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        (MARK | u64::from(self.kind) << 32 | u64::from(self.body)).to_le_bytes()
    }

    /// Reads a word; `None` if it has no mark.
    #[must_use]
    pub fn from_u64(word: u64) -> Option<RecordHeader> {
        (word & MARK_MASK == MARK).then_some(RecordHeader { kind: (word >> 32) as u8, body: word as u32 })
    }

    /// Bytes that the record takes, word and padding included.
    #[must_use]
    pub fn record_len(self) -> u64 {
        record_len(self.body)
    }
}

/// Bytes that a record with a body of `body` bytes takes, word and padding included.
#[must_use]
pub fn record_len(body: u32) -> u64 {
    (RecordHeader::LEN + u64::from(body)).next_multiple_of(ALIGN)
}
