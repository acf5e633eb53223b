//! Who has the monitor that a thread enters, while the thread waits for it still.
//!
//! `ObjectMonitor::_owner` is a `JavaThread`, or a place on the stack of the thread that had locked the object before
//! there was a monitor (`LM_LEGACY`), or from JDK 24 on a number that the thread has too. If others made the monitor while
//! the owner had the object locked, it is anonymous from JDK 21 on: the object then stands on the owner's lock stack
//! (`runtime/objectMonitor.hpp`, `runtime/lockStack.hpp`).

use std::collections::HashMap;

use super::layout::{LockOwners, LockStack, Locks, StackPlace, Threads, VmLayout};
use super::tables::FieldTables;
use crate::jvm::memory::{Memory, Nonsense};
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
        .and_then(|base| Ok::<_, Nonsense>(StackPlace { base, size: tables.first(&STACK_SIZE)? }));
    let lock_stack = tables.offset("JavaThread", "_lock_stack").and_then(|at| {
        let field = |name| Ok::<_, Nonsense>(at + tables.offset("LockStack", name)?);
        Ok(LockStack { first: field("_base[0]")?, top: field("_top")? })
    });
    LockOwners {
        stack: stack.ok(),
        id: tables.offset("JavaThread", "_monitor_owner_id").ok(),
        lock_stack: lock_stack.ok(),
    }
}

/// For each of these threads, the thread that has the monitor that it enters, both by their ids in the JVM's own PID
/// namespace; `None` if it does not wait for a monitor any more, or if the owner is not known.
pub(super) fn owners_of<M: Memory>(memory: &M, layout: &VmLayout, waiters: &[u32]) -> Vec<Option<u32>> {
    let found = layout.locks.as_ref().zip(layout.threads.as_ref()).and_then(|(locks, threads)| {
        let list = threads.list(memory).ok()?;
        let numbers = list.iter().filter_map(|&thread| Some((threads.number(memory, thread).ok()?, thread)));
        let jvm = MonitorsOfJvm { memory, locks, threads, numbers: numbers.collect(), list: &list };
        Some(waiters.iter().map(|waiter| jvm.owner_of_pending(*waiter).ok()).collect())
    });
    found.unwrap_or_else(|| vec![None; waiters.len()])
}

struct MonitorsOfJvm<'a, M> {
    memory: &'a M,
    locks: &'a Locks,
    threads: &'a Threads,
    /// Threads by their ids.
    numbers: HashMap<u32, u64>,
    list: &'a [u64],
}

impl<M: Memory> MonitorsOfJvm<'_, M> {
    fn owner_of_pending(&self, waiter: u32) -> Result<u32, Nonsense> {
        let thread = *self.numbers.get(&waiter).ok_or(Nonsense)?;
        let pending = || self.word(thread, self.locks.pending);
        let monitor = Some(pending()?).filter(|monitor| *monitor != 0).ok_or(Nonsense)?;
        let owner = || self.word(monitor, self.locks.owner);
        let word = owner()?;
        let holder = self.thread_of(word, monitor)?;
        let number = self.threads.number(self.memory, holder)?;
        // The thread waited for this monitor and this owner all the time.
        if holder != thread && pending()? == monitor && owner()? == word { Ok(number) } else { Err(Nonsense) }
    }

    /// The thread that a monitor's owner stands for.
    fn thread_of(&self, owner: u64, monitor: u64) -> Result<u64, Nonsense> {
        let LockOwners { stack, id, lock_stack } = &self.locks.owners;
        if owner == ANONYMOUS {
            return self.thread_with_locked(self.object_of(monitor)?, lock_stack.as_ref().ok_or(Nonsense)?);
        }
        if let Some(id) = id {
            let has_id = |&&thread: &&u64| self.word(thread, *id) == Ok(owner);
            return self.list.iter().find(has_id).filter(|_| owner >= FIRST_ID).copied().ok_or(Nonsense);
        }
        if self.list.contains(&owner) {
            return Ok(owner);
        }
        let StackPlace { base, size } = stack.as_ref().ok_or(Nonsense)?;
        let is_on_stack = |&&thread: &&u64| {
            let (base, size) = (self.word(thread, *base), self.word(thread, *size));
            matches!((base, size), (Ok(base), Ok(size)) if owner < base && base - owner <= size)
        };
        self.list.iter().find(is_on_stack).copied().ok_or(Nonsense)
    }

    fn object_of(&self, monitor: u64) -> Result<u64, Nonsense> {
        let object = self.word(monitor, self.locks.object)?;
        let object = if self.threads.is_handle { self.memory.word(object)? } else { object };
        Some(object).filter(|object| *object != 0).ok_or(Nonsense)
    }

    /// The thread that has an object on its lock stack, whose top is an offset from the thread.
    fn thread_with_locked(&self, object: u64, place: &LockStack) -> Result<u64, Nonsense> {
        let has_object = |&&thread: &&u64| {
            let Ok(top) = self.word(thread, place.top) else { return false };
            let end = top & u64::from(u32::MAX);
            let count = (end.saturating_sub(place.first) / 8).min(MAX_LOCKED);
            (0..count).any(|at| self.word(thread, place.first + at * 8) == Ok(object))
        };
        self.list.iter().find(has_object).copied().ok_or(Nonsense)
    }

    fn word(&self, at: u64, offset: u64) -> Result<u64, Nonsense> {
        self.memory.word(at.checked_add(offset).ok_or(Nonsense)?)
    }
}
