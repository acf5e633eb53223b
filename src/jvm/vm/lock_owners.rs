//! Who has the monitor that a thread enters, while the thread waits for it still.
//!
//! `ObjectMonitor::_owner` is a `JavaThread`, or a place on the stack of the thread that had locked the object before
//! there was a monitor (`LM_LEGACY`), or from JDK 24 on a number that the thread has too. If others made the monitor while
//! the owner had the object locked, it is anonymous from JDK 21 on: the object then stands on the owner's lock stack
//! (`runtime/objectMonitor.hpp`, `runtime/lockStack.hpp`).

use std::collections::HashMap;

use super::layout::{LockOffsets, LockOwners, LockStack, StackOffsets, ThreadOffsets, VmLayout};
use super::tables::FieldTables;
use crate::jvm::memory::{InvalidMemory, Memory};
use crate::jvm::vm_structs::Field;

pub(super) const FIELDS: &[Field] = &[
    STACK_BASE[0],
    STACK_BASE[1],
    STACK_SIZE[0],
    STACK_SIZE[1],
    ("JavaThread", "_monitor_owner_id"),
    ("JavaThread", "_lock_stack"),
    ("LockStack", "_top"),
    ("LockStack", "_base[0]"),
];
const STACK_BASE: [Field; 2] = [("JavaThread", "_stack_base"), ("Thread", "_stack_base")];
const STACK_SIZE: [Field; 2] = [("JavaThread", "_stack_size"), ("Thread", "_stack_size")];

/// The owner of a monitor that was made while its owner had the object locked.
const ANONYMOUS: u64 = 1;
/// Smaller numbers are no threads.
const FIRST_ID: u64 = 3;
/// Most objects on a lock stack (`LockStack::CAPACITY`).
const MAX_LOCKED: u64 = 8;

pub(super) fn lock_owners(tables: &FieldTables) -> LockOwners {
    let stack = tables
        .first(&STACK_BASE)
        .and_then(|base| Ok::<_, InvalidMemory>(StackOffsets { base, size: tables.first(&STACK_SIZE)? }));
    let lock_stack = tables.offset("JavaThread", "_lock_stack").and_then(|at| {
        let field = |name| Ok::<_, InvalidMemory>(at + tables.offset("LockStack", name)?);
        Ok(LockStack { first: field("_base[0]")?, top: field("_top")? })
    });
    LockOwners {
        stack: stack.ok(),
        id: tables.offset("JavaThread", "_monitor_owner_id").ok(),
        lock_stack: lock_stack.ok(),
    }
}

/// Returns for each of `waiters` the owner of the monitor that the waiter tries to enter. Ids of threads are those of the
/// JVM's own PID namespace. `None` if the thread does not wait for a monitor any more, or if the owner is not known.
pub(super) fn owners_of<M: Memory>(memory: &M, layout: &VmLayout, waiters: &[u32]) -> Vec<Option<u32>> {
    let found = layout.locks.as_ref().zip(layout.threads.as_ref()).and_then(|(locks, threads)| {
        let list = threads.list(memory).ok()?;
        let numbers = threads.by_number(memory, &list);
        let mut jvm = MonitorsOfJvm { memory, locks, threads, numbers, list: &list, holders: HashMap::new() };
        Some(waiters.iter().map(|waiter| jvm.owner_of_pending(*waiter).ok()).collect())
    });
    found.unwrap_or_else(|| vec![None; waiters.len()])
}

struct MonitorsOfJvm<'a, M> {
    memory: &'a M,
    locks: &'a LockOffsets,
    threads: &'a ThreadOffsets,
    /// Threads by their ids.
    numbers: HashMap<u32, u64>,
    list: &'a [u64],
    /// The thread for each monitor and owner that was looked for: many threads can wait for one monitor, and the bytes
    /// that may be read are those of names, too.
    holders: HashMap<(u64, u64), Result<u64, InvalidMemory>>,
}

