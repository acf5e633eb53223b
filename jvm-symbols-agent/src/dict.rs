//! Hash table from a jmethodID to its method's log offset, and from a class's key to the offset of one of its methods.
//! The table grows, and several threads use it without locks.
//!
//! The id is only a key; this file never passes it to the JVM. Up to JDK 25 the JVM does not reuse the memory of ids
//! for methods of another class loader; later ids are numbers that never repeat (JDK-8268406).
#![allow(unsafe_code)]

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sys;

/// Slots of the first level; each further level has twice as many.
const FIRST: usize = 2048;
/// Levels: room for a quarter of a million methods in 8 MiB. Only levels that are needed are mapped.
const LEVELS: usize = 8;
/// Slots that are probed for a key.
const PROBES: usize = 16;

#[derive(Debug)]
struct Slot {
    key: AtomicUsize,
    value: AtomicU64,
}

#[derive(Debug)]
struct Level {
    slots: AtomicPtr<Slot>,
    used: AtomicU32,
}

impl Level {
    const fn new() -> Level {
        Level { slots: AtomicPtr::new(null_mut()), used: AtomicU32::new(0) }
    }
}

/// The table. A thread may miss an entry that another thread adds at the same time: then the method is logged twice,
/// which is harmless.
#[derive(Debug)]
pub struct Dict {
    levels: [Level; LEVELS],
}

impl Dict {
    /// An empty table, without memory.
    #[must_use]
    pub const fn new() -> Dict {
        Dict { levels: [const { Level::new() }; LEVELS] }
    }

    /// The log offset of the method.
    pub fn get(&self, id: usize) -> Option<u64> {
        for (number, level) in self.levels.iter().enumerate() {
            let slots = level.slots(number)?;
            for slot in probe(slots, id) {
                match slot.key.load(Ordering::Acquire) {
                    0 => break,
                    key if key == id => {
                        let value = slot.value.load(Ordering::Acquire);
                        return (value != 0).then_some(value);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Adds the log offset of a method. Without room the entry is dropped, and the method is logged again at its next
    /// use.
    pub fn insert(&self, id: usize, value: u64) {
        if id == 0 || value == 0 {
            return;
        }
        for (number, level) in self.levels.iter().enumerate() {
            let Some(slots) = level.slots_or_new(number) else { return };
            if level.used.load(Ordering::Relaxed) as usize > slots.len() / 2 {
                continue;
            }
            for slot in probe(slots, id) {
                let free = slot.key.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire);
                if free.is_ok() {
                    level.used.fetch_add(1, Ordering::Relaxed);
                }
                if free.is_ok() || free == Err(id) {
                    slot.value.store(value, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Unmaps all memory.
    ///
    /// # Safety
    /// No other thread uses the table until this returns.
    pub unsafe fn clear(&self) {
        for (number, level) in self.levels.iter().enumerate() {
            level.used.store(0, Ordering::Relaxed);
            let old = level.slots.swap(null_mut(), Ordering::AcqRel);
            if let Some(old) = NonNull::new(old.cast()) {
                // SAFETY: the memory came from `slots_or_new` of this level, and no other thread uses the table.
                unsafe { sys::unmap(old, bytes(number)) };
            }
        }
    }
}

impl Default for Dict {
    fn default() -> Dict {
        Dict::new()
    }
}

fn slots_of(level: usize) -> usize {
    FIRST.wrapping_shl(level as u32)
}

fn bytes(level: usize) -> usize {
    slots_of(level).wrapping_mul(size_of::<Slot>())
}

impl Level {
    fn slots(&self, number: usize) -> Option<&[Slot]> {
        let slots = NonNull::new(self.slots.load(Ordering::Acquire))?;
        // SAFETY: the pointer was set once, to memory for this many slots, which are atomics and zero at first; only
        // `clear` unmaps it.
        Some(unsafe { core::slice::from_raw_parts(slots.as_ptr(), slots_of(number)) })
    }

    fn slots_or_new(&self, number: usize) -> Option<&[Slot]> {
        if let Some(slots) = self.slots(number) {
            return Some(slots);
        }
        let fresh = sys::map(bytes(number))?;
        let set = self.slots.compare_exchange(
            null_mut(),
            fresh.as_ptr().cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if set.is_err() {
            // SAFETY: another thread set its memory first; no thread has seen this memory.
            unsafe { sys::unmap(fresh, bytes(number)) };
        }
        self.slots(number)
    }
}

/// The slots that may have the key `id`.
fn probe(slots: &[Slot], id: usize) -> impl Iterator<Item = &Slot> {
    // Fibonacci hashing, because the low bits of ids, which are pointers, differ little.
    let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mask = slots.len().wrapping_sub(1);
    (0..PROBES).filter_map(move |step| slots.get((hash as usize).wrapping_add(step) & mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_methods_are_found_again() {
        let dict = Dict::new();
        let id = |i: usize| 0x7f00_0000_0000 + i * 8;
        for i in 1..=100_000 {
            dict.insert(id(i), i as u64 * 8);
        }
        let found = (1..=100_000).filter(|&i| dict.get(id(i)) == Some(i as u64 * 8)).count();
        assert!(found > 99_900, "{found} of 100000 found");
        assert_eq!(dict.get(id(0)), None);
        // SAFETY: only this thread uses the table.
        unsafe { dict.clear() };
        assert_eq!(dict.get(id(1)), None);
    }

    #[test]
    fn a_full_table_forgets_and_does_not_grow_for_ever() {
        let dict = Dict::new();
        for i in 1..2_000_000usize {
            dict.insert(i << 4, 8);
        }
        assert_eq!(dict.get(1 << 4), Some(8));
        // SAFETY: only this thread uses the table.
        unsafe { dict.clear() };
    }

    #[test]
    fn threads_may_add_at_once() {
        let dict = Dict::new();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let dict = &dict;
                scope.spawn(move || (1..5000).for_each(|i| dict.insert((i << 6) + thread * 8, i as u64)));
            }
        });
        let found = (1..5000usize)
            .flat_map(|i| (0..4usize).map(move |t| (i, t)))
            .filter(|&(i, t)| dict.get((i << 6) + t * 8) == Some(i as u64));
        assert!(found.count() > 19_900);
        // SAFETY: the other threads have ended.
        unsafe { dict.clear() };
    }
}
