//! Keeps the walker's unwind tables up to date: of each process that may be sampled, what it has mapped, and the tables
//! of that code.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::allowance::Allowance;
use super::{Settings, Target};
use crate::capture::{Count, Stack, UnwindMemory};
use crate::process::{Code, CodeRange, FileId, ProcessCode, Processes};
use crate::symbolize::{FileHandle, NoTable, Symbolizer};
use crate::unwind::{Budget, Layout, Range, Space, Store, TableKey, Usage};

/// How long loading may hold up the start, and each beat after it.
const AT_START: Duration = Duration::from_secs(3);
const AT_BEAT: Duration = Duration::from_millis(100);
/// Files whose tables are remembered by their numbers: containers have many of one content.
const MAX_FILES: usize = 16_384;

/// Whose stacks may be walked.
enum Wanted {
    /// Nobody's: no user frames are wanted.
    Nobody,
    All,
    These(Vec<u32>),
    /// And their descendants.
    Families(Vec<u32>),
}

/// What is loaded, and what is still to be.
pub(super) struct Unwinding {
    store: Store<UnwindMemory>,
    wanted: Wanted,
    /// The tables of files that were asked for; none if a file has none.
    tables: HashMap<FileId, Option<TableKey>>,
    /// Processes to look at, those that run first.
    running: BTreeSet<u32>,
    due: BTreeSet<u32>,
    /// The last one of them that was: they take turns.
    last: u32,
    /// A process that maps one file after the other must not keep us busy.
    allowance: Allowance,
}

impl Unwinding {
    /// `launched` is the process that was started to be profiled.
    pub(super) fn new(memory: UnwindMemory, settings: &Settings, launched: Option<u32>) -> Unwinding {
        let wanted = match &settings.target {
            _ if !settings.user => Wanted::Nobody,
            Target::All => Wanted::All,
            Target::Pids(tgids) if settings.children => Wanted::Families(tgids.clone()),
            Target::Pids(tgids) => Wanted::These(tgids.clone()),
            Target::Launch(_) => Wanted::Families(launched.into_iter().collect()),
            // Their processes are met when they run.
            Target::Tids(_) => Wanted::These(Vec::new()),
        };
        Unwinding {
            store: Store::new(memory, Budget::default()),
            wanted,
            tables: HashMap::new(),
            running: BTreeSet::new(),
            due: BTreeSet::new(),
            last: 0,
            allowance: Allowance::new(Instant::now()),
        }
    }

    /// Loads what is needed before the first tick.
    pub(super) fn begin(&mut self, processes: &mut Processes, symbolizer: &mut Symbolizer) {
        self.advance(processes, symbolizer, Instant::now() + AT_START);
    }

    /// Loads some of what is missing.
    pub(super) fn beat(&mut self, processes: &mut Processes, symbolizer: &mut Symbolizer) {
        let now = Instant::now();
        let allowed = self.allowance.now(now).min(AT_BEAT);
        if !allowed.is_zero() {
            self.advance(processes, symbolizer, now + allowed);
            self.allowance.spend(now.elapsed());
        }
    }

    /// Notes the processes of stacks that were walked without tables.
    pub(super) fn meet(&mut self, stacks: &[(Stack, Count)]) {
        if matches!(self.wanted, Wanted::Nobody) {
            return;
        }
        for (stack, _) in stacks.iter().filter(|(stack, _)| !stack.user.is_empty()) {
            let tgid = stack.key.process.tgid;
            if !self.store.knows(tgid) {
                self.running.insert(tgid);
            }
        }
    }

    /// Loads what is missing, until a time; what is left comes with the next call.
    fn advance(&mut self, processes: &mut Processes, symbolizer: &mut Symbolizer, until: Instant) {
        self.due.append(&mut processes.take_touched());
        while let Some(tgid) = self.running.pop_first().or_else(|| self.next_due(processes)) {
            self.due.remove(&tgid);
            match processes.code(tgid) {
                Some(code) => self.load(tgid, code, symbolizer, until),
                None => self.store.remove(tgid),
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// What is loaded, in numbers.
    pub(super) fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// The next process that has changed and matters.
    fn next_due(&mut self, processes: &Processes) -> Option<u32> {
        loop {
            let next = self.due.range(self.last.saturating_add(1)..).next().or_else(|| self.due.first());
            let tgid = *next?;
            self.due.remove(&tgid);
            self.last = tgid;
            let wanted = match &self.wanted {
                Wanted::Nobody => false,
                Wanted::All => true,
                Wanted::These(tgids) => tgids.contains(&tgid),
                Wanted::Families(roots) => processes.descends(tgid, roots),
            };
            if self.store.knows(tgid) || (wanted && processes.is_alive(tgid)) {
                return Some(tgid);
            }
        }
    }

    /// When the time is over the process comes again for the tables that are not there yet.
    fn load(&mut self, tgid: u32, code: ProcessCode, symbolizer: &mut Symbolizer, until: Instant) {
        let ProcessCode { start_code, end_code, start_stack, ranges } = code;
        let mut tables: Vec<Option<TableKey>> = Vec::with_capacity(ranges.len());
        for range in &ranges {
            let Some((id, file)) = file_of(range, symbolizer) else {
                tables.push(None);
                continue;
            };
            let mut key = self.known(id);
            if key.is_none() && Instant::now() >= until {
                self.due.insert(tgid);
            } else if key.is_none() {
                key = self.build(id, &file, symbolizer);
            }
            tables.push(key.flatten());
        }
        let range = |range: &CodeRange| {
            let CodeRange { start, end, offset, .. } = *range;
            Range { start, end, offset, table: 0 }
        };
        let space = Space {
            layout: Layout { start_code, end_code, start_stack },
            ranges: ranges.iter().map(range).collect(),
        };
        self.store.set(tgid, space, &tables);
    }

    /// The table of a file, if it was asked for and is still loaded; none of none if the file has none.
    fn known(&self, id: FileId) -> Option<Option<TableKey>> {
        let known = *self.tables.get(&id)?;
        known.is_none_or(|key| self.store.has(key)).then_some(known)
    }

    /// Has the table of a file built and loads it.
    fn build(
        &mut self,
        id: FileId,
        file: &FileHandle,
        symbolizer: &mut Symbolizer,
    ) -> Option<Option<TableKey>> {
        let key = match symbolizer.unwind_table(file) {
            Ok(table) => Some(self.store.load(&table)?),
            Err(NoTable::Unavailable) => return None,
            Err(_) => None,
        };
        if self.tables.len() >= MAX_FILES {
            self.tables.retain(|_, key| key.is_some_and(|key| self.store.has(key)));
        }
        self.tables.insert(id, key);
        Some(key)
    }
}

fn file_of(range: &CodeRange, symbolizer: &Symbolizer) -> Option<(FileId, FileHandle)> {
    match &range.code {
        Code::File(file) => Some((file.id, FileHandle::Mapped(Arc::clone(file)))),
        Code::Vdso => symbolizer.vdso(),
    }
}
