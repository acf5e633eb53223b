//! Whether a process that has a JVM's memory has the JVM's threads too.
//!
//! A child that is forked from a JVM and executes no other program (JPype under gunicorn, a daemon that forks after it
//! made a JVM) has all of the memory and one thread. A program that loaded `libjvm.so` and made no JVM, or destroyed
//! its JVM, has no Java threads either. No thread there can answer an attach. A SIGQUIT handler there may belong to
//! other code, and SIGQUIT would end the process.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::memory::{InvalidMemory, Memory};
use super::refusal::Refusal;
use super::target::AttachTarget;
use super::vm_structs::{Field, VmStructs};

/// The threads: up to JDK 11 a list, later an array (`Threads`, `ThreadsSMRSupport` in runtime/threadSMR.hpp).
pub(super) const FIELDS: [Field; 8] = [
    ("Threads", "_thread_list"),
    ("JavaThread", "_next"),
    ("ThreadsSMRSupport", "_java_thread_list"),
    ("ThreadsList", "_length"),
    ("ThreadsList", "_threads"),
    ("OSThread", "_thread_id"),
    ("Thread", "_osthread"),
    // The same field up to JDK 24.
    ("JavaThread", "_osthread"),
];

/// Most threads that are read. The JVM's own threads are among the first of an array, and one living thread is enough.
const MAX_THREADS: u64 = 64;
/// Most threads that are checked in a process with its own pid namespace.
const MAX_TASKS: usize = 4096;
const MAX_OFFSET: u64 = 4096;

/// The Java threads of a JVM, by their ids in their own pid namespace. Empty if the JVM has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JavaThreads(Vec<u32>);

/// Reads the ids of the first Java threads; `None` if the tables do not say where they are, or make no sense.
pub(super) fn read<M: Memory>(memory: &M, tables: &VmStructs) -> Option<JavaThreads> {
    read_ids(memory, tables).ok().map(JavaThreads)
}

fn read_ids<M: Memory>(memory: &M, tables: &VmStructs) -> Result<Vec<u32>, InvalidMemory> {
    let field = |(class, name)| tables.field(class, name).ok_or(InvalidMemory);
    let offset =
        |wanted| field(wanted).and_then(|at| if at < MAX_OFFSET { Ok(at) } else { Err(InvalidMemory) });
    let [list, next, array, length, threads, id, os_thread, of_java_thread] = FIELDS;
    let (os_thread, id) = (offset(os_thread).or_else(|_| offset(of_java_thread))?, offset(id)?);
    let mut ids = Vec::new();
    let mut add = |thread: u64| -> Result<(), InvalidMemory> {
        let own = memory.word(thread.saturating_add(os_thread))?;
        // A thread that is being made has no `OSThread` yet.
        if own != 0 {
            let mut bytes = [0; 4];
            memory.read_all(own.saturating_add(id), &mut bytes)?;
            ids.push(u32::from_ne_bytes(bytes));
        }
        Ok(())
    };
    if let Ok(array) = field(array) {
        let array = memory.word(array)?;
        if array != 0 {
            let mut count = [0; 4];
            memory.read_all(array.saturating_add(offset(length)?), &mut count)?;
            let first = memory.word(array.saturating_add(offset(threads)?))?;
            for place in 0..u64::from(u32::from_ne_bytes(count)).min(MAX_THREADS) {
                add(memory.word(first.saturating_add(place * 8))?)?;
            }
        }
    } else {
        let mut thread = memory.word(field(list)?)?;
        for _ in 0..MAX_THREADS {
            if thread == 0 {
                break;
            }
            add(thread)?;
            thread = memory.word(thread.saturating_add(offset(next)?))?;
        }
    }
    Ok(ids)
}

impl JavaThreads {
    /// Refuses a process that has none of these threads.
    pub(super) fn check(&self, target: &AttachTarget) -> Result<(), Refusal> {
        let has_one = if target.ns_pid == target.tgid {
            self.0.iter().any(|id| *id != 0 && target.proc_file(&format!("task/{id}/stat")).is_ok())
        } else {
            let ids: HashSet<u32> = self.0.iter().copied().collect();
            target.thread_ids(MAX_TASKS)?.any(|id| ids.contains(&id))
        };
        match has_one {
            true => Ok(()),
            // The process may have ended after its thread ids were read.
            false if target.is_ending() => Err(Refusal::Exited),
            false => Err(Refusal::NoThreads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::vm::made::{BASE, FakeMemory};
    use super::*;

    /// A JVM's tables with these fields.
    fn tables(fields: &[(Field, u64)]) -> VmStructs {
        VmStructs::made(fields)
    }

    const THREADS: [u64; 3] = [0x1000, 0x2000, 0x3000];

    /// Three linked threads with their `OSThread`s; the last thread has none yet.
    fn memory() -> FakeMemory {
        let bytes = FakeMemory::made();
        for (place, at) in (0..).zip(THREADS) {
            bytes.word(at + 8, if place == 2 { 0 } else { BASE + at + 0x1000 });
            bytes.word(at + 16, if place == 2 { 0 } else { BASE + at + 0x100 });
            bytes.half(at + 0x100 + 24, 700 + place);
            bytes.word(0x5000 + u64::from(place) * 8, BASE + at);
        }
        bytes
    }

    const OWN: [(Field, u64); 2] = [(FIELDS[7], 16), (FIELDS[5], 24)];

    #[test]
    fn threads_are_read_from_the_list_of_old_releases_and_from_the_array_of_new_ones() {
        let bytes = memory();
        bytes.word(0x4000, BASE + THREADS[0]);
        let list = [OWN[0], OWN[1], (FIELDS[0], BASE + 0x4000), (FIELDS[1], 8)];
        assert_eq!(read(&&bytes, &tables(&list)), Some(JavaThreads(vec![700, 701])));

        bytes.word(0x4000, BASE + 0x4100);
        bytes.half(0x4100, 3);
        bytes.word(0x4108, BASE + 0x5000);
        let array = [OWN[0], OWN[1], (FIELDS[2], BASE + 0x4000), (FIELDS[3], 0), (FIELDS[4], 8)];
        assert_eq!(read(&&bytes, &tables(&array)), Some(JavaThreads(vec![700, 701])));
        bytes.half(0x4100, u32::MAX);
        assert_eq!(read(&&bytes, &tables(&array)), None, "more threads than there is memory for");
        bytes.word(0x4000, 0);
        assert_eq!(read(&&bytes, &tables(&array)), Some(JavaThreads(Vec::new())), "no JVM was made");
        assert_eq!(read(&&bytes, &tables(&OWN)), None, "a JVM without the field");
    }

    #[test]
    fn a_list_that_leads_to_itself_ends() {
        let bytes = memory();
        bytes.word(0x4000, BASE + THREADS[0]);
        bytes.word(THREADS[0] + 8, BASE + THREADS[0]);
        let list = [OWN[0], OWN[1], (FIELDS[0], BASE + 0x4000), (FIELDS[1], 8)];
        assert_eq!(read(&&bytes, &tables(&list)), Some(JavaThreads(vec![700; 64])));
    }
}
