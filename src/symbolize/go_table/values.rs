//! Tables of values by instruction: pairs of differences, as numbers of variable length.

use std::cell::Cell;

use super::image::Image;

/// Bytes of a piece of a table: most tables are shorter.
const PIECE: usize = 256;
/// Bytes that one address may cost. The tables of the largest functions (of initial values, in megabytes of code) have
/// some 100 KiB.
const MAX_BYTES: usize = 4 << 20;

/// How much may still be read, bytes.
pub(super) struct ReadAllowance(Cell<usize>);

impl Default for ReadAllowance {
    fn default() -> ReadAllowance {
        ReadAllowance(Cell::new(MAX_BYTES))
    }
}

impl ReadAllowance {
    pub(super) fn of(bytes: usize) -> ReadAllowance {
        ReadAllowance(Cell::new(bytes))
    }

    fn spend(&self, bytes: usize) -> Option<()> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        Some(())
    }
}

pub(super) struct Values<'i> {
    bytes: ValueBytes<'i>,
    quantum: u8,
    entry: u64,
    value: i32,
    at: u64,
}

/// A value, and the end of the code for which it holds.
pub(super) struct PcValue {
    pub(super) value: i32,
    pub(super) end: u64,
}

impl<'i> Values<'i> {
    /// The table at `address` of a function that begins at `entry`.
    pub(super) fn new(
        image: &'i dyn Image,
        allowance: &'i ReadAllowance,
        address: u64,
        entry: u64,
        quantum: u8,
    ) -> Values<'i> {
        let bytes = ValueBytes { image, allowance, piece: [0; PIECE], filled: 0, next: 0, address };
        Values { bytes, quantum, entry, value: -1, at: entry }
    }
}

/// Ends with the table, or where the table cannot be read (`runtime.step`).
impl Iterator for Values<'_> {
    type Item = PcValue;

    fn next(&mut self) -> Option<PcValue> {
        let difference = self.bytes.number()?;
        // A difference of zero ends the table, unless it is the first one.
        if difference == 0 && self.at != self.entry {
            return None;
        }
        let negative = if difference & 1 == 1 { u32::MAX } else { 0 };
        self.value = self.value.wrapping_add(((difference >> 1) ^ negative).cast_signed());
        self.at = self.at.checked_add(u64::from(self.bytes.number()?) * u64::from(self.quantum))?;
        Some(PcValue { value: self.value, end: self.at })
    }
}

struct ValueBytes<'i> {
    image: &'i dyn Image,
    allowance: &'i ReadAllowance,
    piece: [u8; PIECE],
    filled: usize,
    next: usize,
    /// Address of the next piece.
    address: u64,
}

impl ValueBytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        if self.next == self.filled {
            self.filled = self.image.read(self.address, &mut self.piece);
            self.allowance.spend(PIECE)?;
            self.address = self.address.checked_add(PIECE as u64)?;
            self.next = 0;
        }
        let byte = *self.piece[..self.filled].get(self.next)?;
        self.next += 1;
        Some(byte)
    }

    /// A number with seven bits in each byte, the lowest first.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}
