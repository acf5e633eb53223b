//! A limit on the bytes that are read of one JVM at a time.

use std::cell::Cell;

use crate::jvm::memory::Memory;

/// Cost of a read beside its bytes: a system call.
const CALL: u64 = 512;

/// Memory that can be read only up to a limit until the next [`BoundedMemory::renew`]; beyond the limit reads return
/// nothing. A page can hold hundreds of addresses, and a forger can make each lead to megabytes.
#[derive(Debug)]
pub(super) struct BoundedMemory<M> {
    memory: M,
    left: Cell<u64>,
}

impl<M: Memory> BoundedMemory<M> {
    pub(super) fn new(memory: M) -> BoundedMemory<M> {
        BoundedMemory { memory, left: Cell::new(0) }
    }

    /// Allows `bytes` more bytes to be read.
    pub(super) fn renew(&self, bytes: u64) {
        self.left.set(bytes);
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

impl<M: Memory> Memory for BoundedMemory<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        match self.left.get().checked_sub(buffer.len() as u64 + CALL) {
            Some(left) => {
                self.left.set(left);
                self.memory.read(address, buffer)
            }
            None => {
                self.left.set(0);
                0
            }
        }
    }
}
