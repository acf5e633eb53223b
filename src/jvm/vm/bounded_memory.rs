//! A limit on the bytes read of one JVM between two [`VmCode::check`](super::VmCode::check)s.

use std::cell::Cell;

use crate::jvm::memory::Memory;

/// Cost of a read beside its bytes: a system call.
const CALL: u64 = 512;

/// A JVM's memory with a limit on the bytes that can be read until the next [`BoundedMemory::renew`]. The limit is 0
/// before the first `renew`. Beyond the limit reads return nothing. The limit is needed because one page of a forged
/// code heap can hold hundreds of sampled addresses, and each can lead to megabytes.
#[derive(Debug)]
pub(super) struct BoundedMemory<M> {
    memory: M,
    left: Cell<u64>,
}

impl<M: Memory> BoundedMemory<M> {
    pub(super) fn new(memory: M) -> BoundedMemory<M> {
        BoundedMemory { memory, left: Cell::new(0) }
    }

    /// Sets the limit to `bytes`; the unspent rest expires.
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
