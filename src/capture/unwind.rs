//! The maps from which the BPF program reads unwind tables: pages in chunks, and the address space of each process.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustix::process::{Resource, getrlimit};

use super::map::create;
use crate::unwind::{CHUNK_PAGES, CHUNKS, PAGE, TableMemory};

/// Chunks take at most one part in this many of the descriptors that the profiler may open.
const DESCRIPTORS_DIVISOR: u64 = 16;

/// The maps of unwind tables; usable from any thread.
#[derive(Debug)]
pub struct UnwindMemory {
    chunks: MapHandle,
    spaces: MapHandle,
    /// The chunks so far.
    pages: Vec<MapHandle>,
    /// Maximum number of chunks; each takes a descriptor.
    most: u64,
}

impl UnwindMemory {
    pub(super) fn new(chunks: MapHandle, spaces: MapHandle) -> UnwindMemory {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        UnwindMemory { chunks, spaces, pages: Vec::new(), most: descriptors / DESCRIPTORS_DIVISOR }
    }

    /// The chunk with this number. Creates missing chunks up to this one.
    fn chunk(&mut self, number: u32) -> Result<&MapHandle> {
        while self.pages.len() <= number as usize {
            let next = u32::try_from(self.pages.len())?;
            ensure!(u64::from(next) < self.most, "RLIMIT_NOFILE leaves no descriptor for more unwind tables");
            let map = create(MapType::Array, "jp_pages", size_of::<u32>(), PAGE, CHUNK_PAGES)
                .context("pages for unwind tables")?;
            self.publish_chunk(next, &map)?;
            self.pages.push(map);
        }
        self.pages.get(number as usize).context("no such chunk")
    }

    fn publish_chunk(&self, number: u32, map: &MapHandle) -> Result<()> {
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        self.chunks.update(&number.to_ne_bytes(), &fd, MapFlags::ANY).context("publishing unwind tables")
    }
}

impl TableMemory for UnwindMemory {
    type Error = anyhow::Error;

    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<()> {
        for (page, bytes) in (first..CHUNKS * CHUNK_PAGES).zip(bytes.chunks(PAGE)) {
            let mut whole = [0; PAGE];
            whole[..bytes.len()].copy_from_slice(bytes);
            let inside = page % CHUNK_PAGES;
            let chunk = self.chunk(page / CHUNK_PAGES)?;
            chunk.update(&inside.to_ne_bytes(), &whole, MapFlags::ANY).context("writing unwind tables")?;
        }
        Ok(())
    }

    fn read(&self, page: u32) -> Option<Vec<u8>> {
        let chunk = self.pages.get((page / CHUNK_PAGES) as usize)?;
        chunk.lookup(&(page % CHUNK_PAGES).to_ne_bytes(), MapFlags::ANY).ok()?
    }

    fn publish(&mut self, tgid: u32, page: u32) -> Result<()> {
        let (key, value) = (tgid.to_ne_bytes(), page.to_ne_bytes());
        self.spaces.update(&key, &value, MapFlags::ANY).context("publishing what a process has mapped")
    }

    fn withdraw(&mut self, tgid: u32) {
        // The map may lack the process.
        let _ = self.spaces.delete(&tgid.to_ne_bytes());
    }

    fn wait_for_walks(&mut self) {
        // An update of a map of maps returns only after all programs have ended that could have seen the old state, see
        // `BpfProgram::wait_for_runs`.
        if let Some(first) = self.pages.first() {
            let _ = self.publish_chunk(0, first);
        }
    }

    /// The first chunk stays, because `wait_for_walks` needs one.
    fn shrink(&mut self, end: u32) {
        let used = end.div_ceil(CHUNK_PAGES).max(1);
        for number in (used..self.pages.len() as u32).rev() {
            if self.chunks.delete(&number.to_ne_bytes()).is_err() {
                return;
            }
            self.pages.pop();
        }
    }
}