impl<M: Memory> MonitorsOfJvm<'_, M> {
    fn owner_of_pending(&mut self, waiter: u32) -> Result<u32, InvalidMemory> {
        let thread = *self.numbers.get(&waiter).ok_or(InvalidMemory)?;
        let monitor = Some(self.pending(thread)?).filter(|monitor| *monitor != 0).ok_or(InvalidMemory)?;
        let owner = self.word(monitor, self.locks.owner)?;
        let holder = match self.holders.get(&(monitor, owner)) {
            Some(known) => *known,
            None => {
                let found = self.thread_of(owner, monitor);
                *self.holders.entry((monitor, owner)).or_insert(found)
            }
        }?;
        let number = self.threads.number(self.memory, holder)?;
        // The thread waited for this monitor and this owner all the time.
        let is_same = self.pending(thread)? == monitor && self.word(monitor, self.locks.owner)? == owner;
        if holder != thread && is_same { Ok(number) } else { Err(InvalidMemory) }
    }

    /// The monitor that a thread enters; 0: none.
    fn pending(&self, thread: u64) -> Result<u64, InvalidMemory> {
        self.word(thread, self.locks.pending)
    }

    /// The thread that a monitor's owner stands for.
    fn thread_of(&self, owner: u64, monitor: u64) -> Result<u64, InvalidMemory> {
        let LockOwners { stack, id, lock_stack } = &self.locks.owners;
        if owner == ANONYMOUS {
            return self
                .thread_with_locked(self.object_of(monitor)?, lock_stack.as_ref().ok_or(InvalidMemory)?);
        }
        if let Some(id) = id {
            let has_id = |&&thread: &&u64| self.word(thread, *id) == Ok(owner);
            return self.list.iter().find(has_id).filter(|_| owner >= FIRST_ID).copied().ok_or(InvalidMemory);
        }
        if self.list.contains(&owner) {
            return Ok(owner);
        }
        let StackOffsets { base, size } = stack.as_ref().ok_or(InvalidMemory)?;
        let is_on_stack = |&&thread: &&u64| {
            let (base, size) = (self.word(thread, *base), self.word(thread, *size));
            matches!((base, size), (Ok(base), Ok(size)) if owner < base && base - owner <= size)
        };
        self.list.iter().find(is_on_stack).copied().ok_or(InvalidMemory)
    }

    fn object_of(&self, monitor: u64) -> Result<u64, InvalidMemory> {
        let at = monitor.checked_add(self.locks.object).ok_or(InvalidMemory)?;
        Some(self.threads.object_at(self.memory, at)?).filter(|object| *object != 0).ok_or(InvalidMemory)
    }

    /// The thread that has an object on its lock stack, whose top is an offset from the thread.
    fn thread_with_locked(&self, object: u64, place: &LockStack) -> Result<u64, InvalidMemory> {
        let has_object = |&&thread: &&u64| {
            let Ok(top) = self.word(thread, place.top) else { return false };
            let end = top & u64::from(u32::MAX);
            let count = (end.saturating_sub(place.first) / 8).min(MAX_LOCKED);
            (0..count).any(|at| self.word(thread, place.first + at * 8) == Ok(object))
        };
        self.list.iter().find(has_object).copied().ok_or(InvalidMemory)
    }

    fn word(&self, at: u64, offset: u64) -> Result<u64, InvalidMemory> {
        self.memory.word(at.checked_add(offset).ok_or(InvalidMemory)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::ThreadListLayout;
    use super::super::made::{BASE, FakeMemory, LIBRARY};
    use super::*;

    /// The threads of this test, 256 bytes each, with ids from 1 on; a monitor, its object's handle, and the object.
    const THREAD: u64 = 0xf_0000;
    const OS_THREAD: u64 = 0xf_1000;
    const LIST: u64 = 0xf_2000;
    const MONITOR: u64 = 0xf_3000;
    const HANDLE: u64 = 0xf_3100;
    const OBJECT: u64 = BASE + 0xf_4000;

    /// A JVM with three threads. The first one enters the monitor.
    fn jvm(owners: LockOwners) -> (FakeMemory, VmLayout) {
        let bytes = FakeMemory::made();
        bytes.library("17.0.1+1", true);
        bytes.threads(true);
        let mut layout = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
        let locks = layout.locks.as_mut().unwrap();
        locks.owners = owners;
        let Some(ThreadOffsets { list: ThreadListLayout::Array { list, length, threads }, .. }) =
            layout.threads
        else {
            panic!("this JVM has a list of threads")
        };
        bytes.word(list - BASE, BASE + LIST);
        bytes.half(LIST + length, 3);
        bytes.word(LIST + threads, BASE + LIST + 0x100);
        for nr in 0..3 {
            bytes.word(LIST + 0x100 + nr * 8, BASE + THREAD + nr * 0x100);
            bytes.word(THREAD + nr * 0x100, BASE + OS_THREAD + nr * 8);
            bytes.half(OS_THREAD + nr * 8, u32::try_from(nr).unwrap() + 1);
        }
        bytes.word(THREAD + 16, BASE + MONITOR);
        bytes.word(MONITOR + 64, BASE + HANDLE);
        bytes.word(HANDLE, OBJECT);
        (bytes, layout)
    }

    /// The owner of the monitor with this word, as the first thread sees it.
    fn owner(jvm: &(FakeMemory, VmLayout), word: u64) -> Option<u32> {
        jvm.0.word(MONITOR + 72, word);
        owners_of(&&jvm.0, &jvm.1, &[1, 2, 9])[0]
    }

    const OLD: LockOwners =
        LockOwners { stack: Some(StackOffsets { base: 32, size: 40 }), id: None, lock_stack: None };
    const NEW: LockOwners =
        LockOwners { stack: OLD.stack, id: Some(48), lock_stack: Some(LockStack { first: 64, top: 56 }) };

    #[test]
    fn an_owner_is_a_thread_or_a_place_on_its_stack() {
        let old = jvm(OLD);
        assert_eq!(owner(&old, BASE + THREAD + 0x200), Some(3));
        assert_eq!(owner(&old, BASE + THREAD), None, "itself");
        assert_eq!((owner(&old, 0), owner(&old, ANONYMOUS)), (None, None));
        old.0.word(THREAD + 0x100 + 32, 0x7000);
        old.0.word(THREAD + 0x100 + 40, 0x1000);
        let of = |word| owner(&old, word);
        assert_eq!([of(0x5fff), of(0x6000), of(0x6fff), of(0x7000)], [None, Some(2), Some(2), None]);
    }

    #[test]
    fn an_owner_is_a_number_or_has_the_object_on_its_lock_stack() {
        let new = jvm(NEW);
        new.0.word(THREAD + 0x200 + 48, 77);
        assert_eq!((owner(&new, 77), owner(&new, 78)), (Some(3), None));
        assert_eq!(owner(&new, 0), None, "two threads have no number");
        assert_eq!(owner(&new, ANONYMOUS), None, "no lock stack has the object");
        new.0.word(THREAD + 0x100 + 64 + 8, OBJECT);
        new.0.half(THREAD + 0x100 + 56, 64 + 8);
        assert_eq!(owner(&new, ANONYMOUS), None, "above the top of the lock stack");
        new.0.half(THREAD + 0x100 + 56, 64 + 16);
        assert_eq!(owner(&new, ANONYMOUS), Some(2));
        new.0.half(THREAD + 0x100 + 56, u32::MAX);
        assert_eq!(owner(&new, ANONYMOUS), Some(2), "a top that is a lie");
    }

    #[test]
    fn a_thread_that_enters_no_monitor_has_no_owner() {
        let new = jvm(NEW);
        new.0.word(MONITOR + 72, 77);
        new.0.word(THREAD + 0x200 + 48, 77);
        assert_eq!(owners_of(&&new.0, &new.1, &[2, 9, 1]), [None, None, Some(3)]);
        let (bytes, layout) = new;
        let without = VmLayout { locks: None, ..layout };
        assert_eq!(owners_of(&&bytes, &without, &[1]), [None]);
    }
}
