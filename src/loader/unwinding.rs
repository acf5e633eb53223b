//! Keeps the walker's unwind tables up to date: of each process that may be sampled, what it has mapped, and the tables
//! of that code.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crowded::Crowded;
use super::file_tables::{FileTables, TableAt, TabledRange};
use super::left_by_fp::end_at;
use super::missing::{LAST_PAUSE, Missing};
use super::moved::find_moved;
use super::replaced::Replaced;
use crate::capture::UnwindMemory;
use crate::limits::{Limit, LimitsMet};
use crate::plan::allowance::TimeAllowance;
use crate::process::{
    CodeRange, CodeSource, CoveredCode, FileId, MappedFile, MappedLocation, ProcessCode, Processes, Vdso,
};
use crate::sample::{Count, MonoNs, Stack, StopReason, UserWord};
use crate::symbolize::{FileHandle, NoTable, Symbolizer};
use crate::targets::WalkScope;
use crate::targets::groups::Groups;
use crate::unwind::{
    self, CodeHeap, HotSpot, ProgramLayout, Range, Rule, Space, TableBudget, TableKey, TableMemory,
    TablePart, TableStore, Usage,
};

/// Loading takes one part of the time in so many in the long run; what is left over is kept up to this.
const PART: u32 = 10;
const MOST_SAVED: Duration = Duration::from_secs(1);
/// How long it may hold up the start, and each beat after it.
const AT_START: Duration = Duration::from_secs(3);
const AT_BEAT: Duration = Duration::from_millis(100);
/// Files whose tables are remembered by their numbers: containers have many of one content.
const MAX_FILES: usize = 16_384;
/// Rules that are remembered.
const MAX_RULES: usize = 1 << 16;

/// Where tables come from.
pub(crate) trait TableSource {
    /// A vdso, as a file.
    fn vdso(&self, vdso: Vdso) -> Option<(FileId, FileHandle)>;

    /// The table of a file, or of a part of it around an offset.
    ///
    /// # Errors
    /// Why there is none.
    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable>;
}

impl TableSource for Symbolizer {
    fn vdso(&self, vdso: Vdso) -> Option<(FileId, FileHandle)> {
        Symbolizer::vdso(self, vdso)
    }

    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        self.unwind_table(file, around)
    }
}

/// What is loaded, and what is still to be.
pub(crate) struct Unwinding<M: TableMemory = UnwindMemory> {
    store: TableStore<M>,
    wanted: WalkScope,
    /// The tables of files that were asked for.
    tables: HashMap<FileId, FileTables>,
    /// What was asked of tables lately.
    rules: HashMap<(TableKey, u64), Rule>,
    /// JVMs, and what fork keeps and exec changes of the process that was one.
    jvms: HashMap<u32, (HotSpot, Option<ProgramLayout>)>,
    /// Processes to look at, those that run first.
    running: BTreeSet<u32>,
    due: BTreeSet<u32>,
    /// Processes whose stacks were walked without a table that is there now.
    late: BTreeSet<u32>,
    /// The last one of them that was: they take turns.
    last: u32,
    /// A process that maps one file after the other must not keep us busy.
    allowance: TimeAllowance,
    missing: Missing,
    replaced: Replaced,
    crowded: Crowded,
    limits: LimitsMet,
}

impl<M: TableMemory> Unwinding<M> {
    /// Nothing is loaded yet.
    pub(crate) fn new(memory: M, wanted: WalkScope) -> Unwinding<M> {
        Unwinding {
            store: TableStore::new(memory, TableBudget::default()),
            wanted,
            tables: HashMap::new(),
            rules: HashMap::new(),
            jvms: HashMap::new(),
            running: BTreeSet::new(),
            due: BTreeSet::new(),
            late: BTreeSet::new(),
            last: 0,
            allowance: TimeAllowance::new(PART, MOST_SAVED, Instant::now()),
            missing: Missing::default(),
            replaced: Replaced::default(),
            crowded: Crowded::default(),
            limits: LimitsMet::default(),
        }
    }

    /// Loads what is needed before the first tick.
    pub(crate) fn begin(&mut self, processes: &mut Processes, groups: &Groups, tables: &mut dyn TableSource) {
        self.note_changes(processes, Instant::now());
        self.advance(processes, groups, tables, Instant::now() + AT_START);
    }

