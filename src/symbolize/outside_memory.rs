//! The worker's part of unwinding from outside: reads the memory of a process by pages, and runs the unwinder on it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::message::{ThreadToUnwind, WorkerResponse};
use crate::jvm::vm::{Memory as _, ProcessMemory};
use crate::outside::{OutsidePages, OutsideStack, unwind};
use crate::unwind::{CHUNK_PAGES, CHUNKS, PAGE};

/// The most bytes of unwind tables and address space of one process.
const MAX_PAGES: u64 = CHUNKS as u64 * CHUNK_PAGES as u64 * PAGE as u64;
/// Pages of memory that are kept during a request: threads of one process share code, and the JVM's data.
const MAX_KEPT: usize = 2048;
/// How long to wait for the end of a collection before a lock is looked at again.
const PAUSE: Duration = Duration::from_millis(2);
/// The most such pauses in one request: a process may be in a collection for long, or only say so.
const MAX_PAUSES: u32 = 100;

/// The memory of a process during one request.
struct KeptMemory {
    memory: ProcessMemory,
    /// By page number; `None`: the page cannot be read.
    pages: HashMap<u64, Option<Box<[u8; PAGE]>>>,
}

impl KeptMemory {
    fn page(&mut self, number: u64) -> Option<&[u8; PAGE]> {
        if self.pages.len() >= MAX_KEPT && !self.pages.contains_key(&number) {
            self.pages.clear();
        }
        let memory = &self.memory;
        let read = || {
            let mut bytes = Box::new([0; PAGE]);
            memory.read_all(number.checked_mul(PAGE as u64)?, &mut bytes[..]).ok().map(|()| bytes)
        };
        self.pages.entry(number).or_insert_with(read).as_deref()
    }

    /// Fills the whole buffer from an address, or returns false.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let inside = (at % PAGE as u64) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE - inside));
            let Some(page) = self.page(at / PAGE as u64) else { return false };
            now.copy_from_slice(&page[inside..inside + now.len()]);
            let Some(next) = at.checked_add(now.len() as u64) else { return false };
            (at, rest) = (next, later);
        }
        true
    }
}

/// Unwinds threads of one process. The descriptors are its memory, and a file of the pages with its unwind tables.
pub(super) fn unwind_threads(
    descriptors: Vec<OwnedFd>,
    space: u32,
    threads: &[ThreadToUnwind],
) -> WorkerResponse {
    let Ok([memory, pages]) = <[OwnedFd; 2]>::try_from(descriptors) else { return WorkerResponse::Refused };
    let mut bytes = Vec::new();
    if File::from(pages).take(MAX_PAGES).read_to_end(&mut bytes).is_err() {
        return WorkerResponse::Refused;
    }
    let pages = OutsidePages::new(&bytes, space);
    drop(bytes);
    let mut memory = KeptMemory { memory: ProcessMemory::new(memory), pages: HashMap::new() };
    let mut pauses = 0;
    let mut unwound = |thread: &ThreadToUnwind| loop {
        let mut read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
        let stack = unwind(&pages, &thread.waiting, thread.leaf, &mut read);
        if pauses == MAX_PAUSES || !stack.as_ref().is_some_and(|stack| stack.lock_is_hidden) {
            return stack;
        }
        // The thread waits on, and the collection ends soon: its lock is read then, from memory as it is then.
        pauses += 1;
        std::thread::sleep(PAUSE);
        memory.pages.clear();
    };
    let stacks: Vec<Option<OutsideStack>> = threads.iter().map(&mut unwound).collect();
    WorkerResponse::Unwound(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_across_pages_and_ends_where_none_is_mapped() {
        let file = File::open("/proc/self/mem").unwrap();
        let mut memory = KeptMemory { memory: ProcessMemory::new(file.into()), pages: HashMap::new() };
        let own: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        let mut copy = vec![0; 2 * PAGE + 100];
        assert!(memory.read(own.as_ptr() as u64 + 77, &mut copy));
        assert_eq!(copy, own[77..77 + copy.len()]);
        assert!(!memory.read(16, &mut [0; 8]), "the first page is never mapped");
        assert!(!memory.read(u64::MAX - 3, &mut [0; 8]));
    }
}
