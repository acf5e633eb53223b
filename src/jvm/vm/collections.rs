//! Whether a collection may have moved objects while they were read. Serial, Parallel and G1 move objects only while the
//! program stands still. The heap says that it is so, and counts its collections (`gc/shared/collectedHeap.hpp`; JDK 8
//! to 25). A collector that compacts changes all pointers first and moves the objects after that, so a pointer that is
//! the same before and after a read can lead to another object in between.

use super::layout::CollectionCounterOffsets;
use super::tables::FieldTables;
use crate::jvm::memory::{InvalidMemory, Memory};
use crate::jvm::vm_structs::Field;

pub(super) const FIELDS: &[Field] =
    &[("Universe", "_collectedHeap"), STOPPED[0], STOPPED[1], ("CollectedHeap", "_total_collections")];
const STOPPED: [Field; 2] = [("CollectedHeap", "_is_stw_gc_active"), ("CollectedHeap", "_is_gc_active")];

pub(super) fn collections(tables: &FieldTables) -> Result<CollectionCounterOffsets, InvalidMemory> {
    Ok(CollectionCounterOffsets {
        heap: tables.address("Universe", "_collectedHeap")?,
        is_stopped: tables.first(&STOPPED)?,
        count: tables.offset("CollectedHeap", "_total_collections")?,
    })
}

impl CollectionCounterOffsets {
    /// The address of the byte that is not 0 while a collection has stopped the program.
    pub(super) fn stopped_at<M: Memory>(&self, memory: &M) -> Result<u64, InvalidMemory> {
        CollectionCounterOffsets::in_heap(memory.word(self.heap)?, self.is_stopped)
    }

    /// The address of a field of the heap; the JVM may have no heap yet.
    fn in_heap(heap: u64, field: u64) -> Result<u64, InvalidMemory> {
        heap.checked_add(field).filter(|_| heap != 0).ok_or(InvalidMemory)
    }

    /// What `read` returns; `None` if a collection ran meanwhile.
    pub(super) fn unmoved<M: Memory, T>(
        &self,
        memory: &M,
        read: impl FnOnce() -> Result<T, InvalidMemory>,
    ) -> Result<Option<T>, InvalidMemory> {
        let Some(before) = self.finished(memory)? else { return Ok(None) };
        let found = read();
        if self.finished(memory)? == Some(before) { found.map(Some) } else { Ok(None) }
    }

    /// The number of collections that began; `None` while one stops the program. The number is read first: a collection
    /// that begins in between is seen as one that stops the program.
    fn finished<M: Memory>(&self, memory: &M) -> Result<Option<u32>, InvalidMemory> {
        let heap = memory.word(self.heap)?;
        let (mut count, mut stopped) = ([0; 4], [1]);
        memory.read_all(CollectionCounterOffsets::in_heap(heap, self.count)?, &mut count)?;
        memory.read_all(CollectionCounterOffsets::in_heap(heap, self.is_stopped)?, &mut stopped)?;
        Ok(Some(u32::from_ne_bytes(count)).filter(|_| stopped == [0]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::VmLayout;
    use super::super::made::{BASE, FakeMemory, LIBRARY};
    use super::*;

    #[test]
    fn what_is_read_during_a_collection_is_not_believed() {
        let bytes = FakeMemory::made();
        bytes.library("17.0.1+1", true);
        bytes.threads(true);
        let layout = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
        let collections = layout.threads.unwrap().collections;
        let heap = bytes.get(collections.heap - BASE) - BASE;
        let [stopped, count] = [collections.is_stopped, collections.count].map(|field| heap + field);
        let read = |change: &dyn Fn()| {
            collections.unmoved(&&bytes, || {
                change();
                Ok(1)
            })
        };
        assert_eq!(read(&|| ()), Ok(Some(1)));
        assert_eq!(read(&|| bytes.half(count, 7)), Ok(None), "a whole collection in between");
        assert_eq!(read(&|| ()), Ok(Some(1)));
        assert_eq!(read(&|| bytes.put(stopped, &[1])), Ok(None), "one that began in between");
        assert_eq!(read(&|| ()), Ok(None), "one that goes on");
        bytes.put(stopped, &[0]);
        assert_eq!(collections.unmoved(&&bytes, || Err::<(), _>(InvalidMemory)), Err(InvalidMemory));
        bytes.word(collections.heap - BASE, 0);
        assert_eq!(read(&|| ()), Err(InvalidMemory), "no heap yet");
    }
}
