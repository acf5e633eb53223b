//! Names for the Java locks of waits, which are classes and the threads that had the locks, and for the classes of
//! allocated objects.
//!
//! Names are read at the end of the window in which the wait ended, or in which the object was allocated. A thread that has
//! exited by then has no name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;

use super::java_threads::{number, shown};
use crate::process::{comm, procfs};
use crate::sample::{CountedStack, Lock, LockOwner, MonoNs, ProcessId};
use crate::symbolize::JavaClassAt;
use crate::world::World;

/// Most owners of one process in a window that get names.
const MAX_OWNERS: usize = 1024;

/// The JVM's own thread that wakes the others when a safepoint ends. It has no lock of theirs.
const SAFEPOINTS: &str = "VM Thread";

/// The locks and objects of one process.
#[derive(Default)]
struct LockQueries {
    /// Addresses, and when they were seen for the first time.
    classes: BTreeMap<u64, u64>,
    owners: BTreeSet<LockOwner>,
}

impl LockQueries {
    fn note_class(&mut self, class: u64, at: MonoNs) {
        let seen = self.classes.entry(class).or_insert(at.0);
        *seen = at.0.min(*seen);
    }
}

/// The names of one process's locks and classes of objects.
#[derive(Default)]
struct LockNames {
    classes: HashMap<u64, Arc<str>>,
    owners: HashMap<LockOwner, Arc<str>>,
}

/// Names the locks and the objects in these stacks. With `raw` thread names keep their numbers.
pub(super) fn name_locks_and_objects(world: &mut World, stacks: &mut [CountedStack], raw: bool) {
    let mut asked: BTreeMap<ProcessId, LockQueries> = BTreeMap::new();
    for CountedStack { stack, .. } in stacks.iter() {
        if let Some(Lock { class, owner, .. }) = &stack.lock {
            let of = asked.entry(stack.key.process).or_default();
            of.note_class(*class, stack.at);
            of.owners.extend(owner.filter(|_| of.owners.len() < MAX_OWNERS));
        }
        if let Some(object) = &stack.object {
            asked.entry(stack.key.process).or_default().note_class(object.class, stack.at);
        }
    }
    let jvms = asked.into_iter().filter(|(process, _)| world.symbolizer.jvms().reads_memory(*process));
    let jvms: Vec<(ProcessId, LockQueries)> = jvms.collect();
    let named = jvms.into_iter().map(|(process, asked)| {
        let classes = classes(world, process, &asked.classes);
        (process, LockNames { classes, owners: owners(world, process, &asked.owners, raw) })
    });
    let named: HashMap<ProcessId, LockNames> = named.collect();
    for CountedStack { stack, .. } in stacks {
        let Some(names) = named.get(&stack.key.process) else { continue };
        if let Some(lock) = &mut stack.lock {
            lock.class_name = names.classes.get(&lock.class).cloned();
            lock.owner_name = lock.owner.and_then(|owner| names.owners.get(&owner)).cloned();
        }
        if let Some(object) = &mut stack.object {
            object.class_name = names.classes.get(&object.class).cloned();
        }
    }
}

fn classes(world: &mut World, process: ProcessId, asked: &BTreeMap<u64, u64>) -> HashMap<u64, Arc<str>> {
    let lookups: Vec<JavaClassAt> = asked.iter().map(|(&class, &from)| JavaClassAt { class, from }).collect();
    let names = world.symbolizer.jvms().class_names(process, &lookups);
    lookups.iter().zip(names).filter_map(|(asked, name)| Some((asked.class, name?.into()))).collect()
}

/// The names of threads: Java's, else the kernel's.
fn owners(
    world: &mut World,
    process: ProcessId,
    asked: &BTreeSet<LockOwner>,
    raw: bool,
) -> HashMap<LockOwner, Arc<str>> {
    let waiters = asked.iter().filter_map(|owner| match owner {
        LockOwner::OfWaiter(waiter) => Some(*waiter),
        _ => None,
    });
    let waiters: Vec<u32> = waiters.collect();
    let holders =
        if waiters.is_empty() { Vec::new() } else { world.symbolizer.jvms().owners_of(process, &waiters) };
    let holders: HashMap<u32, u32> =
        waiters.into_iter().zip(holders).filter_map(|(waiter, holder)| Some((waiter, holder?))).collect();
    let own_ids: Vec<(LockOwner, u32)> = asked
        .iter()
        .filter_map(|&owner| match owner {
            LockOwner::Waker(tid) => Some((owner, number(process.tgid, tid)?)),
            LockOwner::Holder(own) => Some((owner, own)),
            LockOwner::OfWaiter(waiter) => Some((owner, *holders.get(&waiter)?)),
        })
        .collect();
    let numbers: Vec<u32> = own_ids.iter().map(|(_, own)| *own).collect();
    let names =
        if numbers.is_empty() { Vec::new() } else { world.symbolizer.jvms().thread_names(process, &numbers) };
    let mut tids = None;
    let mut names_of = HashMap::new();
    for ((owner, own), name) in own_ids.into_iter().zip(names) {
        let of_kernel = || {
            let tid = match owner {
                LockOwner::Waker(tid) => tid,
                LockOwner::Holder(_) | LockOwner::OfWaiter(_) => {
                    *tids.get_or_insert_with(|| tids_of(process.tgid)).get(&own)?
                }
            };
            let name = procfs::read(&format!("/proc/{}/task/{tid}/comm", process.tgid)).ok()?;
            Some(comm::text(name.trim_ascii_end())).filter(|name| name != SAFEPOINTS)
        };
        let name = name.filter(|name| !name.is_empty()).or_else(of_kernel);
        names_of.extend(name.map(|name| (owner, shown(&name, raw))));
    }
    names_of
}

/// The threads of a process, by their ids in its own PID namespace.
fn tids_of(tgid: u32) -> HashMap<u32, u32> {
    let threads = fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten();
    let tids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid| Some((number(tgid, tid)?, tid))).collect()
}
