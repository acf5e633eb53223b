//! One program in one process, from fork or exec to the next exec or the exit.

use std::sync::Arc;

use super::event::{EventKind, Inode, MmapRecord, ProcessEvent, is_of_no_file};
use super::files::FileTable;
use super::mappings::{MappedObject, Mapping, Mappings, Vdso};
use super::procfs::Stat;
use super::reading::{ExpectedProgram, ReadMaps, StartTicks};
use super::root::ProcessRoot;
use super::search_time::MovedSearchSchedule;
use super::unlocated::Unlocated;
use crate::sample::{MonoNs, ProcessId};

/// The fork event may come this much later than the start that the kernel notes, clock ticks.
const FORK_TICKS: u64 = 500;

/// Most ancestors that are searched, for example for the root or the mappings of a process that has ended.
pub(super) const MAX_ANCESTORS: usize = 8;

/// What is known of the mappings that a program had before its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierMappings {
    /// The program had none: its first event was its exec.
    Nothing,
    /// The mappings have not been read from `/proc` yet.
    Unread,
    /// The mappings were read from `/proc` at this time. `/proc` may be read again later, to find mappings without an
    /// event.
    Read(MonoNs),
    /// Reading the mappings took too long, or there was no free descriptor. Another attempt may succeed. The number counts
    /// the timeouts after the first failure.
    Postponed(u32),
    /// The mappings cannot be read.
    Failed(Unlocated),
}

impl EarlierMappings {
    /// Whether a later attempt may read the mappings.
    pub(super) fn is_missing(self) -> bool {
        matches!(self, EarlierMappings::Unread | EarlierMappings::Postponed(_))
    }
}

#[derive(Clone, Debug)]
pub(super) struct ProcessImage {
    pub(super) tgid: u32,
    /// Thread group id of the process that forked this one.
    pub(super) parent: u32,
    /// The kernel's identity of the program, known from its first sample on.
    pub(super) id: Option<ProcessId>,
    /// The number of the program's exec, if known: fork keeps it, each exec adds one.
    pub(super) exec: Option<u32>,
    /// Whether the fork was seen and no exec has come since.
    pub(super) forked: bool,
    /// When the program began; 0 if it existed before the profiler.
    pub(super) from: MonoNs,
    /// When the program was read from `/proc`, which includes the effect of earlier events. 0 if it was not read.
    pub(super) seen: MonoNs,
    /// When the next program took its place, or the last thread ended.
    pub(super) until: Option<MonoNs>,
    /// Whether `until` is the end of the process.
    pub(super) exited: bool,
    /// Name of the group leader.
    pub(super) comm: Arc<[u8]>,
    pub(super) start_ticks: StartTicks,
    /// Where the stack begins, if the program existed before the profiler or was forked from such a program; else 0.
    pub(super) start_stack: u64,
    /// Thread ids of the living threads, ascending.
    pub(super) threads: Vec<u32>,
    pub(super) maps: Arc<Mappings>,
    pub(super) before: EarlierMappings,
    /// Mappings that were not kept because the program has too many.
    pub(super) refused: u64,
    /// Root directory and owner; `None` until they are needed.
    pub(super) root: Option<Arc<ProcessRoot>>,
    /// When the mappings were last read again because an address of a sample was not mapped.
    pub(super) reread: MonoNs,
    /// How long reading the mappings took, ns.
    pub(super) read_took: u64,
    /// When to look for code of files in the program's anonymous memory.
    pub(super) moved: MovedSearchSchedule,
}

impl ProcessImage {
    /// A program that existed before its first event.
    pub(super) fn from_proc(
        tgid: u32,
        stat: &Stat,
        threads: Vec<u32>,
        from: MonoNs,
        seen: MonoNs,
    ) -> ProcessImage {
        ProcessImage {
            seen,
            tgid,
            parent: stat.parent,
            id: None,
            exec: None,
            forked: false,
            from,
            until: None,
            exited: false,
            comm: stat.comm.as_slice().into(),
            start_ticks: StartTicks { earliest: stat.start_ticks, latest: stat.start_ticks },
            start_stack: stat.start_stack,
            threads,
            maps: Arc::default(),
            before: EarlierMappings::Unread,
            refused: 0,
            root: None,
            reread: MonoNs(0),
            read_took: 0,
            moved: MovedSearchSchedule::default(),
        }
    }

    /// The child that `parent` forked at `at`, which is `ticks` in clock ticks since boot.
    pub(super) fn from_fork(tgid: u32, parent: &ProcessImage, at: MonoNs, ticks: u64) -> ProcessImage {
        ProcessImage {
            tgid,
            parent: parent.tgid,
            id: None,
            forked: true,
            from: at,
            seen: MonoNs(0),
            until: None,
            exited: false,
            start_ticks: start_of_fork(ticks),
            threads: vec![tgid],
            root: None,
            reread: MonoNs(0),
            comm: Arc::clone(&parent.comm),
            maps: Arc::clone(&parent.maps),
            ..*parent
        }
    }

    /// The child of an unknown process.
    pub(super) fn from_fork_of_unknown(tgid: u32, parent: u32, at: MonoNs, ticks: u64) -> ProcessImage {
        ProcessImage { parent, start_ticks: start_of_fork(ticks), ..ProcessImage::unknown(tgid, at) }
    }

