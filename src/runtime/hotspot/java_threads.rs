//! Java's names of threads. The kernel keeps 15 bytes of a name, so pools whose names differ only after that would be
//! one.
//!
//! A name is read from the JVM's memory at the end of a window in which the thread ran. The read is done only if the
//! kernel's name may be cut, or is the process's own: old builds of JDK 8 give threads no names (JDK-8073464). The name
//! counts only if HotSpot derives the kernel's name from it. So a thread that was renamed in between keeps the kernel's
//! name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::process::comm::{MAX_KERNEL, fold_numbers};
use crate::process::procfs;
use crate::sample::{CountedStack, ProcessId, Stack};
use crate::text::clean;
use crate::world::{ThreadKey, World};

/// Longest name that is shown, characters.
const MAX_NAME: usize = 256;
/// Most threads whose names are kept.
const MAX_KNOWN: usize = 64 << 10;
/// Windows after which the name of a thread that did not run is forgotten: no stack waits for so long.
const KEPT_WINDOWS: u64 = 120;
/// After so many failed reads, a thread's name is read only in every sixteenth window.
const MAX_MISSES: u32 = 3;
const SELDOM: u64 = 16;
/// Every JVM's name for its first thread, which the kernel knows by the program's name.
const FIRST: &str = "main";

/// The state of a thread's name.
#[derive(Clone, Debug, Default)]
struct ThreadNameState {
    /// The thread's id in the JVM's PID namespace.
    number: u32,
    name: Option<Arc<str>>,
    /// The thread has had several names that the kernel cuts to the same text.
    varies: bool,
    misses: u32,
    /// The last window in which the thread ran.
    ran: u64,
}

/// The names of threads that ran.
#[derive(Debug, Default)]
pub(super) struct JavaThreadNames {
    /// Keep the numbers in names.
    raw: bool,
    known: HashMap<ThreadKey, ThreadNameState>,
}

impl JavaThreadNames {
    pub(super) fn new(raw: bool) -> JavaThreadNames {
        JavaThreadNames { raw, known: HashMap::new() }
    }

    /// Reads the names of the threads in these stacks. The stacks are sorted by time, and their window is over.
    pub(super) fn name_threads(&mut self, world: &mut World, stacks: &[CountedStack]) {
        self.forget(world);
        // The kernel's name of each process whose memory is read; `None` for other processes.
        let mut processes: HashMap<ProcessId, Option<Arc<[u8]>>> = HashMap::new();
        let mut asked: BTreeMap<ProcessId, BTreeMap<u32, (&Stack, bool)>> = BTreeMap::new();
        for CountedStack { stack, .. } in stacks.iter().filter(|one| one.stack.key.tid != 0) {
            let process = stack.key.process;
            let World { processes: all, symbolizer, .. } = &mut *world;
            let mut own =
                || all.info(process, stack.at).map(|info| Arc::clone(&info.comm)).unwrap_or_default();
            let read = || symbolizer.jvms().reads_memory(process).then(&mut own);
            let Some(own) = processes.entry(process).or_insert_with(read) else { continue };
            let is_own = **own == *stack.comm;
            if stack.comm.len() >= MAX_KERNEL || is_own {
                // The last of several names in a window counts: stacks are sorted by time.
                asked.entry(process).or_default().insert(stack.key.tid, (stack, is_own));
            }
        }
        for (process, threads) in asked {
            self.ask(world, process, &threads);
        }
    }

    fn forget(&mut self, world: &mut World) {
        let window = world.window;
        for (thread, _) in self.known.extract_if(|_, known| window >= known.ran + KEPT_WINDOWS) {
            world.thread_names.remove(&thread);
        }
    }

