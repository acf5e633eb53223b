//! Keeps the unwinder's data up to date: for each process that may be sampled, its address space and the unwind tables
//! of its code.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::file_tables::{FileTables, TableAt, TabledRange};
use super::loaded_tables::LoadedTables;
use super::moved::find_moved;
use super::range_limit::RangeLimit;
use super::replaced::ReplacedCode;
use super::table_retries::LAST_PAUSE;
use super::table_source::{TableSource, file_of};
use super::unfinished::UnfinishedUnwinder;
use super::wrong_fp_step::stop_reason_after;
use crate::capture::UnwindMemory;
use crate::limits::ReachedLimits;
use crate::plan::allowance::TimeAllowance;
use crate::process::{CodeRange, CoveredCode, FileId, MappedFile, MappedLocation, ProcessCode, Processes};
use crate::sample::{CountedStack, MonoNs, Stack, StopReason, UserWord};
use crate::symbolize::{FileHandle, IdentifiedFile, Symbolizer};
use crate::targets::WalkScope;
use crate::targets::groups::Groups;
use crate::unwind::{
    CodeHeap, CodeSpan, HotSpotUnwindInfo, ProgramLayout, RangeCode, Rule, Space, TableKey, TableMemory,
    UnwindRange, Usage,
};

/// Loading may take one part in this many of all time in the long run; unused time is saved up to `MAX_SAVED`.
const SHARE_DIVISOR: u32 = 10;
const MAX_SAVED: Duration = Duration::from_secs(1);
/// The same for processes that need no new table, once the time above is spent.
const KNOWN_SHARE_DIVISOR: u32 = 20;
const MAX_SAVED_KNOWN: Duration = Duration::from_millis(100);
/// How long loading may delay the start of sampling, and each `load_some` after that.
const AT_START: Duration = Duration::from_secs(3);
const PER_CALL: Duration = Duration::from_millis(100);

/// The loader of unwind tables: the loaded tables, and the queues of processes to load.
pub(crate) struct TableLoader<M: TableMemory = UnwindMemory> {
    loaded: LoadedTables<M>,
    wanted: WalkScope,
    /// JVMs, and the layout that identifies the JVM's program: exec changes the layout.
    jvms: HashMap<u32, (HotSpotUnwindInfo, Option<ProgramLayout>)>,
    /// Processes to load: those with samples first, then those in `due`.
    running: BTreeSet<u32>,
    due: BTreeSet<u32>,
    /// Processes with stacks that were unwound without a table that is loaded now.
    late: BTreeSet<u32>,
    /// The last process taken from `due`: they take turns.
    last: u32,
    /// Limits the time for loading: a process that maps file after file must not keep us busy.
    allowance: TimeAllowance,
    /// Limits the time for processes that need no new table: they do not wait while others' tables are paid off.
    known_allowance: TimeAllowance,
    /// Queued processes that need a new table. Neither they nor the tables have changed since they were looked at.
    without_tables: BTreeSet<u32>,
    replaced: ReplacedCode,
    crowded: RangeLimit,
    outside: UnfinishedUnwinder,
}

