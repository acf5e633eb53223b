//! Writes bytes into a buffer of fixed size. An overflow sets a flag; nothing panics.

/// A cursor over borrowed memory.
#[derive(Debug)]
pub struct Out<'a> {
    buffer: &'a mut [u8],
    len: usize,
    overflow: bool,
}

impl<'a> Out<'a> {
    /// Starts at the front of `buffer`.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Out<'a> {
        Out { buffer, len: 0, overflow: false }
    }

    /// Writes one byte, or sets the overflow flag if the buffer is full.
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.buffer.get_mut(self.len) {
            *slot = byte;
            self.len = self.len.wrapping_add(1);
        } else {
            self.overflow = true;
        }
    }

    /// Writes the low `count` bytes of a word; at most 8.
    #[inline]
    pub(crate) fn word(&mut self, word: u64, count: usize) {
        let rest = self.buffer.get_mut(self.len..).unwrap_or_default();
        if let Some(room) = rest.first_chunk_mut() {
            *room = word.to_le_bytes();
            self.len = self.len.wrapping_add(count);
        } else {
            word.to_le_bytes().into_iter().take(count).for_each(|byte| self.byte(byte));
        }
    }

    /// Writes all of `bytes`; if they do not fit, writes none and sets the overflow flag.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.buffer.get_mut(self.len..end) {
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.len = end;
        } else {
            self.overflow = true;
        }
    }

    /// Writes an unsigned LEB128 varint.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// Writes a signed number as a zigzag varint.
    #[inline]
    pub fn zigzag(&mut self, value: i64) {
        self.varint((value.wrapping_shl(1) ^ (value >> 63)) as u64);
    }

    /// Writes the length of `bytes`, then `bytes`.
    pub fn text(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes(bytes);
    }

    /// Number of bytes written so far, without those that did not fit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.buffer.len().saturating_sub(self.len)
    }

    /// Whether no byte was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a write did not fit.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflow
    }

    /// Removes all bytes after `len`, and resets the overflow flag.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.overflow = false;
    }

    /// The bytes written so far, from the front of the buffer.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}
