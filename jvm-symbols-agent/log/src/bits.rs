//! Numbers of few bits: exponential Golomb codes, least significant bit first.
//!
//! A code of order `k` for `n`: with `m = (n >> k) + 1` of `l` bits, the code is `l - 1` zeros, a one, the low `l - 1`
//! bits of `m`, and the low `k` bits of `n`.

use crate::out::Out;

/// Packs bits into bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BitWriter {
    pending: u64,
    count: u32,
}

impl BitWriter {
    /// Writes the low `count` bits of `bits`; the others must be 0. `count` is at most 48.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut Out<'_>, bits: u64, count: u32) {
        self.pending |= bits.wrapping_shl(self.count);
        self.count = self.count.wrapping_add(count);
        if self.count >= 8 {
            out.word(self.pending, (self.count >> 3) as usize);
            self.pending = self.pending.wrapping_shr(self.count & !7);
            self.count &= 7;
        }
    }

    /// Writes the Golomb code of a number below 2^40.
    #[inline]
    pub(crate) fn golomb(&mut self, out: &mut Out<'_>, order: u32, number: u64) {
        let high = number.wrapping_shr(order).wrapping_add(1);
        let zeros = 63u32.wrapping_sub(high.leading_zeros());
        let one = 1u64.wrapping_shl(zeros);
        let low = number & 1u64.wrapping_shl(order).wrapping_sub(1);
        if zeros <= 16 {
            let (before_high, before_low) = (zeros.wrapping_add(1), zeros.wrapping_mul(2).wrapping_add(1));
            let bits = one | (high ^ one).wrapping_shl(before_high) | low.wrapping_shl(before_low);
            self.put(out, bits, before_low.wrapping_add(order));
        } else {
            self.put(out, one, zeros.wrapping_add(1));
            self.put(out, high ^ one, zeros);
            self.put(out, low, order);
        }
    }

    /// Writes a signed number; small numbers of both signs have short codes.
    pub(crate) fn zigzag(&mut self, out: &mut Out<'_>, order: u32, number: i64) {
        self.golomb(out, order, (number.wrapping_shl(1) ^ (number >> 63)) as u64);
    }

    /// Whether there is room for the pending bits.
    pub(crate) fn fits(&self, out: &Out<'_>) -> bool {
        !out.overflowed() && (self.count == 0 || out.room() > 0)
    }

    /// Writes the pending bits, and zeros up to the end of the byte.
    pub(crate) fn finish(self, out: &mut Out<'_>) {
        if self.count > 0 {
            out.byte(self.pending as u8);
        }
    }
}

/// Reads bits from bytes. Each method returns `None` at the end of the bytes.
#[cfg(feature = "reader")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits from the start of `bytes`.
    at: usize,
}

#[cfg(feature = "reader")]
impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// Whether only the zeros that fill the last byte are left.
    pub(crate) fn is_at_end(&self) -> bool {
        self.left() < 8 && self.window() == 0
    }

    /// Reads the next `count` bits, at most 48.
    pub(crate) fn take(&mut self, count: u32) -> Option<u64> {
        let end = self.at.checked_add(count as usize).filter(|_| self.left() >= count as usize)?;
        let bits = self.window() & ((1 << count) - 1);
        self.at = end;
        Some(bits)
    }

    pub(crate) fn golomb(&mut self, order: u32) -> Option<u64> {
        let window = self.window();
        let zeros = window.trailing_zeros();
        // Most codes fit into one word of input.
        let length = 2 * zeros + 1 + order;
        if length <= 56 && self.left() >= length as usize {
            self.at += length as usize;
            let high = (window >> (zeros + 1) & ((1 << zeros) - 1) | 1 << zeros) - 1;
            let low = window >> (2 * zeros + 1) & ((1 << order) - 1);
            return Some(high << order | low);
        }
        if zeros > 40 {
            return None;
        }
        self.take(zeros + 1)?;
        let high = (self.take(zeros)? | 1 << zeros) - 1;
        Some(high << order | self.take(order)?)
    }

    pub(crate) fn zigzag(&mut self, order: u32) -> Option<i64> {
        let value = self.golomb(order)?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn left(&self) -> usize {
        (self.bytes.len() * 8).saturating_sub(self.at)
    }

    /// At least the next 56 bits; bits behind the end are zeros.
    fn window(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = rest.first_chunk::<8>().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        });
        u64::from_le_bytes(word) >> (self.at % 8)
    }
}
