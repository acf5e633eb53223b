//! All processes: which program each of them ran at which time.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::covered_code::CoveredCode;
use super::event::{EventKind, MmapRecord, ProcessEvent};
use super::files::FileTable;
use super::opener::OpenersCost;
use super::options::ProcessOptions;
use super::procfs;
use super::program::ProcessImage;
use super::reading;
use super::root::Roots;
use super::search_time::SearchTime;
use super::{ProcessRoot, TimedCalls};
use crate::limits::{Limit, ReachedLimits};
use crate::sample::{MonoNs, ProcessId};

/// Ended programs that are kept for their last stacks, at most. Those stacks have their names within two seconds, or
/// within seven if a JVM's log names them. At 2,000 programs a second, the last eight seconds are kept.
const MAX_ENDED: usize = 16_384;
/// How often to check which processes exist, ns. A process whose exit event was lost would keep its root and its files
/// open.
const SWEPT_EVERY: u64 = 60_000_000_000;

/// Which processes to read at the start.
#[derive(Clone, Debug)]
pub enum ScanScope<'a> {
    /// All processes that `/proc` lists.
    All,
    /// Only the processes with these thread group ids.
    Tgids(&'a [u32]),
}

/// What is known of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Thread group id in the initial pid namespace.
    pub tgid: u32,
    /// Thread group of the parent when the process was made or first seen.
    pub parent: u32,
    /// Name of the group leader: at most 15 bytes, of any value.
    pub comm: Arc<[u8]>,
    /// When this program began (fork or exec); 0 if it ran before the profiler.
    pub from: MonoNs,
    /// When all threads of the process had ended.
    pub exited: Option<MonoNs>,
}

/// How much the table keeps, and what it could not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTableCounts {
    /// Programs, ended ones included.
    pub programs: usize,
    /// Executable mappings; mappings that forked processes share count once.
    pub mappings: usize,
    /// Files that the mappings name.
    pub files: usize,
    /// Files whose descriptors the table holds open.
    pub open_files: usize,
    /// Ended programs that were evicted early because too many ended at once.
    pub forgotten: u64,
    /// Mappings that were not kept because there were too many.
    pub mappings_refused: u64,
    /// Side-band events that were lost.
    pub events_lost: u64,
    /// Calls that hang in the kernel now.
    pub stuck: usize,
}

/// The table of processes.
#[derive(Debug)]
pub struct Processes {
    pub(super) options: ProcessOptions,
    /// Programs in the order of time, by thread group id.
    pub(super) timelines: HashMap<u32, Vec<ProcessImage>>,
    /// Thread groups whose programs have ended, and when.
    ended: VecDeque<(MonoNs, u32)>,
    /// Processes with mappings that others have covered.
    changed: BTreeSet<u32>,
    /// Processes whose code may have changed since the last [`Processes::take_changed_processes`].
    pub(super) touched: BTreeSet<u32>,
    /// What the next [`Processes::take_covered`] returns.
    pub(super) covered: Vec<CoveredCode>,
    pub(super) files: FileTable,
    pub(super) roots: Roots,
    /// Our own root, in which a path is tried after the roots of the process and its ancestors.
    pub(super) own_root: Option<Arc<ProcessRoot>>,
    pub(super) timed_calls: TimedCalls,
    /// Time for searching anonymous memory for code of files.
    pub(super) search_time: SearchTime,
    /// When the profiler began: nothing is known of what happened before.
    pub(super) started: MonoNs,
    /// Length of a clock tick in `/proc/PID/stat`, ns.
    pub(super) tick: u64,
    /// Whether events were lost, so that a program may be missing.
    pub(super) unsure: bool,
    /// Whether events were lost since the last look at which processes exist.
    sweep: bool,
    /// When that look was.
    swept: MonoNs,
    pub(super) counts: ProcessTableCounts,
}

