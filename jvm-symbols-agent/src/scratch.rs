//! Working memory for callbacks: a few blocks, which are mapped once and lent. No callback waits for a block: without a
//! free one, the event is dropped and counted.
#![allow(unsafe_code)]

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use jvm_symbols_log::Nodes;

use crate::sys;

/// Methods that the debug records of one compiled method may name.
pub const MAX_METHODS: usize = 2048;
const HASH: usize = MAX_METHODS * 2;

/// A block. All zeros is a valid value.
#[derive(Debug)]
#[repr(C)]
pub struct Scratch {
    /// The methods of the current event.
    pub methods: Methods,
    /// The head of a load record with its method table.
    pub head: [u8; 16 << 10],
    /// A method's names and lines.
    pub names: [u8; 256 << 10],
    /// Encoded debug records of the current event, at most 1 MiB.
    pub debug: [u8; 1 << 20],
    /// The chains of the debug records.
    pub nodes: Nodes,
}

/// Numbers the methods of one event in the order of their first use.
#[derive(Debug)]
#[repr(C)]
pub struct Methods {
    ids: [usize; MAX_METHODS],
    count: usize,
    /// Distinguishes entries of this event in `hash` from those of earlier events, so that `hash` need not be cleared.
    event: u32,
    hash: [(u32, u32); HASH],
}

impl Methods {
    /// Removes the methods of the last event; numbers begin at 0 again.
    pub fn begin(&mut self) {
        self.count = 0;
        self.event = self.event.wrapping_add(1);
        if self.event == 0 {
            for slot in &mut self.hash {
                *slot = (0, 0);
            }
            self.event = 1;
        }
    }

    /// The method's number; `None` if there are too many methods.
    pub fn number(&mut self, id: usize) -> Option<u32> {
        let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for step in 0..HASH {
            let slot = self.hash.get_mut((hash as usize).wrapping_add(step) & (HASH - 1))?;
            if slot.0 != self.event {
                let number = self.count;
                *self.ids.get_mut(number)? = id;
                self.count = number.wrapping_add(1);
                *slot = (self.event, number as u32);
                return Some(number as u32);
            }
            if self.ids.get(slot.1 as usize) == Some(&id) {
                return Some(slot.1);
            }
        }
        None
    }

    /// All methods in the order of their numbers.
    #[must_use]
    pub fn ids(&self) -> &[usize] {
        self.ids.get(..self.count).unwrap_or_default()
    }
}

/// The blocks: one for each thread that may be in a callback at the same time (Service Thread, Attach Listener,
/// compilers with stubs), plus one.
#[derive(Debug)]
pub struct Pool {
    blocks: [Block; 4],
}

#[derive(Debug)]
struct Block {
    lent: AtomicBool,
    memory: AtomicPtr<Scratch>,
}

impl Pool {
    /// A pool without memory.
    #[must_use]
    pub const fn new() -> Pool {
        Pool {
            blocks: [const { Block { lent: AtomicBool::new(false), memory: AtomicPtr::new(null_mut()) } }; 4],
        }
    }

    /// Lends a block, if one is free and there is memory.
    pub fn borrow(&self) -> Option<Lent<'_>> {
        let block = self.blocks.iter().find(|block| !block.lent.swap(true, Ordering::Acquire))?;
        let mut memory = NonNull::new(block.memory.load(Ordering::Relaxed));
        if memory.is_none() {
            memory = sys::map(size_of::<Scratch>()).map(NonNull::cast);
            block.memory.store(memory.map_or(null_mut(), NonNull::as_ptr), Ordering::Relaxed);
        }
        if memory.is_none() {
            block.lent.store(false, Ordering::Release);
        }
        Some(Lent { block, memory: memory? })
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

/// A block on loan, which drop returns to the pool.
#[derive(Debug)]
pub struct Lent<'p> {
    block: &'p Block,
    memory: NonNull<Scratch>,
}

impl Lent<'_> {
    /// The block, which still has the content of its last use.
    pub fn get(&mut self) -> &mut Scratch {
        // SAFETY: the memory is large enough, aligned (mmap), valid as zeros, and lent to this holder only.
        unsafe { self.memory.as_mut() }
    }

    /// Returns pages of the debug buffer to the system if the event used many. `used`: bytes of debug records.
    pub fn trim(&mut self, used: usize) {
        const WORTH: usize = 256 << 10;
        if used > WORTH {
            sys::forget(&mut self.get().debug);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.block.lent.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_lent_once() {
        let pool = Pool::new();
        let mut all: Vec<_> = (0..4).map(|_| pool.borrow().unwrap()).collect();
        assert!(pool.borrow().is_none());
        all.pop();
        assert!(pool.borrow().is_some());
    }

    #[test]
    fn methods_are_numbered_by_first_use() {
        let pool = Pool::new();
        let mut lent = pool.borrow().unwrap();
        let methods = &mut lent.get().methods;
        for _ in 0..3 {
            methods.begin();
            assert_eq!(methods.number(80), Some(0));
            assert_eq!(methods.number(160), Some(1));
            assert_eq!(methods.number(80), Some(0));
            assert_eq!(methods.ids(), [80, 160]);
        }
        methods.begin();
        let numbered = (1..=MAX_METHODS + 10).filter(|&i| methods.number(i * 8).is_some()).count();
        assert_eq!(numbered, MAX_METHODS);
        assert_eq!(methods.number(8), Some(0));
    }
}