    /// Whether something is still to be loaded.
    pub(crate) fn has_work(&self) -> bool {
        !(self.running.is_empty() && self.due.is_empty())
    }

    /// Loads some of what is missing.
    pub(crate) fn load_some(
        &mut self,
        processes: &mut Processes,
        groups: &Groups,
        tables: &mut dyn TableSource,
    ) {
        let now = Instant::now();
        self.note_changes(processes, now);
        let allowed = self.allowance.now(now).min(AT_BEAT);
        if !allowed.is_zero() {
            self.advance(processes, groups, tables, now + allowed);
            self.allowance.spend(now.elapsed());
        }
    }

    /// Notes which processes are to be looked at.
    fn note_changes(&mut self, processes: &mut Processes, now: Instant) {
        self.due.append(&mut processes.take_touched());
        self.due.extend(self.missing.take_due(now));
        // A fork is walked by what its parent has mapped until it is told of.
        for code in processes.take_covered() {
            if [code.tgid, code.parent].iter().any(|&tgid| self.store.covers(tgid, code.start, code.end)) {
                // Code that was moved into memory of no file, to the same place, was walked by the right table.
                let others = processes.not_restored(&code);
                others
                    .iter()
                    .for_each(|&(start, end)| self.replaced.add(&CoveredCode { start, end, ..code }));
            }
        }
    }

    /// Notes what the stacks of JVMs are walked by. That is there at once: it takes little time, and that of their
    /// libraries' tables may be owed for long.
    pub(crate) fn describe(
        &mut self,
        jvms: Vec<(u32, HotSpot)>,
        processes: &mut Processes,
        tables: &mut dyn TableSource,
    ) {
        let begun = Instant::now();
        for (tgid, jvm) in jvms {
            self.jvms.insert(tgid, (jvm, None));
            if let Some(code) = processes.code(tgid) {
                self.load(tgid, code, tables, Instant::now());
            }
            self.running.insert(tgid);
        }
        self.allowance.spend(begun.elapsed());
    }

    /// Notes the processes of a window's stacks that were walked without tables, and ends those stacks where a file's table,
    /// which came too late for the walk, says that the frame pointer that was followed is none, or that was not the table
    /// of what is there. `end` is the window's.
    pub(crate) fn on_stacks(
        &mut self,
        stacks: &mut [(Stack, Count)],
        end: MonoNs,
        processes: &mut Processes,
        tables: &mut dyn TableSource,
    ) {
        if matches!(self.wanted, WalkScope::Nobody) {
            return;
        }
        self.note_changes(processes, Instant::now());
        find_moved(stacks, processes, |tgid| self.jvms.contains_key(&tgid));
        let in_parts = self.tables.values().any(FileTables::has_more);
        for (stack, _) in stacks.iter_mut().filter(|(stack, _)| !stack.user.is_empty()) {
            let (id, at) = (stack.key.process, stack.at);
            let parent = || processes.info(id, at).map(|process| process.parent);
            let cut = self.replaced.cut(stack, parent);
            let missed = self.crowded.note(id.tgid, stack.user.iter().filter_map(|word| word.probe()));
            if cut || missed || !self.store.knows(id.tgid) {
                self.running.insert(id.tgid);
            }
            if stack.user.iter().any(|word| matches!(word, UserWord::Followed(_))) {
                self.examine(stack, processes, tables);
            }
            if in_parts && stack.end == StopReason::NoTable {
                self.ask_for_part(stack, processes, tables);
            }
        }
        // At once: their tables are there, and the time that those took may be owed for long.
        for tgid in std::mem::take(&mut self.late) {
            if let Some(code) = processes.code(tgid) {
                self.load(tgid, code, tables, Instant::now());
            }
        }
        self.replaced.retire(end);
    }

    /// Has the table built of that part of a file in whose code a stack ended.
    fn ask_for_part(&mut self, stack: &Stack, processes: &mut Processes, tables: &mut dyn TableSource) {
        let (id, at) = (stack.key.process, stack.at);
        let Some(left) = stack.user.last().and_then(|word| word.probe()) else { return };
        let MappedLocation::File { file, offset } = processes.locate(id, at, left) else { return };
        if self.tables.get(&file.id).is_some_and(FileTables::has_more) {
            self.rule(id.tgid, &file, offset, tables);
        }
    }

