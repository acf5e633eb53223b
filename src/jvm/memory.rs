//! Bounded reads of a JVM's memory. Every value there may be forged: a bad value leads to a refusal or to a frame
//! without a name, never to a crash, an endless loop or high memory use.
//!
//! Only the helper and the symbol worker for memory read, never the broker: a page behind a user-space file system can
//! block a read.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

/// Longest string that is read, bytes.
const MAX_STRING: usize = 512;

/// The memory could not be read, or makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JVM's memory is inconsistent")]
pub struct InvalidMemory;

/// Memory with addresses: `/proc/PID/mem`, or bytes in a test.
pub trait Memory {
    /// Fills `buffer` from the front as far as memory goes; returns the number of bytes.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// Fills all of `buffer`.
    ///
    /// # Errors
    /// If memory ends before.
    fn read_all(&self, address: u64, buffer: &mut [u8]) -> Result<(), InvalidMemory> {
        if self.read(address, buffer) == buffer.len() { Ok(()) } else { Err(InvalidMemory) }
    }

    /// A word of eight bytes.
    ///
    /// # Errors
    /// If the address cannot be read.
    fn word(&self, address: u64) -> Result<u64, InvalidMemory> {
        let mut bytes = [0; 8];
        self.read_all(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// A string that ends with a zero byte, at most 512 bytes long; empty for a null pointer.
    ///
    /// # Errors
    /// If the address cannot be read, or the string is too long.
    fn string(&self, address: u64) -> Result<Vec<u8>, InvalidMemory> {
        if address == 0 {
            return Ok(Vec::new());
        }
        // Most names are short: a short first read copies less.
        for size in [64, MAX_STRING] {
            let mut bytes = vec![0; size];
            let got = self.read(address, &mut bytes);
            if let Some(end) = bytes.get(..got).and_then(|b| b.iter().position(|&b| b == 0)) {
                bytes.truncate(end);
                return Ok(bytes);
            }
        }
        Err(InvalidMemory)
    }
}

/// One process's memory, read by `pread` of `/proc/PID/mem`.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Memory behind an open descriptor of `/proc/PID/mem`.
    #[must_use]
    pub fn new(mem: OwnedFd) -> ProcessMemory {
        ProcessMemory(File::from(mem))
    }

    pub(super) fn into_file(self) -> File {
        self.0
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, address.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}

/// The word of eight bytes at `offset` in `bytes`.
pub(super) fn word_in(bytes: &[u8], offset: u64) -> Result<u64, InvalidMemory> {
    array_in(bytes, offset).map(u64::from_ne_bytes)
}

/// The four bytes at `offset` in `bytes`.
pub(super) fn half_in(bytes: &[u8], offset: u64) -> Result<u32, InvalidMemory> {
    array_in(bytes, offset).map(u32::from_ne_bytes)
}

/// The two bytes at `offset` in `bytes`.
pub(super) fn short_in(bytes: &[u8], offset: u64) -> Result<u16, InvalidMemory> {
    array_in(bytes, offset).map(u16::from_ne_bytes)
}

/// The byte at `offset` in `bytes`.
pub(super) fn byte_in(bytes: &[u8], offset: u64) -> Result<u8, InvalidMemory> {
    array_in(bytes, offset).map(u8::from_ne_bytes)
}

fn array_in<const N: usize>(bytes: &[u8], offset: u64) -> Result<[u8; N], InvalidMemory> {
    let from = usize::try_from(offset).ok().and_then(|start| bytes.get(start..));
    from.and_then(<[u8]>::first_chunk).copied().ok_or(InvalidMemory)
}
