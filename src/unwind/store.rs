//! The store of loaded tables, which all processes with the same code share, and of loaded address spaces. The store
//! stays within a budget: first it evicts tables that no process needs; then it refuses new tables and spaces.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::pages::PageAllocator;
use super::table::rule_at;
use super::{CHUNK_PAGES, CHUNKS, HotSpotUnwindInfo, PAGE, ProgramLayout, Rule, Space, Table};

/// The number of retired pages at which the store waits for programs; the wait takes the kernel some milliseconds.
const MAX_RETIRED_PAGES: u32 = 64;

/// The memory from which the BPF program reads.
pub trait TableMemory {
    /// Why a write failed.
    type Error;

    /// Writes pages from `first` on, which no program reads yet.
    ///
    /// # Errors
    /// When a page cannot be written, or there is no memory for it.
    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads a page; `None` if the page does not exist or cannot be read.
    fn read(&self, page: u32) -> Option<Vec<u8>>;

    /// Sets the first page of a process's address space. The unwinder uses it from now on.
    ///
    /// # Errors
    /// When the number of the page cannot be written.
    fn publish(&mut self, tgid: u32, page: u32) -> Result<(), Self::Error>;

    /// Removes the address space of a process.
    fn withdraw(&mut self, tgid: u32);

    /// Waits until all running programs have ended that could have read the old state.
    fn wait_for_walks(&mut self);

    /// Frees memory of the unused pages from `end` on, where that is possible.
    fn shrink(&mut self, end: u32);
}

/// Limits on what may be loaded.
#[derive(Clone, Copy, Debug)]
pub struct TableBudget {
    /// Maximum pages of all tables and spaces.
    pub pages: u32,
    /// Maximum pages of the tables of one process, so that no process takes all pages.
    pub of_one_process: u32,
}

impl Default for TableBudget {
    fn default() -> TableBudget {
        // 0 is not a page's number.
        let pages = CHUNKS * CHUNK_PAGES - 1;
        TableBudget { pages, of_one_process: pages / 3 }
    }
}

/// The key of a table's content: two hashes with random seeds, so that a tenant cannot construct tables with equal
/// keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey(u64, u64);

#[derive(Debug)]
struct LoadedTable {
    first: u32,
    pages: u32,
    /// Number of address spaces that use the table.
    users: u32,
    /// When the table was last needed, by the store's `clock`.
    used: u64,
}

#[derive(Debug)]
struct PlacedPages {
    space: Space,
    first: u32,
    pages: u32,
    tables: Vec<TableKey>,
}

/// A copy of a process's address space and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceImage {
    /// The pages, numbered from 0; page 0 is empty.
    pub pages: Vec<u8>,
    /// The page where the address space begins.
    pub space: u32,
}

/// How much the store holds, and how much it refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of loaded tables.
    pub tables: usize,
    /// Number of processes with a loaded address space.
    pub spaces: usize,
    /// Bytes of tables and spaces.
    pub bytes: u64,
    /// Number of tables and spaces for which there was no room.
    pub refused: u64,
}

/// The store of tables and address spaces.
#[derive(Debug)]
pub struct TableStore<M> {
    memory: M,
    pages: PageAllocator,
    budget: TableBudget,
    tables: HashMap<TableKey, LoadedTable>,
    spaces: HashMap<u32, PlacedPages>,
    keys: [RandomState; 2],
    clock: u64,
    refused: u64,
}

impl<M: TableMemory> TableStore<M> {
    /// Creates an empty store.
    pub fn new(memory: M, budget: TableBudget) -> TableStore<M> {
        TableStore {
            memory,
            pages: PageAllocator::new(budget.pages),
            budget,
            tables: HashMap::new(),
            spaces: HashMap::new(),
            keys: [RandomState::new(), RandomState::new()],
            clock: 0,
            refused: 0,
        }
    }

    /// Loads a table, unless a table with the same content is loaded; `None` if there is no room.
    pub fn load(&mut self, table: &Table) -> Option<TableKey> {
        self.load_bytes(table.bytes())
    }

