//! From an address of a program at a time to the file and offset behind it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::ProcessRoot;
use super::file::{FileRef, MappedFile, Unopened};
use super::mappings::{MappedObject, Mapping, Vdso};
use super::maps::MapsEntry;
use super::opening::{FileQuery, LiveMapping};
use super::program::{EarlierMappings, MAX_ANCESTORS, ProcessImage};
use super::reading::{self, ExpectedProgram, ReadMaps};
use super::table::Processes;
use super::unlocated::Unlocated;
use crate::sample::{MonoNs, ProcessId};

/// Where an address of a process leads.
#[derive(Clone, Debug)]
pub enum MappedLocation {
    /// Into a file. The file may be one that could not be opened. A memfd (path `/memfd:…`) is a JIT's memory if it is
    /// not [a program](MappedFile::is_program_in_memory).
    File {
        /// The mapped file, or why it could not be opened.
        file: Arc<MappedFile>,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// Into anonymous memory: JIT code.
    Anonymous {
        /// First address of the mapping.
        start: u64,
        /// Address after the last of the mapping.
        end: u64,
    },
    /// Into a vdso of the kernel.
    Vdso {
        /// Which of the kernel's images: for 64-bit or for 32-bit programs.
        vdso: Vdso,
        /// Offset in the ELF image of the vdso, bytes.
        offset: u64,
    },
    /// Into the vsyscall page of x86-64.
    Vsyscall,
    /// Nowhere, with the reason.
    Unknown(Unlocated),
}

/// The vsyscall page of the x86-64 kernel, which is not a mapping.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
/// Pause before a program's mappings are read again for an address that is not mapped, ns. `mremap` makes no event.
const REREAD_AFTER_NS: u64 = 1_000_000_000;
/// Reading mappings again takes no more than one part in this many of the time: there may be a quarter of a million.
const REREAD_SHARE_DIVISOR: u64 = 100;
/// Roots in which a path is tried.
const MAX_ROOTS: usize = 64;

impl Processes {
    /// Where `pc` led in program `id` at the time `at`. Opens the file if it is not open.
    pub fn locate(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> MappedLocation {
        if (VSYSCALL..VSYSCALL + 0x1000).contains(&pc) {
            return MappedLocation::Vsyscall;
        }
        let Some(index) = self.select(id, at) else { return MappedLocation::Unknown(Unlocated::ProcessGone) };
        let mut mapping = self.mapping(id.tgid, index, at, pc);
        if mapping.is_none() && self.complete(id.tgid, index, MAX_ANCESTORS) {
            mapping = self.mapping(id.tgid, index, at, pc);
        }
        let Some(mapping) = mapping else {
            return MappedLocation::Unknown(self.why_unmapped(id.tgid, index));
        };
        let into = pc - mapping.start;
        match &mapping.object {
            MappedObject::Anonymous => MappedLocation::Anonymous { start: mapping.start, end: mapping.end },
            MappedObject::Vdso(vdso, offset) => {
                MappedLocation::Vdso { vdso: *vdso, offset: offset.wrapping_add(into) }
            }
            MappedObject::File(file, offset) | MappedObject::Moved(file, offset) => {
                let offset = offset.wrapping_add(into);
                MappedLocation::File { file: self.open(id.tgid, index, &mapping, file), offset }
            }
        }
    }

    /// Notes that a program was seen to run. Call this for stacks in the order of their times, before anything else is
    /// asked about them: the first stack with a process identity decides which program has the identity.
    pub fn mark_seen(&mut self, id: ProcessId, at: MonoNs) {
        let _ = self.select(id, at);
    }

    /// Since when a program's mappings are what they are now. As long as this time stays the same, an address that
    /// [`locate`](Self::locate) finds after it leads to the same place at all later times. An address where nothing was
    /// found may get anonymous memory later. `None` if the program is not known for certain.
    pub fn mapped_since(&mut self, id: ProcessId, at: MonoNs) -> Option<MonoNs> {
        let index = self.select(id, at)?;
        let program = self.program(id.tgid, index)?;
        (program.id == Some(id)).then(|| program.maps.changed())
    }

    /// Root directory and owner of a program, read at the first call and kept; `None` if the program had ended by then.
    pub fn root(&mut self, id: ProcessId, at: MonoNs) -> Option<Arc<ProcessRoot>> {
        let index = self.select(id, at)?;
        self.root_of(id.tgid, index)
    }

    /// Opens a regular file that belongs to the program's user or to root, by its path in the program's own root. The
    /// timeout bounds the wait for a file system.
    ///
    /// # Errors
    /// Why the file was not opened.
    pub fn open_own_file(&mut self, id: ProcessId, at: MonoNs, path: &Path) -> Result<OwnedFd, Unopened> {
        let root = self.root(id, at).ok_or(Unopened::ProcessGone)?;
        self.files.open_below(id.tgid, &root, path)
    }

    pub(super) fn mapping(&mut self, tgid: u32, index: usize, at: MonoNs, pc: u64) -> Option<Mapping> {
        self.program(tgid, index)?.maps.find(pc, at).cloned()
    }

    fn why_unmapped(&mut self, tgid: u32, index: usize) -> Unlocated {
        match self.program(tgid, index) {
            None => Unlocated::ProcessGone,
            Some(program) if program.refused > 0 => Unlocated::TooManyMappings,
            Some(program) => match program.before {
                EarlierMappings::Failed(why) => why,
                EarlierMappings::Postponed(_) => Unlocated::TooSlow,
                EarlierMappings::Unread => Unlocated::ProcessGone,
                EarlierMappings::Nothing | EarlierMappings::Read(_) => Unlocated::NotMapped,
            },
        }
    }

    /// Reads the mappings that no event reported. Returns whether any were read.
    pub(super) fn complete(&mut self, tgid: u32, index: usize, ancestors: usize) -> bool {
        let now = MonoNs::now();
        let Some(program) = self.program(tgid, index) else { return false };
        let alive = program.is_alive();
        let pause = match program.before {
            EarlierMappings::Failed(_) => return false,
            EarlierMappings::Unread => 0,
            // A process that holds up each reading is asked less and less often.
            EarlierMappings::Postponed(times) => REREAD_AFTER_NS << times.min(12),
            EarlierMappings::Nothing | EarlierMappings::Read(_) if !alive => return false,
            EarlierMappings::Nothing | EarlierMappings::Read(_) => {
                REREAD_AFTER_NS.max(program.read_took.saturating_mul(REREAD_SHARE_DIVISOR))
            }
        };
        if now.0.saturating_sub(program.reread.0) < pause {
            return false;
        }
        program.reread = now;
        let expected = program.expected();
        let most = self.options.max_mappings;
        let mut read = if alive { self.read_maps(expected, most) } else { Err(Unlocated::ProcessGone) };
        if matches!(read, Err(Unlocated::NoDescriptor)) && self.files.close_some() {
            read = self.read_maps(expected, most);
        }
        if let Some(program) = self.program(tgid, index) {
            program.read_took = MonoNs::now().0.saturating_sub(now.0);
        }
        match read {
            Ok(read) => self.add_read_mappings(tgid, index, &read, now),
            Err(Unlocated::ProcessGone) => self.inherit(tgid, index, ancestors),
            Err(why) => self.fail(tgid, index, why),
        }
    }

    fn read_maps(&mut self, expected: ExpectedProgram, most: usize) -> Result<ReadMaps, Unlocated> {
        let read = self.timed_calls.run(expected.tgid, move || reading::read_maps(expected, most));
        read.unwrap_or(Err(Unlocated::TooSlow))
    }

    fn add_read_mappings(&mut self, tgid: u32, index: usize, read: &ReadMaps, now: MonoNs) -> bool {
        let room = self.options.max_mappings_in_all.saturating_sub(self.counts.mappings);
        let Some(program) = self.timelines.get_mut(&tgid).and_then(|line| line.get_mut(index)) else {
            return false;
        };
        if program.before == EarlierMappings::Nothing && !still_runs(program, &read.entries) {
            return false;
        }
        let (kept, refused) = (program.maps.len(), program.refused);
        program.add_read_mappings(read, now, self.options.max_mappings.min(kept + room), &mut self.files);
        self.counts.mappings += program.maps.len().saturating_sub(kept);
        self.counts.mappings_refused += program.refused - refused;
        self.touched.insert(tgid);
        true
    }

    /// Gives a forked process that ended before it was looked at the mappings of its parent.
    fn inherit(&mut self, tgid: u32, index: usize, ancestors: usize) -> bool {
        let Some(child) = self.program(tgid, index) else { return false };
        if !child.before.is_missing() {
            return false;
        }
        let (parent, forked) = (child.parent, child.from);
        let maps = self.parent_of(parent, forked).filter(|_| ancestors > 0).and_then(|from| {
            let missing = self.program(parent, from)?.before.is_missing();
            if missing && !self.complete(parent, from, ancestors - 1) {
                return None;
            }
            Some(Arc::clone(&self.program(parent, from)?.maps))
        });
        let Some(maps) = maps else { return self.fail(tgid, index, Unlocated::ProcessGone) };
        let Some(child) = self.program(tgid, index) else { return false };
        child.inherit(&maps);
        true
    }

    /// The program that the parent ran when it forked.
    pub(super) fn parent_of(&self, parent: u32, forked: MonoNs) -> Option<usize> {
        self.timelines.get(&parent)?.iter().rposition(|program| program.from <= forked)
    }

    fn fail(&mut self, tgid: u32, index: usize, why: Unlocated) -> bool {
        if let Some(program) = self.program(tgid, index) {
            program.before = match (program.before, why) {
                (EarlierMappings::Unread, Unlocated::TooSlow | Unlocated::NoDescriptor) => {
                    EarlierMappings::Postponed(0)
                }
                (EarlierMappings::Postponed(times), Unlocated::TooSlow) => {
                    EarlierMappings::Postponed(times + 1)
                }
                (EarlierMappings::Postponed(times), Unlocated::NoDescriptor) => {
                    EarlierMappings::Postponed(times)
                }
                (EarlierMappings::Unread | EarlierMappings::Postponed(_), _) => EarlierMappings::Failed(why),
                (known, _) => known,
            };
        }
        false
    }

    pub(super) fn open(
        &mut self,
        tgid: u32,
        index: usize,
        mapping: &Mapping,
        file: &FileRef,
    ) -> Arc<MappedFile> {
        let now = MonoNs::now();
        if let Some(known) = self.files.reuse_open(tgid, file, mapping.from, now) {
            return known;
        }
        let alive = self.program(tgid, index).is_some_and(|program| program.is_alive());
        let wanted = FileQuery {
            inode: file.inode(),
            path: Arc::clone(file.path()),
            named_deleted: file.named_deleted(),
            live: alive.then_some(LiveMapping { tgid, start: mapping.start, end: mapping.end }),
            roots: self.likely_roots(tgid, index),
            mapped_at: mapping.from.max(self.started).wall(),
        };
        self.files.open(tgid, file, &wanted, now)
    }

    /// Directories in which a program's path may lead to its file: the root of the program or of its nearest ancestor
    /// with a known root, then ours, then all others that are known.
    fn likely_roots(&mut self, tgid: u32, index: usize) -> Vec<Arc<OwnedFd>> {
        let mut roots = Vec::new();
        let mut add = |dir: Arc<OwnedFd>| {
            if roots.len() < MAX_ROOTS && !roots.iter().any(|known| Arc::ptr_eq(known, &dir)) {
                roots.push(dir);
            }
        };
        let mut ancestor = Some((tgid, index));
        for _ in 0..MAX_ANCESTORS {
            let Some((tgid, index)) = ancestor else { break };
            if let Some(root) = self.root_of(tgid, index) {
                add(root.shared_dir());
                break;
            }
            let born = self.program(tgid, index).map(|program| (program.parent, program.from));
            ancestor = born.and_then(|(parent, forked)| Some((parent, self.parent_of(parent, forked)?)));
        }
        self.own_root.iter().for_each(|root| add(root.shared_dir()));
        self.roots.all().for_each(add);
        roots
    }

    pub(super) fn root_of(&mut self, tgid: u32, index: usize) -> Option<Arc<ProcessRoot>> {
        let program = self.timelines.get_mut(&tgid)?.get_mut(index)?;
        if program.root.is_none() && program.is_alive() {
            let root = self.roots.of(tgid).ok()?;
            program.root = program.may_start_at(root.start_ticks).then(|| Arc::new(root));
        }
        program.root.clone()
    }
}

/// Whether the mappings that were read are of this program, and not of its successor: one of its files is where it was.
fn still_runs(program: &ProcessImage, entries: &[MapsEntry]) -> bool {
    program.maps.iter().any(|mapping| match &mapping.object {
        MappedObject::File(file, _) => {
            entries.iter().any(|entry| entry.start == mapping.start && entry.inode.ino == file.inode().ino)
        }
        _ => false,
    })
}