    fn examine(&mut self, stack: &mut Stack, processes: &mut Processes, tables: &mut dyn TableSource) {
        let (id, at) = (stack.key.process, stack.at);
        for next in 1..stack.user.len() {
            let UserWord::Followed(pc) = stack.user[next] else { continue };
            let Some(left) = stack.user[next - 1].probe() else { continue };
            let MappedLocation::File { file, offset } = processes.locate(id, at, left) else { continue };
            let probe = pc.saturating_sub(1);
            let leaf = next == 1 && !matches!(processes.locate(id, at, probe), MappedLocation::Unknown(_));
            if let Some(end) = end_at(self.rule(id.tgid, &file, offset, tables), leaf) {
                stack.user.truncate(next);
                stack.end = end;
                break;
            }
        }
    }

    /// What holds at an offset of a file of a process, as far as it is known or there is time to find it out. The process was
    /// walked without it.
    fn rule(&mut self, tgid: u32, file: &Arc<MappedFile>, offset: u64, tables: &mut dyn TableSource) -> Rule {
        let now = Instant::now();
        let may_build = !self.allowance.now(now).is_zero();
        let mut known = self.known(file.id);
        // A part that is there may have been built for another process.
        let is_late = known.as_ref().is_none_or(FileTables::has_more);
        if known.is_none() && may_build {
            known = self.build(file.id, &FileHandle::Mapped(Arc::clone(file)), tables);
        }
        let at = |known: &Option<FileTables>| known.as_ref().map(|known| known.at(offset));
        if at(&known) == Some(TableAt::Unbuilt) && may_build {
            self.build_part(file, offset, tables);
            known = self.known(file.id);
        }
        self.allowance.spend(now.elapsed());
        let Some(TableAt::Loaded(key)) = at(&known) else { return Rule::None };
        if is_late {
            self.late.insert(tgid);
        }
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        *self.rules.entry((key, offset)).or_insert_with(|| self.store.rule(key, offset))
    }