    fn ask(&mut self, world: &mut World, process: ProcessId, threads: &BTreeMap<u32, (&Stack, bool)>) {
        let window = world.window;
        let mut asked = Vec::new();
        for (&tid, &(stack, is_own)) in threads {
            let thread = ThreadKey::of(stack);
            if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&thread) {
                continue;
            }
            let known = self.known.entry(thread).or_default();
            known.ran = window;
            if known.varies || known.misses >= MAX_MISSES && !window.is_multiple_of(SELDOM) {
                continue;
            }
            if known.number == 0 {
                known.number = number(process.tgid, tid).unwrap_or(0);
            }
            asked.push((known.number, stack, is_own));
        }
        let numbers: Vec<u32> = asked.iter().map(|&(number, ..)| number).collect();
        if numbers.is_empty() {
            return;
        }
        let names = world.symbolizer.jvms().thread_names(process, &numbers);
        for ((_, stack, is_own), name) in asked.into_iter().zip(names) {
            let name = name.filter(|name| is_cut(&stack.comm, name) || is_own && name != FIRST);
            let name = name.map(|name| shown(&name, self.raw));
            let thread = ThreadKey::of(stack);
            let Some(known) = self.known.get_mut(&thread) else { continue };
            known.update(name);
            match known.name.as_ref().filter(|_| !known.varies) {
                Some(name) => world.thread_names.set(thread, Arc::clone(name)),
                None => world.thread_names.remove(&thread),
            }
        }
    }
}

/// A thread's name as it is shown; `raw`: with its numbers.
pub(super) fn shown(name: &str, raw: bool) -> Arc<str> {
    let name = clean(name.as_bytes(), MAX_NAME);
    if raw { name.into() } else { fold_numbers(&name).into() }
}

impl ThreadNameState {
    fn update(&mut self, name: Option<Arc<str>>) {
        match (name, &self.name) {
            (None, None) => self.misses = self.misses.saturating_add(1),
            // The thread exited, or could not be read this time.
            (None, Some(_)) => {}
            (Some(name), Some(known)) => self.varies = name != *known,
            (Some(name), None) => (self.name, self.misses) = (Some(name), 0),
        }
    }
}

/// A thread's id in its own PID namespace.
pub(super) fn number(tgid: u32, tid: u32) -> Option<u32> {
    Some(procfs::status(&format!("/proc/{tgid}/task/{tid}/status"))?.ns_tid)
}

/// Whether `comm` is what `os::set_native_thread_name` (os_linux.cpp) makes of a name, in modified UTF-8. HotSpot keeps
/// the first bytes, or since JDK 22 the first seven and last six with two dots in between.
fn is_cut(comm: &[u8], name: &str) -> bool {
    const HEAD: usize = 7;
    const TAIL: usize = 6;
    let whole = modified_utf8(name);
    let (Some(first), Some(head)) = (whole.first_chunk::<MAX_KERNEL>(), whole.first_chunk::<HEAD>()) else {
        return whole == comm;
    };
    let tail = whole.last_chunk::<TAIL>().map_or(&[][..], |tail| tail);
    comm == first || comm == [head, &b".."[..], tail].concat()
}

/// The encoding of HotSpot's strings: characters beyond U+FFFF as two surrogates, and zero in two bytes (JVM
/// specification, 4.4.7).
fn modified_utf8(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        let low = |shift: u16| (unit >> shift) as u8 & 0x3f | 0x80;
        match unit {
            1..0x80 => out.push(unit as u8),
            0 | 0x80..0x800 => out.extend([(unit >> 6) as u8 | 0xc0, low(0)]),
            _ => out.extend([(unit >> 12) as u8 | 0xe0, low(6), low(0)]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_if_the_kernels_is_made_of_it() {
        let reader = "inventory-service-reader-1";
        assert!(is_cut(b"inventory-servi", reader));
        assert!(is_cut(b"invento..ader-1", reader));
        assert!(!is_cut(b"inventory-serve", reader));
        assert!(!is_cut(b"invento..iter-1", reader));
        assert!(is_cut(b"exactly-15-byte", "exactly-15-byte"));
        assert!(is_cut(b"short", "short"));
        assert!(!is_cut(b"short", "shorter") && !is_cut(b"", "x"));
        assert!(is_cut(
            b"\xed\xa0\xbe\xed\xb6\x86\xed\xa0\xbe\xed\xb6\x86\xed\xa0\xbe",
            "\u{1f986}\u{1f986}\u{1f986} d"
        ));
        assert!(is_cut(b"a\xc0\x80b", "a\0b"));
    }

    #[test]
    fn a_thread_that_is_renamed_behind_what_the_kernel_keeps_has_no_name_of_the_jvm() {
        let mut known = ThreadNameState::default();
        known.update(None);
        assert_eq!(known.misses, 1);
        known.update(Some("a".into()));
        known.update(None);
        known.update(Some("a".into()));
        assert!(!known.varies && known.name.as_deref() == Some("a") && known.misses == 0);
        known.update(Some("b".into()));
        assert!(known.varies);
    }
}