    /// Loads the description of a JVM, in the same way as [`load`](Self::load).
    pub fn load_jvm(&mut self, vm: &HotSpotUnwindInfo) -> Option<TableKey> {
        self.load_bytes(&vm.to_bytes())
    }

    fn load_bytes(&mut self, bytes: &[u8]) -> Option<TableKey> {
        let key = TableKey(self.keys[0].hash_one(bytes), self.keys[1].hash_one(bytes));
        self.clock += 1;
        if let Some(loaded) = self.tables.get_mut(&key) {
            loaded.used = self.clock;
            return Some(key);
        }
        let (first, pages) = self.place(bytes)?;
        self.tables.insert(key, LoadedTable { first, pages, users: 0, used: self.clock });
        Some(key)
    }

    /// Whether a table is still loaded. The store may evict a table that no process needs.
    #[must_use]
    pub fn is_table_loaded(&self, key: TableKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// The rule at an offset of this table's file; [`Rule::None`] if the table is no longer loaded.
    pub fn rule(&self, key: TableKey, offset: u64) -> Rule {
        const WORDS: usize = PAGE / 4;
        let Some(loaded) = self.tables.get(&key) else { return Rule::None };
        let mut last = (usize::MAX, Vec::new());
        rule_at(offset, |at| {
            let page = at / WORDS;
            if page != last.0 {
                let number = u32::try_from(page).ok().filter(|&page| page < loaded.pages);
                let bytes = number.and_then(|page| self.memory.read(loaded.first + page));
                last = (page, bytes.unwrap_or_default());
            }
            last.1.as_chunks::<4>().0.get(at % WORDS).map_or(0, |word| u32::from_le_bytes(*word))
        })
    }

    /// Loads the address space of a process, with the tables of its ranges; fills in the page numbers in `space`.
    /// Returns whether the unwinder uses the space from now on.
    pub fn load_space(&mut self, tgid: u32, mut space: Space, tables: &[Option<TableKey>]) -> bool {
        let mut keys = Vec::new();
        let mut most = self.budget.of_one_process;
        for (range, key) in space.ranges.iter_mut().zip(tables) {
            range.table = 0;
            let Some((key, loaded)) = key.and_then(|key| Some((key, self.tables.get(&key)?))) else {
                continue;
            };
            if !keys.contains(&key) {
                if loaded.pages > most {
                    self.refused += 1;
                    continue;
                }
                most -= loaded.pages;
                keys.push(key);
            }
            range.table = loaded.first;
        }
        if self.spaces.get(&tgid).is_some_and(|placed| placed.space == space) {
            return true;
        }
        // Before `place`, which may evict tables without users.
        self.note_users(&keys, 1);
        let placed = self.place(&space.to_bytes());
        let published = placed.is_some_and(|(first, _)| self.memory.publish(tgid, first).is_ok());
        let Some((first, pages)) = placed.filter(|_| published) else {
            self.note_users(&keys, -1);
            if let Some((first, pages)) = placed {
                self.pages.retire(first, pages);
                self.refused += 1;
            }
            // The old space is out of date.
            self.remove(tgid);
            return false;
        };
        if let Some(old) = self.spaces.insert(tgid, PlacedPages { space, first, pages, tables: keys }) {
            self.release(&old);
        }
        true
    }

    /// Removes the address space of a process; its tables stay until they are evicted.
    pub fn remove(&mut self, tgid: u32) {
        if let Some(old) = self.spaces.remove(&tgid) {
            self.memory.withdraw(tgid);
            self.release(&old);
        }
    }

    /// Copies the address space of a process and its tables, for an unwinder in user space. `None` if they are not
    /// loaded for the program with this layout.
    pub fn copy_space(&self, tgid: u32, layout: ProgramLayout) -> Option<SpaceImage> {
        let placed = self.spaces.get(&tgid).filter(|placed| placed.space.layout == layout)?;
        // Page 0 is no page.
        let (mut pages, mut moved) = (vec![0; PAGE], HashMap::new());
        let next = |pages: &Vec<u8>| u32::try_from(pages.len() / PAGE).ok();
        for loaded in placed.tables.iter().filter_map(|key| self.tables.get(key)) {
            moved.insert(loaded.first, next(&pages)?);
            for page in loaded.first..loaded.first + loaded.pages {
                pages.extend(self.memory.read(page).filter(|bytes| bytes.len() == PAGE)?);
            }
        }
        let mut space = placed.space.clone();
        space.ranges.iter_mut().for_each(|range| range.table = moved.get(&range.table).copied().unwrap_or(0));
        let first = next(&pages)?;
        pages.extend(space.to_bytes());
        pages.resize(pages.len().next_multiple_of(PAGE), 0);
        Some(SpaceImage { pages, space: first })
    }

    /// Whether the address space of a process is loaded.
    #[must_use]
    pub fn is_space_loaded(&self, tgid: u32) -> bool {
        self.spaces.contains_key(&tgid)
    }

    /// Whether the unwinder has a table, or the description of a JVM, for any code of a process between two addresses.
    #[must_use]
    pub fn covers(&self, tgid: u32, start: u64, end: u64) -> bool {
        self.spaces.get(&tgid).is_some_and(|placed| {
            let ranges = &placed.space.ranges;
            let first = ranges.partition_point(|range| range.end <= start);
            ranges[first..].iter().take_while(|range| range.start < end).any(|range| range.table != 0)
        })
    }

    /// Evicts all tables that no process needs, and frees their memory.
    pub fn release_memory(&mut self) {
        self.make_room(u32::MAX);
        self.memory.shrink(self.pages.end());
    }

    /// How much the store holds now, and how much it has refused so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            tables: self.tables.len(),
            spaces: self.spaces.len(),
            bytes: u64::from(self.pages.used()) * PAGE as u64,
            refused: self.refused,
        }
    }

    fn release(&mut self, old: &PlacedPages) {
        self.pages.retire(old.first, old.pages);
        self.note_users(&old.tables, -1);
    }

    fn note_users(&mut self, keys: &[TableKey], more: i32) {
        self.clock += 1;
        for key in keys {
            if let Some(loaded) = self.tables.get_mut(key) {
                loaded.users = loaded.users.saturating_add_signed(more);
                loaded.used = self.clock;
            }
        }
    }

    /// Writes bytes to new pages. Returns the first page and the number of pages.
    fn place(&mut self, bytes: &[u8]) -> Option<(u32, u32)> {
        let pages = u32::try_from(bytes.len().div_ceil(PAGE)).ok()?;
        if self.pages.retired() >= MAX_RETIRED_PAGES {
            self.wait_for_walks();
        }
        let first = loop {
            match self.pages.allocate(pages) {
                Some(first) => break first,
                None if self.make_room(pages) => {}
                None => {
                    self.refused += 1;
                    return None;
                }
            }
        };
        if self.memory.write(first, bytes).is_err() {
            self.pages.retire(first, pages);
            self.refused += 1;
            return None;
        }
        Some((first, pages))
    }

    /// Evicts the least recently needed tables without users until `pages` pages are retired, and frees all retired
    /// pages; false if there are none.
    fn make_room(&mut self, pages: u32) -> bool {
        let mut evicted = self.pages.retired();
        let mut idle: Vec<(u64, TableKey)> =
            self.tables.iter().filter(|(_, t)| t.users == 0).map(|(key, t)| (t.used, *key)).collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        for (_, key) in idle {
            if evicted >= pages {
                break;
            }
            if let Some(gone) = self.tables.remove(&key) {
                self.pages.retire(gone.first, gone.pages);
                evicted += gone.pages;
            }
        }
        if evicted > 0 {
            self.wait_for_walks();
        }
        evicted > 0
    }

    fn wait_for_walks(&mut self) {
        self.memory.wait_for_walks();
        self.pages.wait_for_walks();
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
