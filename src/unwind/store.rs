//! What is loaded: tables, shared by all processes that map the same code, and the spaces of processes. It stays within
//! a budget: tables that no process needs any more go first; then a process that comes gets none.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::pages::Pages;
use super::table::rule_at;
use super::{CHUNK_PAGES, CHUNKS, HotSpot, PAGE, Rule, Space, Table};

/// Given back pages are settled when there are so many of them: it takes the kernel some milliseconds.
const SETTLE: u32 = 64;

/// Where the BPF program reads from.
pub trait TableMemory {
    /// Why it could not be written.
    type Error;

    /// Writes pages from `first` on; no walk reads them yet.
    ///
    /// # Errors
    /// What the kernel says.
    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<(), Self::Error>;

    /// A page as it was written.
    fn read(&self, page: u32) -> Option<Vec<u8>>;

    /// Names the space of a process: from now on walks use it.
    ///
    /// # Errors
    /// What the kernel says.
    fn publish(&mut self, tgid: u32, page: u32) -> Result<(), Self::Error>;

    /// Takes the space of a process away.
    fn withdraw(&mut self, tgid: u32);

    /// Returns when no walk runs any more that could have seen what was there before.
    fn wait_for_walks(&mut self);

    /// Gives back what it can of pages that are not used: those from `end` on.
    fn shrink(&mut self, end: u32);
}

/// How much may be loaded.
#[derive(Clone, Copy, Debug)]
pub struct TableBudget {
    /// Pages of all.
    pub pages: u32,
    /// Pages of the tables that one process needs, so that no process takes them all.
    pub of_one_process: u32,
}

impl Default for TableBudget {
    fn default() -> TableBudget {
        // Page 0 stands for none.
        let pages = CHUNKS * CHUNK_PAGES - 1;
        TableBudget { pages, of_one_process: pages / 3 }
    }
}

/// Names a table by its content. Two hashes with random keys: nobody can make two tables that have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey(u64, u64);

#[derive(Debug)]
struct Loaded {
    first: u32,
    pages: u32,
    /// Ranges of spaces that name it.
    users: u32,
    /// When it was last needed, by the store's own count.
    used: u64,
}

#[derive(Debug)]
struct Placed {
    space: Space,
    first: u32,
    pages: u32,
    tables: Vec<TableKey>,
}

/// What is loaded, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tables.
    pub tables: usize,
    /// Processes.
    pub spaces: usize,
    /// Bytes of both.
    pub bytes: u64,
    /// Tables and spaces for which there was no room.
    pub refused: u64,
}

/// What is loaded.
#[derive(Debug)]
pub struct TableStore<M> {
    memory: M,
    pages: Pages,
    budget: TableBudget,
    tables: HashMap<TableKey, Loaded>,
    spaces: HashMap<u32, Placed>,
    keys: [RandomState; 2],
    clock: u64,
    refused: u64,
}

impl<M: TableMemory> TableStore<M> {
    /// Nothing is loaded yet.
    pub fn new(memory: M, budget: TableBudget) -> TableStore<M> {
        TableStore {
            memory,
            pages: Pages::new(budget.pages),
            budget,
            tables: HashMap::new(),
            spaces: HashMap::new(),
            keys: [RandomState::new(), RandomState::new()],
            clock: 0,
            refused: 0,
        }
    }

    /// Loads a table if none of the same content is; `None` if there is no room.
    pub fn load(&mut self, table: &Table) -> Option<TableKey> {
        self.load_bytes(table.bytes())
    }

    /// Loads what the walker must know of a JVM, as [`load`](Self::load) does.
    pub fn load_vm(&mut self, vm: &HotSpot) -> Option<TableKey> {
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
        self.tables.insert(key, Loaded { first, pages, users: 0, used: self.clock });
        Some(key)
    }

    /// Whether a table is still loaded; one that no process needs may have been evicted.
    #[must_use]
    pub fn has(&self, key: TableKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// What holds at an offset of the file that has this table; [`Rule::None`] if it is not loaded any more.
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

    /// Sets what a process has mapped, with the tables of its ranges; the page numbers in `space` are filled in here.
    /// Returns whether walks use it from now on.
    pub fn set(&mut self, tgid: u32, mut space: Space, tables: &[Option<TableKey>]) -> bool {
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
        // Before there is looked for room: what is needed now is not evicted for it.
        self.note_users(&keys, 1);
        let placed = self.place(&space.to_bytes());
        let published = placed.is_some_and(|(first, _)| self.memory.publish(tgid, first).is_ok());
        let Some((first, pages)) = placed.filter(|_| published) else {
            self.note_users(&keys, -1);
            if let Some((first, pages)) = placed {
                self.pages.retire(first, pages);
                self.refused += 1;
            }
            // What is known of the process is out of date.
            self.remove(tgid);
            return false;
        };
        if let Some(old) = self.spaces.insert(tgid, Placed { space, first, pages, tables: keys }) {
            self.release(&old);
        }
        true
    }

    /// Forgets a process.
    pub fn remove(&mut self, tgid: u32) {
        if let Some(old) = self.spaces.remove(&tgid) {
            self.memory.withdraw(tgid);
            self.release(&old);
        }
    }

    /// Whether the space of a process is loaded.
    #[must_use]
    pub fn knows(&self, tgid: u32) -> bool {
        self.spaces.contains_key(&tgid)
    }

    /// Whether a process is walked by a table, or by what a JVM says, anywhere between two addresses.
    #[must_use]
    pub fn covers(&self, tgid: u32, start: u64, end: u64) -> bool {
        self.spaces.get(&tgid).is_some_and(|placed| {
            let ranges = &placed.space.ranges;
            let first = ranges.partition_point(|range| range.end <= start);
            ranges[first..].iter().take_while(|range| range.start < end).any(|range| range.table != 0)
        })
    }

    /// Gives back the tables that no process needs now, and the memory that is free then.
    pub fn release_memory(&mut self) {
        self.make_room(u32::MAX);
        self.memory.shrink(self.pages.end());
    }

    /// What is loaded, in numbers.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            tables: self.tables.len(),
            spaces: self.spaces.len(),
            bytes: u64::from(self.pages.used()) * PAGE as u64,
            refused: self.refused,
        }
    }

    fn release(&mut self, old: &Placed) {
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

    /// Writes bytes to pages of their own: the first one, and how many.
    fn place(&mut self, bytes: &[u8]) -> Option<(u32, u32)> {
        let pages = u32::try_from(bytes.len().div_ceil(PAGE)).ok()?;
        if self.pages.retired() >= SETTLE {
            self.wait_for_walks();
        }
        let first = loop {
            match self.pages.take(pages) {
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

    /// Evicts what has not been needed for longest; false if nothing is left to evict.
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