impl<M: TableMemory> TableLoader<M> {
    pub(crate) fn new(memory: M, wanted: WalkScope) -> TableLoader<M> {
        TableLoader {
            loaded: LoadedTables::new(memory),
            wanted,
            jvms: HashMap::new(),
            running: BTreeSet::new(),
            due: BTreeSet::new(),
            late: BTreeSet::new(),
            last: 0,
            allowance: TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now()),
            known_allowance: TimeAllowance::new(KNOWN_SHARE_DIVISOR, MAX_SAVED_KNOWN, Instant::now()),
            without_tables: BTreeSet::new(),
            replaced: ReplacedCode::default(),
            crowded: RangeLimit::default(),
            outside: UnfinishedUnwinder::default(),
        }
    }

    /// Loads the first tables, before sampling begins.
    pub(crate) fn begin(&mut self, processes: &mut Processes, groups: &Groups, tables: &mut dyn TableSource) {
        let deadline = Instant::now() + AT_START;
        self.note_changes(processes, Instant::now());
        for (tgid, code) in self.loadable_by_size(processes, groups) {
            self.due.remove(&tgid);
            self.load(tgid, code, tables, deadline);
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// The queued processes that may be loaded, those with the least code first: if time runs out, as many as possible
    /// have their tables.
    fn loadable_by_size(&self, processes: &mut Processes, groups: &Groups) -> Vec<(u32, ProcessCode)> {
        let mut queued = Vec::new();
        for &tgid in &self.due {
            if self.is_loadable(tgid, processes, groups)
                && let Some(code) = processes.code(tgid)
            {
                queued.push((tgid, code));
            }
        }
        queued.sort_by_key(|(_, code)| code.ranges.iter().map(CodeRange::size).sum::<u64>());
        queued
    }

    pub(crate) fn has_work(&self) -> bool {
        !(self.running.is_empty() && self.due.is_empty())
    }

    /// Loads queued processes, as long as the allowance permits; after that, those that need no new table.
    pub(crate) fn load_some(
        &mut self,
        processes: &mut Processes,
        groups: &Groups,
        tables: &mut dyn TableSource,
    ) {
        let now = Instant::now();
        self.note_changes(processes, now);
        let allowed = self.allowance.now(now).min(PER_CALL);
        if !allowed.is_zero() {
            self.advance(processes, groups, tables, now + allowed);
            self.allowance.spend(now.elapsed());
            return;
        }
        let allowed = self.known_allowance.now(now);
        if !allowed.is_zero() {
            self.advance_known(processes, groups, tables, now + allowed);
            self.known_allowance.spend(now.elapsed());
        }
    }

    /// Loads the queued processes that need no new table, until a time; all others stay queued as they are.
    fn advance_known(
        &mut self,
        processes: &mut Processes,
        groups: &Groups,
        tables: &mut dyn TableSource,
        deadline: Instant,
    ) {
        let queued: Vec<u32> = self.running.iter().chain(&self.due).copied().collect();
        for tgid in queued {
            let may_load = self.running.contains(&tgid) || self.is_loadable(tgid, processes, groups);
            if !may_load || self.without_tables.contains(&tgid) {
                continue;
            }
            match processes.code(tgid) {
                Some(code) if self.has_all_tables(&code, tables) => {
                    self.running.remove(&tgid);
                    self.due.remove(&tgid);
                    self.load(tgid, code, tables, deadline);
                }
                Some(_) => drop(self.without_tables.insert(tgid)),
                None => {}
            }
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Whether the tables of all files of a process are loaded.
    fn has_all_tables(&mut self, code: &ProcessCode, tables: &dyn TableSource) -> bool {
        code.ranges
            .iter()
            .filter_map(|range| file_of(range, tables))
            .all(|file| self.loaded.is_known(file.id))
    }

    /// Queues the processes that changed or are due for a retry, and notes replaced code.
    fn note_changes(&mut self, processes: &mut Processes, now: Instant) {
        let mut touched = processes.take_changed_processes();
        self.without_tables.retain(|tgid| !touched.contains(tgid));
        self.due.append(&mut touched);
        self.due.extend(self.loaded.missing.take_due(now));
        // A fork is unwound by its parent's address space until its own is loaded.
        for code in processes.take_covered() {
            if [code.tgid, code.parent]
                .iter()
                .any(|&tgid| self.loaded.store.covers(tgid, code.start, code.end))
            {
                // Code that a program moved to anonymous memory at the same addresses still has the right table.
                for Range { start, end } in processes.unrestored_ranges(&code) {
                    self.replaced.add(&CoveredCode { start, end, ..code });
                }
            }
        }
    }

    /// Loads the descriptions of JVMs immediately: they are small, while loading the unwind tables of the JVMs'
    /// libraries may have to wait for the allowance.
    pub(crate) fn describe(
        &mut self,
        jvms: Vec<(u32, HotSpotUnwindInfo)>,
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

    /// Unwinds the stacks of threads that are still waiting.
    pub(crate) fn unwind_outside(
        &mut self,
        stacks: &mut [CountedStack],
        processes: &mut Processes,
        symbolizer: &mut Symbolizer,
    ) {
        self.outside.unwind(stacks, &self.loaded.store, processes, symbolizer);
    }

    /// Queues the processes of a window's stacks that were unwound without tables, and cuts wrong stacks. A stack is
    /// wrong where a file's table, which came too late for the unwinder, shows that the frame pointer was invalid, or
    /// where the unwinder used the table of replaced code. The next windows have no stacks from before `next_from`.
    pub(crate) fn on_stacks(
        &mut self,
        stacks: &mut [CountedStack],
        next_from: MonoNs,
        processes: &mut Processes,
        tables: &mut dyn TableSource,
    ) {
        if matches!(self.wanted, WalkScope::None) {
            return;
        }
        self.note_changes(processes, Instant::now());
        find_moved(stacks, processes, |tgid| self.jvms.contains_key(&tgid));
        let in_parts = self.loaded.has_files_in_parts();
        for CountedStack { stack, .. } in stacks.iter_mut().filter(|one| !one.stack.user.is_empty()) {
            let (id, at) = (stack.key.process, stack.at);
            let parent = || processes.info(id, at).map(|process| process.parent);
            let cut = self.replaced.cut(stack, parent);
            let missed = self.crowded.note(id.tgid, stack.user.iter().filter_map(|word| word.lookup_pc()));
            if cut || missed || !self.loaded.store.is_space_loaded(id.tgid) {
                self.running.insert(id.tgid);
            }
            if stack.user.iter().any(|word| matches!(word, UserWord::Followed(_))) {
                self.examine(stack, processes, tables);
            }
            if in_parts && stack.stop_reason == StopReason::NoTable {
                self.ask_for_part(stack, processes, tables);
            }
        }
        // Without waiting for the allowance: the tables of these processes are loaded already.
        for tgid in std::mem::take(&mut self.late) {
            if let Some(code) = processes.code(tgid) {
                self.load(tgid, code, tables, Instant::now());
            }
        }
        self.replaced.retire(next_from);
    }

    /// Builds the table for the part of a large file in whose code a stack ended.
    fn ask_for_part(&mut self, stack: &Stack, processes: &mut Processes, tables: &mut dyn TableSource) {
        let (id, at) = (stack.key.process, stack.at);
        let Some(left) = stack.user.last().and_then(|word| word.lookup_pc()) else { return };
        let MappedLocation::File { file, offset } = processes.locate(id, at, left) else { return };
        if self.loaded.has_more(file.id) {
            self.rule(id.tgid, &file, offset, tables);
        }
    }

    fn examine(&mut self, stack: &mut Stack, processes: &mut Processes, tables: &mut dyn TableSource) {
        let (id, at) = (stack.key.process, stack.at);
        for next in 1..stack.user.len() {
            let UserWord::Followed(pc) = stack.user[next] else { continue };
            let Some(left) = stack.user[next - 1].lookup_pc() else { continue };
            let MappedLocation::File { file, offset } = processes.locate(id, at, left) else { continue };
            let probe = pc.saturating_sub(1);
            let leaf = next == 1
                && stack.user[next] != UserWord::UNCONFIRMED_ROOT
                && !matches!(processes.locate(id, at, probe), MappedLocation::Unknown(_));
            let stop_reason = match self.rule(id.tgid, &file, offset, tables) {
                Some(rule) => stop_reason_after(rule, leaf),
                None => Some(StopReason::NoTable),
            };
            if let Some(stop_reason) = stop_reason {
                stack.user.truncate(next);
                stack.stop_reason = stop_reason;
                break;
            }
        }
        stack.user.pop_if(|word| *word == UserWord::UNCONFIRMED_ROOT);
    }

    /// The rule at an offset of a file, for a stack of a process that was unwound without it: [`Rule::None`] if the file has
    /// none. Builds the table if it is missing; `None` if the allowance does not permit that now.
    fn rule(
        &mut self,
        tgid: u32,
        file: &Arc<MappedFile>,
        offset: u64,
        tables: &mut dyn TableSource,
    ) -> Option<Rule> {
        let now = Instant::now();
        let may_build = !self.allowance.now(now).is_zero();
        let mut known = self.loaded.known(file.id);
        // A loaded part may have been built for another process.
        let is_late = known.as_ref().is_none_or(FileTables::has_more);
        if known.is_none() && may_build {
            known = self.build(file.id, &FileHandle::Mapped(Arc::clone(file)), tables);
        }
        let at = |known: &Option<FileTables>| known.as_ref().map(|known| known.at(offset));
        if at(&known) == Some(TableAt::Unbuilt) && may_build {
            self.loaded.build_part(file, offset, tables);
            known = self.loaded.known(file.id);
        }
        self.allowance.spend(now.elapsed());
        let key = match at(&known) {
            Some(TableAt::Loaded(key)) => key,
            None | Some(TableAt::Unbuilt) if !may_build => return None,
            None | Some(TableAt::Unbuilt | TableAt::Never) => return Some(Rule::None),
        };
        if is_late {
            self.late.insert(tgid);
        }
        Some(self.loaded.rule(key, offset))
    }

    /// Loads queued processes until a time; the others wait for the next call.
    fn advance(
        &mut self,
        processes: &mut Processes,
        groups: &Groups,
        tables: &mut dyn TableSource,
        deadline: Instant,
    ) {
        while let Some(tgid) = self.running.pop_first().or_else(|| self.next_due(processes, groups)) {
            self.due.remove(&tgid);
            match processes.code(tgid) {
                Some(code) => self.load(tgid, code, tables, deadline),
                None => self.drop_ended(tgid),
            }
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    fn drop_ended(&mut self, tgid: u32) {
        self.loaded.store.remove(tgid);
        self.jvms.remove(&tgid);
        self.loaded.missing.wait(tgid, None);
        self.crowded.remove(tgid);
        // Stacks of the process may still arrive, so its places stay in `replaced` for now.
        self.replaced.mark_loaded(tgid, MonoNs::now());
    }

    /// Evicts all tables that no process needs.
    pub(crate) fn release_memory(&mut self) {
        self.loaded.release_memory();
    }

    /// The limits that were reached.
    pub(crate) fn limits(&self) -> ReachedLimits {
        let mut reached = self.loaded.limits();
        self.crowded.limits(&mut reached);
        reached
    }

    pub(crate) fn usage(&self) -> Usage {
        self.loaded.store.usage()
    }

    /// The next process in `due` that is loaded already, or is wanted and alive.
    fn next_due(&mut self, processes: &Processes, groups: &Groups) -> Option<u32> {
        loop {
            let next = self.due.range(self.last.saturating_add(1)..).next().or_else(|| self.due.first());
            let tgid = *next?;
            self.due.remove(&tgid);
            self.last = tgid;
            if self.is_loadable(tgid, processes, groups) {
                return Some(tgid);
            }
            self.replaced.mark_loaded(tgid, MonoNs::now());
        }
    }

    /// Whether a process is loaded already, or is wanted and alive.
    fn is_loadable(&self, tgid: u32, processes: &Processes, groups: &Groups) -> bool {
        let wanted = self.wanted.includes(tgid, processes, groups);
        self.loaded.store.is_space_loaded(tgid) || (wanted && processes.is_alive(tgid))
    }

    /// Loads a process. If tables are missing after `deadline`, the process is queued again; for tables that are
    /// unavailable, it is queued after a backoff.
    fn load(&mut self, tgid: u32, code: ProcessCode, tables: &mut dyn TableSource, deadline: Instant) {
        let ProcessCode { start_code, end_code, start_stack, ranges } = code;
        let mut again = self.build_missing(tgid, &ranges, tables, deadline);
        let mut tabled: Vec<TabledRange> = Vec::with_capacity(ranges.len());
        for range in &ranges {
            let known = file_of(range, tables).and_then(|file| self.loaded.known(file.id));
            tabled.extend(known.unwrap_or_else(FileTables::none).cut(range));
        }
        let layout = ProgramLayout { start_code, end_code, start_stack };
        let mut keys: Vec<Option<TableKey>> = tabled.iter().map(|tabled| tabled.key).collect();
        let mut ranges: Vec<UnwindRange> = tabled.into_iter().map(|tabled| tabled.range).collect();
        if !self.add_heaps(tgid, layout, &mut ranges, &mut keys) {
            again = again.or(Some(Instant::now() + LAST_PAUSE));
        }
        self.loaded.missing.wait(tgid, again);
        self.crowded.limit_ranges(tgid, &mut ranges, &mut keys);
        self.loaded.store.load_space(tgid, Space { layout, ranges }, &keys);
        self.replaced.mark_loaded(tgid, MonoNs::now());
    }

    /// Builds the missing tables of a process's files, small files first. After `deadline` it queues the process again
    /// instead. Returns when to try again, if tables are unavailable.
    fn build_missing(
        &mut self,
        tgid: u32,
        ranges: &[CodeRange],
        tables: &mut dyn TableSource,
        deadline: Instant,
    ) -> Option<Instant> {
        let mut missing: Vec<(u64, FileId, FileHandle)> = Vec::new();
        for range in ranges {
            if let Some(IdentifiedFile { id, handle: file }) = file_of(range, tables)
                && !self.loaded.is_known(id)
            {
                missing.push((range.size(), id, file));
            }
        }
        missing.sort_by_key(|(size, ..)| *size);
        let mut again: Option<Instant> = None;
        for (_, id, file) in missing {
            let now = Instant::now();
            // Several ranges may be of one file.
            if self.loaded.is_known(id) {
                continue;
            }
            if now >= deadline {
                self.due.insert(tgid);
                break;
            }
            self.build(id, &file, tables);
            again = again.into_iter().chain(self.loaded.missing.until(id, now)).min();
        }
        again
    }

    /// Adds the code heaps of a JVM to the ranges of its process. Returns whether the JVM's description could be
    /// loaded.
    fn add_heaps(
        &mut self,
        tgid: u32,
        layout: ProgramLayout,
        ranges: &mut Vec<UnwindRange>,
        tables: &mut Vec<Option<TableKey>>,
    ) -> bool {
        let Some((jvm, its_layout)) = self.jvms.get_mut(&tgid) else { return true };
        if *its_layout.get_or_insert(layout) != layout {
            self.jvms.remove(&tgid);
            return true;
        }
        let Some(vm) = self.loaded.store.load_jvm(jvm) else { return false };
        for &CodeHeap { span: CodeSpan { start, end }, segment_map } in &jvm.heaps {
            let at = ranges.partition_point(|range| range.end <= start);
            // The JVM's memory gives the addresses. They are wrong if a file is mapped there.
            if ranges.get(at).is_none_or(|next| end <= next.start) {
                let code = RangeCode::Heap(segment_map);
                ranges.insert(at, UnwindRange { start, end, code, table: 0 });
                tables.insert(at, Some(vm));
            }
        }
        true
    }

    /// Builds and loads the table of a file. Queued processes may need it.
    fn build(&mut self, id: FileId, file: &FileHandle, tables: &mut dyn TableSource) -> Option<FileTables> {
        let built = self.loaded.build(id, file, tables)?;
        self.without_tables.clear();
        Some(built)
    }
}

#[cfg(test)]
#[path = "table_loader_tests.rs"]
mod tests;
