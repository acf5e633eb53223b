//! What holds from which instruction on: pairs of differences, as numbers of variable length.

use std::cell::Cell;

use super::image::Image;

/// Bytes of a piece of a table: most tables are shorter.
const PIECE: usize = 256;
/// Bytes that one address may cost. The tables of the largest functions (of initial values, in megabytes of code) have
/// some 100 KiB.
const MAX_BYTES: usize = 4 << 20;

/// What may still be read for one address, bytes.
pub(super) struct Allowance(Cell<usize>);

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance(Cell::new(MAX_BYTES))
    }
}

impl Allowance {
    fn take(&self, bytes: usize) -> Option<()> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        Some(())
    }
}

/// The value at `pc` of the table at `address` of a function that begins at `entry`. `None` if the table ends before, or
/// cannot be read. (`runtime.pcvalue`.)
pub(super) fn value_at(
    image: &dyn Image,
    allowance: &Allowance,
    address: u64,
    entry: u64,
    quantum: u8,
    pc: u64,
) -> Option<i32> {
    let mut bytes = Bytes { image, allowance, piece: [0; PIECE], filled: 0, next: 0, address };
    let (mut value, mut at) = (-1_i32, entry);
    loop {
        let difference = bytes.number()?;
        // A difference of zero ends the table, unless it is the first one.
        if difference == 0 && at != entry {
            return None;
        }
        let negative = if difference & 1 == 1 { u32::MAX } else { 0 };
        value = value.wrapping_add(((difference >> 1) ^ negative).cast_signed());
        at = at.checked_add(u64::from(bytes.number()?) * u64::from(quantum))?;
        if pc < at {
            return Some(value);
        }
    }
}

struct Bytes<'i> {
    image: &'i dyn Image,
    allowance: &'i Allowance,
    piece: [u8; PIECE],
    filled: usize,
    next: usize,
    /// Where the next piece begins.
    address: u64,
}

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        if self.next == self.filled {
            self.filled = self.image.read(self.address, &mut self.piece);
            self.allowance.take(PIECE)?;
            self.address = self.address.checked_add(PIECE as u64)?;
            self.next = 0;
        }
        let byte = *self.piece[..self.filled].get(self.next)?;
        self.next += 1;
        Some(byte)
    }

    /// Seven bits a byte, the lowest first.
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
