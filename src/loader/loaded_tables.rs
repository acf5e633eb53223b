//! The unwind tables of files that are loaded. A table is built when it is first needed. If it is unavailable, it is built
//! later, after a backoff.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::file_tables::FileTables;
use super::table_retries::TableRetries;
use super::table_source::TableSource;
use crate::limits::{Limit, ReachedLimits};
use crate::process::{FileId, MappedFile};
use crate::symbolize::{FileHandle, NoTable};
use crate::unwind::{Rule, TableBudget, TableKey, TableMemory, TableStore};

/// Files whose table keys are kept. The limit is generous, because containers have many files with the same content.
const MAX_FILES: usize = 16_384;
const MAX_RULES: usize = 1 << 16;

/// The store of loaded tables and spaces, and which file has which tables.
pub(super) struct LoadedTables<M: TableMemory> {
    pub(super) store: TableStore<M>,
    /// Files whose tables are unavailable, and the processes that wait for them.
    pub(super) missing: TableRetries,
    /// The tables of files, as far as they were requested.
    files: HashMap<FileId, FileTables>,
    /// A cache of recently used rules.
    rules: HashMap<(TableKey, u64), Rule>,
    limits: ReachedLimits,
}

impl<M: TableMemory> LoadedTables<M> {
    pub(super) fn new(memory: M) -> LoadedTables<M> {
        LoadedTables {
            store: TableStore::new(memory, TableBudget::default()),
            missing: TableRetries::default(),
            files: HashMap::new(),
            rules: HashMap::new(),
            limits: ReachedLimits::default(),
        }
    }

    /// Whether the tables of a file were requested and are still loaded.
    pub(super) fn is_known(&mut self, id: FileId) -> bool {
        self.files.get_mut(&id).is_some_and(|tables| tables.retain(|key| self.store.is_table_loaded(key)))
    }

    /// The tables of a file, if they were requested and are still loaded.
    pub(super) fn known(&mut self, id: FileId) -> Option<FileTables> {
        self.is_known(id).then(|| self.files.get(&id).cloned()).flatten()
    }

    /// Builds and loads the table of a file, unless its backoff has not ended.
    pub(super) fn build(
        &mut self,
        id: FileId,
        file: &FileHandle,
        tables: &mut dyn TableSource,
    ) -> Option<FileTables> {
        let now = Instant::now();
        if self.missing.until(id, now).is_some() {
            return None;
        }
        let built = match tables.table(file, None) {
            Ok(part) => self.store.load(&part.table).map(|key| FileTables::whole(&part, key, now)),
            Err(NoTable::Unavailable) => None,
            Err(NoTable::TooLarge) => Some(FileTables::in_parts()),
            Err(_) => Some(FileTables::none()),
        };
        let Some(built) = built else {
            self.missing.add(id, now);
            return None;
        };
        self.missing.remove(id);
        if self.files.len() >= MAX_FILES {
            self.files.retain(|_, tables| {
                tables.retain(|key| self.store.is_table_loaded(key)) && tables.has_table()
            });
        }
        self.files.insert(id, built.clone());
        Some(built)
    }

    /// Builds and loads the table for the part of a large file that has the code at `offset`.
    pub(super) fn build_part(&mut self, file: &Arc<MappedFile>, offset: u64, tables: &mut dyn TableSource) {
        let now = Instant::now();
        let Some(known) = self.files.get_mut(&file.id) else { return };
        if self.missing.until(file.id, now).is_some() {
            return;
        }
        let may_load = known.make_room(now);
        let part = may_load.then(|| tables.table(&FileHandle::Mapped(Arc::clone(file)), Some(offset)));
        match part {
            Some(Ok(part)) => match self.store.load(&part.table) {
                Some(key) => return known.add(&part, key, now),
                None => self.missing.add(file.id, now),
            },
            Some(Err(NoTable::Unavailable)) => return self.missing.add(file.id, now),
            Some(Err(_)) => known.end_parts(),
            None => {}
        }
        known.refused += 1;
        self.limits.note(Limit::UnwindTableParts, &file.path.to_string_lossy(), known.refused);
    }

    /// Whether tables of further parts of a file can be built.
    pub(super) fn has_more(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(FileTables::has_more)
    }

    /// Whether tables of further parts of any file can be built.
    pub(super) fn has_files_in_parts(&self) -> bool {
        self.files.values().any(FileTables::has_more)
    }

    /// The rule of a loaded table at an offset of the file.
    pub(super) fn rule(&mut self, key: TableKey, offset: u64) -> Rule {
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        *self.rules.entry((key, offset)).or_insert_with(|| self.store.rule(key, offset))
    }

    /// Evicts all tables that no process needs.
    pub(super) fn release_memory(&mut self) {
        self.rules.clear();
        self.rules.shrink_to_fit();
        self.store.release_memory();
    }

    /// The limits that were reached.
    pub(super) fn limits(&self) -> ReachedLimits {
        let mut reached = self.limits.clone();
        reached.note(Limit::UnwindTables, "", self.store.usage().refused);
        reached
    }
}