impl Processes {
    /// A table without processes, which [`Processes::scan`] and events fill.
    #[must_use]
    pub fn new(options: ProcessOptions) -> Processes {
        let mut roots = Roots::default();
        let own_root = roots.of(std::process::id()).ok().map(Arc::new);
        Processes {
            timelines: HashMap::new(),
            ended: VecDeque::new(),
            changed: BTreeSet::new(),
            touched: BTreeSet::new(),
            covered: Vec::new(),
            files: FileTable::new(&options),
            roots,
            own_root,
            timed_calls: TimedCalls::new(options.call_timeout),
            search_time: SearchTime::new(MonoNs::now()),
            started: MonoNs::now(),
            tick: procfs::clock_tick(),
            unsure: false,
            sweep: false,
            swept: MonoNs::now(),
            counts: ProcessTableCounts::default(),
            options,
        }
    }

    /// Reads the processes that exist. Call it after the side-band events have been enabled and before sampling starts.
    /// Returns how many were found.
    pub fn scan(&mut self, which: &ScanScope<'_>) -> usize {
        match which {
            ScanScope::All => {
                let all = reading::tgids().unwrap_or_else(|error| {
                    log::warn!("/proc cannot be read: {error}; processes are known when they run");
                    Vec::new()
                });
                all.into_iter().filter(|tgid| self.adopt(*tgid, MonoNs(0))).count()
            }
            ScanScope::Tgids(tgids) => tgids.iter().filter(|tgid| self.adopt(**tgid, MonoNs(0))).count(),
        }
    }

    /// Applies an event. Events must come in the order of their times.
    pub fn apply(&mut self, event: &ProcessEvent) {
        if let EventKind::Lost(n) = event.kind {
            self.counts.events_lost += n;
            self.unsure = true;
            self.sweep = true;
            return;
        }
        // The process is outside our pid namespace, or the idle task.
        if event.tgid == 0 || event.tgid > i32::MAX.cast_unsigned() {
            return;
        }
        let current = self.timelines.get_mut(&event.tgid).and_then(|line| line.last_mut());
        // The event is older than our look at the process in `/proc`, which has its effect already.
        if current.as_ref().is_some_and(|program| event.at < program.seen) {
            return;
        }
        match &event.kind {
            EventKind::Fork { parent } if event.is_leader() => self.fork(event, *parent),
            EventKind::Fork { .. } | EventKind::Exit => {
                if current.is_some_and(|program| program.is_alive() && program.update_threads(event)) {
                    self.note_end(event.at, event.tgid);
                }
            }
            EventKind::Comm { name, exec: true } => self.exec(event, name),
            EventKind::Comm { name, exec: false } => {
                if let Some(program) = current.filter(|_| event.is_leader()) {
                    program.comm = Arc::clone(name);
                }
            }
            EventKind::Mmap(mapped) => self.map(event, mapped),
            EventKind::Lost(_) => {}
        }
    }

    /// What is known of a program; `None` if it was never seen. `at` is the time of any of its samples.
    pub fn info(&mut self, id: ProcessId, at: MonoNs) -> Option<ProcessInfo> {
        let index = self.select(id, at)?;
        let program = self.program(id.tgid, index)?;
        Some(ProcessInfo {
            tgid: id.tgid,
            parent: program.parent,
            comm: Arc::clone(&program.comm),
            from: program.from,
            exited: program.until.filter(|_| program.exited),
        })
    }

