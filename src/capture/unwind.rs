//! Where the BPF program reads unwind tables from: pages in chunks, and the space of each process.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::unwind::{CHUNK_PAGES, CHUNKS, Memory, PAGE};

/// The maps, for whoever loads tables; usable from any thread.
#[derive(Debug)]
pub struct UnwindMemory {
    chunks: MapHandle,
    spaces: MapHandle,
    /// Those that were needed so far.
    pages: Vec<MapHandle>,
}

impl UnwindMemory {
    pub(super) fn new(chunks: MapHandle, spaces: MapHandle) -> UnwindMemory {
        UnwindMemory { chunks, spaces, pages: Vec::new() }
    }

    /// The chunk of this number; it and those before it are made if they are not there.
    fn chunk(&mut self, number: u32) -> Result<&MapHandle> {
        while self.pages.len() <= number as usize {
            let next = u32::try_from(self.pages.len())?;
            let opts = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
                ..Default::default()
            };
            let page = u32::try_from(PAGE)?;
            let map = MapHandle::create(MapType::Array, Some("jp_pages"), 4, page, CHUNK_PAGES, &opts)
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

impl Memory for UnwindMemory {
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

    fn publish(&mut self, tgid: u32, page: u32) -> Result<()> {
        let (key, value) = (tgid.to_ne_bytes(), page.to_ne_bytes());
        self.spaces.update(&key, &value, MapFlags::ANY).context("publishing what a process has mapped")
    }

    fn withdraw(&mut self, tgid: u32) {
        // It need not be there.
        let _ = self.spaces.delete(&tgid.to_ne_bytes());
    }

    fn settle(&mut self) {
        // An update of a map of maps returns only when no program runs any more that could have seen the old state, see
        // `Program::flip`.
        if let Some(first) = self.pages.first() {
            let _ = self.publish_chunk(0, first);
        }
    }
}