    /// Loads what is missing, until a time; what is left comes with the next call.
    fn advance(
        &mut self,
        processes: &mut Processes,
        groups: &Groups,
        tables: &mut dyn TableSource,
        until: Instant,
    ) {
        while let Some(tgid) = self.running.pop_first().or_else(|| self.next_due(processes, groups)) {
            self.due.remove(&tgid);
            match processes.code(tgid) {
                Some(code) => self.load(tgid, code, tables, until),
                None => self.drop_ended(tgid),
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    fn drop_ended(&mut self, tgid: u32) {
        self.store.remove(tgid);
        self.jvms.remove(&tgid);
        self.missing.wait(tgid, None);
        self.crowded.remove(tgid);
        // Its last stacks are still to be met.
        self.replaced.mark_loaded(tgid, MonoNs::now());
    }

    /// Gives back what no process needs now.
    pub(crate) fn release_memory(&mut self) {
        self.rules.clear();
        self.rules.shrink_to_fit();
        self.store.release_memory();
    }

    /// What there was no room for.
    pub(crate) fn limits(&self) -> LimitsMet {
        let mut met = self.limits.clone();
        met.note(Limit::UnwindTables, "", self.store.usage().refused);
        self.crowded.limits(&mut met);
        met
    }

    /// What is loaded, in numbers.
    pub(crate) fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// The next process that has changed and matters.
    fn next_due(&mut self, processes: &Processes, groups: &Groups) -> Option<u32> {
        loop {
            let next = self.due.range(self.last.saturating_add(1)..).next().or_else(|| self.due.first());
            let tgid = *next?;
            self.due.remove(&tgid);
            self.last = tgid;
            let wanted = self.wanted.includes(tgid, processes, groups);
            if self.store.knows(tgid) || (wanted && processes.is_alive(tgid)) {
                return Some(tgid);
            }
            self.replaced.mark_loaded(tgid, MonoNs::now());
        }
    }

    /// When the time is over the process comes again for the tables that are not there yet; for those that could not be had
    /// it does later.
    fn load(&mut self, tgid: u32, code: ProcessCode, tables: &mut dyn TableSource, until: Instant) {
        let ProcessCode { start_code, end_code, start_stack, ranges } = code;
        let mut tabled: Vec<TabledRange> = Vec::with_capacity(ranges.len());
        let mut again: Option<Instant> = None;
        for range in &ranges {
            let Some((id, file)) = file_of(range, tables) else {
                tabled.extend(FileTables::none().cut(range));
                continue;
            };
            let (now, mut known) = (Instant::now(), self.known(id));
            if known.is_none() && now >= until {
                self.due.insert(tgid);
            } else if known.is_none() {
                known = self.build(id, &file, tables);
                again = again.into_iter().chain(self.missing.until(id, now)).min();
            }
            tabled.extend(known.unwrap_or_default().cut(range));
        }
        let layout = ProgramLayout { start_code, end_code, start_stack };
        let mut keys: Vec<Option<TableKey>> = tabled.iter().map(|tabled| tabled.key).collect();
        let mut ranges: Vec<Range> = tabled.into_iter().map(|tabled| tabled.range).collect();
        if !self.add_heaps(tgid, layout, &mut ranges, &mut keys) {
            again = again.or(Some(Instant::now() + LAST_PAUSE));
        }
        self.missing.wait(tgid, again);
        self.crowded.thin(tgid, &mut ranges, &mut keys);
        self.store.set(tgid, Space { layout, ranges }, &keys);
        self.replaced.mark_loaded(tgid, MonoNs::now());
    }

    /// Adds the code heaps of a JVM to what it has mapped. Whether there was room.
    fn add_heaps(
        &mut self,
        tgid: u32,
        layout: ProgramLayout,
        ranges: &mut Vec<Range>,
        tables: &mut Vec<Option<TableKey>>,
    ) -> bool {
        let Some((jvm, its_layout)) = self.jvms.get_mut(&tgid) else { return true };
        if *its_layout.get_or_insert(layout) != layout {
            self.jvms.remove(&tgid);
            return true;
        }
        let Some(vm) = self.store.load_vm(jvm) else { return false };
        for CodeHeap { span: (start, end), segment_map } in &jvm.heaps {
            let at = ranges.partition_point(|range| range.end <= *start);
            // It is what the JVM says; where a file is mapped it is wrong.
            if ranges.get(at).is_none_or(|next| *end <= next.start) {
                let code = unwind::Code::Heap(*segment_map);
                ranges.insert(at, Range { start: *start, end: *end, code, table: 0 });
                tables.insert(at, Some(vm));
            }
        }
        true
    }

    /// The tables of a file, if they were asked for and are still loaded.
    fn known(&mut self, id: FileId) -> Option<FileTables> {
        let tables = self.tables.get_mut(&id)?;
        tables.retain(|key| self.store.has(key)).then(|| tables.clone())
    }

    /// Has the table of a file built and loads it, unless that was tried in vain not long ago.
    fn build(&mut self, id: FileId, file: &FileHandle, tables: &mut dyn TableSource) -> Option<FileTables> {
        let now = Instant::now();
        if self.missing.until(id, now).is_some() {
            return None;
        }
        let built = match tables.table(file, None) {
            Ok(part) => self.store.load(&part.table).map(|key| FileTables::one(&part, key, now)),
            Err(NoTable::Unavailable) => None,
            Err(NoTable::TooLarge) => Some(FileTables::in_parts()),
            Err(_) => Some(FileTables::none()),
        };
        let Some(built) = built else {
            self.missing.add(id, now);
            return None;
        };
        self.missing.remove(id);
        if self.tables.len() >= MAX_FILES {
            self.tables.retain(|_, tables| tables.retain(|key| self.store.has(key)) && tables.has_table());
        }
        self.tables.insert(id, built.clone());
        Some(built)
    }

    /// The same for the part of a large file that has the code at `offset`.
    fn build_part(&mut self, file: &Arc<MappedFile>, offset: u64, tables: &mut dyn TableSource) {
        let now = Instant::now();
        let Some(known) = self.tables.get_mut(&file.id) else { return };
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
            Some(Err(_)) => known.end(),
            None => {}
        }
        known.refused += 1;
        self.limits.note(Limit::UnwindTableParts, &file.path.to_string_lossy(), known.refused);
    }
}

fn file_of(range: &CodeRange, tables: &dyn TableSource) -> Option<(FileId, FileHandle)> {
    match &range.code {
        CodeSource::File(file) => Some((file.id, FileHandle::Mapped(Arc::clone(file)))),
        CodeSource::Vdso(vdso) => tables.vdso(*vdso),
    }
}

#[cfg(test)]
#[path = "unwinding_tests.rs"]
mod tests;
