//! How much is read of one JVM in one go.

use std::cell::Cell;

use crate::jvm::memory::Memory;

/// What a read costs beside its bytes: a system call.
const CALL: u64 = 512;

/// Memory of which only so much is read until the next [`BoundedMemory::renew`]; beyond, nothing is there. A page holds up to
/// hundreds of addresses that a liar can make lead to megabytes each.
#[derive(Debug)]
pub(super) struct BoundedMemory<M> {
    memory: M,
    left: Cell<u64>,
}

impl<M: Memory> BoundedMemory<M> {
    pub(super) fn new(memory: M) -> BoundedMemory<M> {
        BoundedMemory { memory, left: Cell::new(0) }
    }

    /// Lets so many bytes be read.
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