    /// These processes, whether they exist or not, and their living descendants, each once. A descendant is missing if
    /// a process between it and the root has ended.
    #[must_use]
    pub fn descendants(&self, roots: &[u32]) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for program in self.timelines.values().filter_map(|line| line.last()).filter(|p| p.is_alive()) {
            children.entry(program.parent).or_default().push(program.tgid);
        }
        let mut found = BTreeSet::new();
        let mut waiting = roots.to_vec();
        while let Some(tgid) = waiting.pop() {
            if found.insert(tgid) {
                waiting.extend(children.remove(&tgid).unwrap_or_default());
            }
        }
        found.into_iter().collect()
    }

    /// Evicts programs that ended before `before`, and mappings that others covered before it. Call it once a window;
    /// it also counts what is kept.
    pub fn retire(&mut self, before: MonoNs) {
        let now = MonoNs::now();
        if std::mem::take(&mut self.sweep) || now.0.saturating_sub(self.swept.0) >= SWEPT_EVERY {
            self.swept = now;
            self.sweep_gone();
        }
        while let Some((_, tgid)) = self.ended.front().copied().filter(|(at, _)| *at < before) {
            self.ended.pop_front();
            self.forget(tgid, before);
        }
        for tgid in std::mem::take(&mut self.changed) {
            for program in self.timelines.get_mut(&tgid).into_iter().flatten() {
                Arc::make_mut(&mut program.maps).retire(before);
                if program.maps.has_past() {
                    self.changed.insert(tgid);
                }
            }
        }
        self.timelines.shrink_to(self.timelines.len() * 2);
        self.files.evict_unused();
        self.roots.evict_unused();
        let programs = self.timelines.values().flatten();
        // Forked processes share their mappings.
        self.counts.mappings = programs.map(|p| p.maps.len().div_ceil(Arc::strong_count(&p.maps))).sum();
    }

    /// How much the table keeps, and what it could not keep.
    #[must_use]
    pub fn counts(&self) -> ProcessTableCounts {
        let files = self.files.counts();
        let programs = self.timelines.values().map(Vec::len).sum();
        ProcessTableCounts {
            programs,
            files: files.named,
            open_files: files.open,
            stuck: self.timed_calls.stuck() + self.files.stuck(),
            ..self.counts
        }
    }

    /// What limits left out of the processes that are known now.
    #[must_use]
    pub fn limits(&self) -> ReachedLimits {
        let mut reached = ReachedLimits::default();
        reached.note(Limit::EndedPrograms, "", self.counts.forgotten);
        for program in self.timelines.values().flatten().filter(|program| program.refused > 0) {
            let name = String::from_utf8_lossy(&program.comm);
            reached.note(Limit::Mappings, &format!("{name} ({})", program.tgid), program.refused);
        }
        reached
    }

    /// What the processes that open files cost.
    #[must_use]
    pub fn openers_cost(&self) -> OpenersCost {
        self.files.openers_cost()
    }

    pub(super) fn program(&mut self, tgid: u32, index: usize) -> Option<&mut ProcessImage> {
        self.timelines.get_mut(&tgid)?.get_mut(index)
    }

    /// The program of its process that a sample belongs to, as an index.
    pub(super) fn select(&mut self, id: ProcessId, at: MonoNs) -> Option<usize> {
        if id.is_idle() {
            return None;
        }
        let ticks = id.start / self.tick;
        let line = self.timelines.get_mut(&id.tgid).map_or(&mut [][..], Vec::as_mut_slice);
        if let Some(index) = line.iter().rposition(|program| program.id == Some(id)) {
            return Some(index);
        }
        if let Some(index) = line.iter().rposition(|program| program.from <= at && program.may_be(id, ticks))
        {
            line[index].id = Some(id);
            line[index].exec = Some(id.exec);
            return Some(index);
        }
        let by_time = line.iter().rposition(|program| program.from <= at && program.may_start_at(ticks));
        // The beginning of the program was missed.
        if self.adopt(id.tgid, at) {
            let line = self.timelines.get_mut(&id.tgid)?;
            let program = line.last_mut().filter(|program| program.may_start_at(ticks))?;
            program.id = Some(id);
            program.exec = Some(id.exec);
            return Some(line.len() - 1);
        }
        // Within an exec, the name and the number of the program change one after the other.
        by_time.filter(|_| !self.unsure)
    }

    /// Adds a process that exists but is not known for certain. Returns whether it exists.
    pub(super) fn adopt(&mut self, tgid: u32, from: MonoNs) -> bool {
        let seen = MonoNs::now();
        let Some(stat) = procfs::stat(tgid) else { return false };
        let threads = if stat.threads > 1 { reading::thread_ids(tgid) } else { vec![tgid] };
        self.end(tgid, from, false);
        self.timelines
            .entry(tgid)
            .or_default()
            .push(ProcessImage::from_proc(tgid, &stat, threads, from, seen));
        self.touched.insert(tgid);
        true
    }

    fn fork(&mut self, event: &ProcessEvent, parent: u32) {
        // Ends a program only if the exit event of the last process with this pid was lost.
        self.end(event.tgid, event.at, true);
        let ticks = (event.at.0 + MonoNs::boot_offset()) / self.tick;
        let parent_program = self.timelines.get(&parent).and_then(|line| line.last());
        let program = match parent_program {
            Some(parent) => ProcessImage::from_fork(event.tgid, parent, event.at, ticks),
            None => ProcessImage::from_fork_of_unknown(event.tgid, parent, event.at, ticks),
        };
        self.timelines.entry(event.tgid).or_default().push(program);
        self.touched.insert(event.tgid);
    }

    fn exec(&mut self, event: &ProcessEvent, name: &Arc<[u8]>) {
        let last = self.timelines.get(&event.tgid).and_then(|line| line.last());
        let next = match last {
            Some(program) => program.after_exec(event.at, name),
            None => ProcessImage::unknown(event.tgid, event.at).after_exec(event.at, name),
        };
        self.end(event.tgid, event.at, false);
        self.timelines.entry(event.tgid).or_default().push(next);
        self.touched.insert(event.tgid);
    }

    fn map(&mut self, event: &ProcessEvent, mapped: &MmapRecord) {
        let line = self.timelines.entry(event.tgid).or_default();
        if line.is_empty() {
            line.push(ProcessImage::unknown(event.tgid, event.at));
        }
        let Some(program) = line.last_mut() else { return };
        let (kept, shared) = (program.maps.len(), Arc::strong_count(&program.maps) > 1);
        let added = if shared { kept + 1 } else { 1 };
        if kept >= self.options.max_mappings
            || self.counts.mappings + added > self.options.max_mappings_in_all
        {
            program.refused += 1;
            self.counts.mappings_refused += 1;
            return;
        }
        self.counts.mappings += added;
        self.touched.insert(event.tgid);
        if program.add_mapping(event.at, mapped, &mut self.files) {
            program.moved.reset_backoff();
            let (start, end) = (mapped.start, mapped.start.saturating_add(mapped.len));
            let (tgid, parent, at) = (event.tgid, program.parent, event.at);
            self.covered.push(CoveredCode { tgid, parent, start, end, at });
        }
        if program.maps.has_past() {
            self.changed.insert(event.tgid);
        }
    }

    /// Ends the current program of a process, if it has one.
    fn end(&mut self, tgid: u32, at: MonoNs, exited: bool) {
        let current = self.timelines.get_mut(&tgid).and_then(|line| line.last_mut());
        if let Some(program) = current.filter(|program| program.is_alive()) {
            program.until = Some(at);
            program.exited = exited;
            self.note_end(at, tgid);
        }
    }

    fn note_end(&mut self, at: MonoNs, tgid: u32) {
        self.ended.push_back((at, tgid));
        self.touched.insert(tgid);
        if self.ended.len() > MAX_ENDED
            && let Some((at, tgid)) = self.ended.pop_front()
        {
            self.forget(tgid, MonoNs(at.0 + 1));
            self.counts.forgotten += 1;
        }
    }

    fn forget(&mut self, tgid: u32, before: MonoNs) {
        if let Some(line) = self.timelines.get_mut(&tgid) {
            line.retain(|program| program.until.is_none_or(|until| until >= before));
            if line.is_empty() {
                self.timelines.remove(&tgid);
            }
        }
    }

    /// Ends the programs whose exit event was lost. If `/proc` cannot be read now, a later call does.
    fn sweep_gone(&mut self) {
        let Ok(there) = reading::tgids() else {
            self.sweep = true;
            return;
        };
        let now = MonoNs::now();
        let gone: Vec<u32> =
            self.timelines.keys().copied().filter(|tgid| there.binary_search(tgid).is_err()).collect();
        gone.into_iter().for_each(|tgid| self.end(tgid, now, true));
    }
}
