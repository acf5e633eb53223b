//! HotSpot's compressed integers: debug records and line tables are streams of them.
//!
//! `code/compressedStream.cpp` of JDK 8 to 19: up to five bytes, the lowest first, six bits each step; a byte below 192
//! ends the number. Since JDK 20 (JDK-8292758, `utilities/unsigned5.hpp`) each byte is one higher, so no byte is zero.

/// A byte below this ends a number.
const LAST_BELOW: u8 = 192;
const MAX_BYTES: u32 = 5;
const BITS: u32 = 6;

#[derive(Clone, Debug)]
pub(super) struct Unsigned5Stream<'a> {
    bytes: &'a [u8],
    /// How much higher each byte is than its value: 0, or 1 since JDK 20.
    excess: u8,
}

impl<'a> Unsigned5Stream<'a> {
    pub(super) fn new(bytes: &'a [u8], null_free: bool) -> Unsigned5Stream<'a> {
        Unsigned5Stream { bytes, excess: u8::from(null_free) }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// The next number; `None` at the end, or if the bytes are no number.
    pub(super) fn number(&mut self) -> Option<u32> {
        let mut sum = 0_u32;
        for place in 0..MAX_BYTES {
            let byte = self.byte()?;
            let digit = u32::from(byte.checked_sub(self.excess)?);
            sum = sum.wrapping_add(digit << (place * BITS));
            if byte < LAST_BELOW {
                break;
            }
        }
        Some(sum)
    }

    /// The next signed number; its sign is the lowest bit.
    pub(super) fn signed(&mut self) -> Option<i32> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_forms() {
        // By the definition in unsigned5.hpp: b0 + 64 b1 + 4096 b2 …, digits from 192 (191) on are followed by more.
        let old = |bytes: &[u8]| Unsigned5Stream::new(bytes, false).number();
        assert_eq!([old(&[0]), old(&[191]), old(&[192, 0])], [Some(0), Some(191), Some(192)]);
        assert_eq!(old(&[255, 191]), Some(255 + 191 * 64));
        let long = [192_u32 << 6, 192 << 12, 192 << 18, 255 << 24]
            .iter()
            .fold(192_u32, |sum, n| sum.wrapping_add(*n));
        assert_eq!(old(&[192, 192, 192, 192, 255, 255]), Some(long));
        let new = |bytes: &[u8]| Unsigned5Stream::new(bytes, true).number();
        assert_eq!([new(&[1]), new(&[191]), new(&[192, 1])], [Some(0), Some(190), Some(191)]);
        assert_eq!(new(&[255, 2]), Some(254 + 64));
        assert_eq!([new(&[0]), new(&[]), new(&[192]), new(&[192, 0])], [None; 4]);
    }

    #[test]
    fn signs_are_the_lowest_bit() {
        let mut stream = Unsigned5Stream::new(&[0, 1, 2, 3, 4], false);
        let all: Vec<i32> = std::iter::from_fn(|| stream.signed()).collect();
        assert_eq!(all, [0, -1, 1, -2, 2]);
    }
}