    /// A program whose beginning was missed.
    pub(super) fn unknown(tgid: u32, at: MonoNs) -> ProcessImage {
        let stat = Stat { comm: Vec::new(), state: b'R', parent: 0, threads: 1, ..Stat::default() };
        ProcessImage {
            start_ticks: StartTicks { earliest: 0, latest: u64::MAX },
            ..ProcessImage::from_proc(tgid, &stat, vec![tgid], at, MonoNs(0))
        }
    }

    /// The program that takes this one's place by exec.
    pub(super) fn after_exec(&self, at: MonoNs, name: &Arc<[u8]>) -> ProcessImage {
        ProcessImage {
            id: None,
            forked: false,
            from: at,
            seen: MonoNs(0),
            until: None,
            exited: false,
            comm: Arc::clone(name),
            exec: self.exec.map(|exec| exec.wrapping_add(1)),
            start_stack: 0,
            threads: vec![self.tgid],
            maps: Arc::default(),
            before: EarlierMappings::Nothing,
            refused: 0,
            root: None,
            reread: MonoNs(0),
            read_took: 0,
            moved: MovedSearchSchedule::default(),
            ..*self
        }
    }

    /// Whether no event has ended the program: neither an exec nor an exit.
    pub(super) fn is_alive(&self) -> bool {
        self.until.is_none()
    }

    /// Whether the process may have started at this time, in clock ticks since boot.
    pub(super) fn may_start_at(&self, ticks: u64) -> bool {
        self.start_ticks.contain(ticks)
    }

    /// Whether this may be the program with the kernel's identity `id`.
    pub(super) fn may_be(&self, id: ProcessId, ticks: u64) -> bool {
        self.id.is_none() && self.exec.is_none_or(|exec| exec == id.exec) && self.may_start_at(ticks)
    }

    pub(super) fn expected(&self) -> ExpectedProgram {
        ExpectedProgram { tgid: self.tgid, start_ticks: self.start_ticks, start_stack: self.start_stack }
    }

    /// Adds or removes the thread of a fork or an exit. Returns whether the last thread of the process has ended.
    pub(super) fn update_threads(&mut self, event: &ProcessEvent) -> bool {
        match (&event.kind, self.threads.binary_search(&event.tid)) {
            (EventKind::Fork { .. }, Err(at)) => self.threads.insert(at, event.tid),
            (EventKind::Exit, Ok(at)) => drop(self.threads.remove(at)),
            _ => {}
        }
        let ended = self.threads.is_empty();
        if ended {
            self.until = Some(event.at);
            self.exited = true;
        }
        ended
    }

    /// Adds the mapping of an event. Returns whether the new mapping covers code of a file.
    pub(super) fn add_mapping(&mut self, at: MonoNs, mapped: &MmapRecord, files: &mut FileTable) -> bool {
        let end = mapped.start.saturating_add(mapped.len);
        let object = object(mapped.offset, end, mapped.inode, &mapped.path, files);
        Arc::make_mut(&mut self.maps).insert_new(Mapping { start: mapped.start, end, object, from: at })
    }

    /// Adds the mappings that were read from `/proc`.
    pub(super) fn add_read_mappings(
        &mut self,
        read: &ReadMaps,
        read_at: MonoNs,
        most: usize,
        files: &mut FileTable,
    ) {
        let maps = Arc::make_mut(&mut self.maps);
        // On a second reading, what was missing the first time has come since.
        let from = match self.before {
            EarlierMappings::Read(first) => first,
            _ => self.from,
        };
        let mut refused = read.left_out;
        for entry in &read.entries {
            let object = object(entry.offset, entry.end, entry.inode, &entry.path, files);
            let mapping = Mapping { start: entry.start, end: entry.end, object, from };
            if maps.len() >= most && !maps.has(&mapping) {
                refused += 1;
                continue;
            }
            maps.insert_read(mapping, read_at);
        }
        self.refused = self.refused.max(refused);
        self.before = EarlierMappings::Read(read_at);
    }

    /// Takes over what the parent had mapped at the fork.
    pub(super) fn inherit(&mut self, parent: &Mappings) {
        let maps = Arc::make_mut(&mut self.maps);
        for mapping in parent.iter().filter(|mapping| mapping.from <= self.from) {
            maps.insert_read(mapping.clone(), self.from);
        }
        self.before = EarlierMappings::Read(self.from);
    }
}

/// When a child started whose fork event came at this time.
fn start_of_fork(ticks: u64) -> StartTicks {
    StartTicks { earliest: ticks.saturating_sub(FORK_TICKS), latest: ticks + 1 }
}

/// The object of a mapping that begins at `offset` and ends at the address `end`, by the kernel's name for it.
fn object(
    offset: u64,
    end: u64,
    inode: Inode,
    path: &Arc<std::path::Path>,
    files: &mut FileTable,
) -> MappedObject {
    if path.as_os_str() == "[vdso]" {
        return MappedObject::Vdso(Vdso::ending_at(end), offset);
    }
    if is_of_no_file(inode, path) {
        return MappedObject::Anonymous;
    }
    MappedObject::File(files.intern_ref(inode, path), offset)
}
