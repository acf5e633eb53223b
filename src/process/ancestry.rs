//! Code that a process has from before it was forked: a runtime that forks workers (PHP, Ruby, gunicorn) has described
//! that code only in its own perf map.
//!
//! An ancestor is a process from which another one descends by forks alone. Its file names an address of the descendant
//! only if two facts are proven:
//! - The mapping is from before the fork. No event reports a later mapping. If the descendant existed before the
//!   profiler, the ancestor has a mapping at the same place.
//! - The file describes what is there. Either both processes still have the same physical page there, so that neither
//!   has written to it since the fork. Or one of them cannot be asked any more, or the kernel hides the numbers of
//!   pages, and the file was not written since the fork.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::fstat;

use super::file::Unopened;
use super::procfs;
use super::program::MAX_ANCESTORS;
use super::table::Processes;
use crate::sample::{MonoNs, ProcessId};

/// A program from which another one descends by forks, without an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ancestor {
    /// Thread group id in the initial pid namespace.
    pub tgid: u32,
    /// When the program began.
    began: MonoNs,
    /// When the program forked the next one on the way to the descendant.
    forked: MonoNs,
}

/// Identity of a program from which others descend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AncestorProgram {
    /// The program's thread group.
    pub tgid: u32,
    /// When the program began.
    pub began: MonoNs,
}

/// A program of a process: its index in the process's timeline, if the program is known.
#[derive(Clone, Copy)]
struct ProgramPlace {
    tgid: u32,
    index: Option<usize>,
}

impl Ancestor {
    /// Identity of the program, the same for all descendants.
    #[must_use]
    pub fn program(&self) -> AncestorProgram {
        AncestorProgram { tgid: self.tgid, began: self.began }
    }
}

impl Processes {
    /// The programs from which a program descends by forks alone, the nearest first.
    pub fn ancestors(&mut self, id: ProcessId, at: MonoNs) -> Vec<Ancestor> {
        let mut found: Vec<Ancestor> = Vec::new();
        let mut last = self.select(id, at).map(|index| (id.tgid, index));
        while let Some((tgid, index)) = last.filter(|_| found.len() < MAX_ANCESTORS) {
            last = self.forked_from(tgid, index);
            let forked = self.forked_no_later_than(tgid, index);
            let began = last.and_then(|(tgid, index)| Some((tgid, self.program(tgid, index)?.from)));
            if let (Some((tgid, began)), Some(forked)) = (began, forked) {
                found.push(Ancestor { tgid, began, forked });
            }
        }
        found
    }

    /// Opens a file that belongs to the ancestor's user or to root, in the ancestor's root, or in the descendant's if
    /// the ancestor has ended. `path` gives the path by the id that the ancestor has in its pid namespace.
    ///
    /// # Errors
    /// Why the file was not opened.
    pub fn open_ancestors_file(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        ancestor: Ancestor,
        path: impl Fn(u32) -> String,
    ) -> Result<OwnedFd, Unopened> {
        let (tgid, index) = (ancestor.tgid, self.ancestors_index(ancestor));
        if let Some(root) = index.and_then(|index| self.root_of(tgid, index)) {
            return self.files.open_below(tgid, &root, Path::new(&path(root.ns_pid)));
        }
        let root = self.root(id, at).ok_or(Unopened::ProcessGone)?;
        // Only without pid namespaces is the ancestor's id in its namespace known.
        if root.ns_pid != id.tgid {
            return Err(Unopened::ProcessGone);
        }
        self.open_own_file(id, at, Path::new(&path(tgid)))
    }

    /// For each address of a program, whether an ancestor's file is proven to describe it: see the head of this file.
    pub fn inherited(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        ancestor: Ancestor,
        file: BorrowedFd<'_>,
        addresses: &[u64],
    ) -> Vec<bool> {
        let Ancestor { tgid, forked, .. } = ancestor;
        let unwritten = written(file).is_some_and(|written| written <= forked.wall());
        let own = ProgramPlace { tgid: id.tgid, index: self.select(id, at) };
        let theirs = ProgramPlace { tgid, index: self.ancestors_index(ancestor) };
        let mapped: Vec<bool> =
            addresses.iter().map(|&pc| self.is_older(own, theirs, at, forked, pc)).collect();
        if !mapped.contains(&true) {
            return mapped;
        }
        let pages: Vec<u64> = addresses.iter().map(|pc| pc / rustix::param::page_size() as u64).collect();
        let mut is_alive = |ProgramPlace { tgid, index }: ProgramPlace| {
            index.and_then(|index| self.program(tgid, index)).is_some_and(|program| program.is_alive())
        };
        let alive = is_alive(own) && is_alive(theirs);
        let ask = move || pagemap(id.tgid, &pages).zip(pagemap(tgid, &pages));
        let same: Vec<bool> = match alive.then(|| self.timed_calls.run(id.tgid, ask)) {
            Some(Ok(Some((own, theirs)))) => {
                own.iter().zip(&theirs).map(|(own, theirs)| is_same_page(*own, *theirs, unwritten)).collect()
            }
            // One of the processes has ended, or its page map may not be read.
            None | Some(Ok(None)) => vec![unwritten; mapped.len()],
            Some(Err(_)) => vec![false; mapped.len()],
        };
        mapped.into_iter().zip(same).map(|(mapped, same)| mapped && same).collect()
    }

    /// The program that a process was forked from, if it is known and no exec has come in between.
    fn forked_from(&mut self, tgid: u32, index: usize) -> Option<(u32, usize)> {
        let program = self.program(tgid, index)?;
        let (parent, from, forked, alive) =
            (program.parent, program.from, program.forked, program.is_alive());
        if forked && let Some(index) = self.parent_of(parent, from) {
            return Some((parent, index));
        }
        // An exec would have given the process another stack.
        let stack = |tgid: u32| procfs::stat(tgid).map(|stat| stat.start_stack).filter(|stack| *stack != 0);
        let stacks = (alive && parent != 0).then(|| (stack(tgid), stack(parent)))?;
        if stacks.0.is_none() || stacks.0 != stacks.1 {
            return None;
        }
        if !self.timelines.contains_key(&parent) && !self.adopt(parent, MonoNs(0)) {
            return None;
        }
        Some((parent, self.timelines.get(&parent)?.len().checked_sub(1)?))
    }

    /// When a process was forked, at the latest.
    fn forked_no_later_than(&mut self, tgid: u32, index: usize) -> Option<MonoNs> {
        let tick = self.tick;
        let program = self.program(tgid, index)?;
        if program.forked {
            return Some(program.from);
        }
        let since_boot = program.start_ticks.latest.saturating_add(1).saturating_mul(tick);
        Some(MonoNs(since_boot.saturating_sub(MonoNs::boot_offset())))
    }

    fn ancestors_index(&self, ancestor: Ancestor) -> Option<usize> {
        self.timelines.get(&ancestor.tgid)?.iter().position(|program| program.from == ancestor.began)
    }

    /// Whether the mapping at an address of a program is from before the fork, as far as mappings show.
    fn is_older(
        &mut self,
        own: ProgramPlace,
        theirs: ProgramPlace,
        at: MonoNs,
        forked: MonoNs,
        pc: u64,
    ) -> bool {
        let Some(index) = own.index else { return false };
        let from = self.program(own.tgid, index).and_then(|program| Some(program.maps.find(pc, at)?.from));
        let Some(from) = from else { return false };
        // A mapping from before the profiler has no event.
        if from > MonoNs(0) {
            return from <= forked;
        }
        let Some(index) = theirs.index else { return false };
        let has = |table: &mut Processes| {
            table.program(theirs.tgid, index).is_some_and(|program| program.maps.find(pc, at).is_some())
        };
        has(self) || self.complete(theirs.tgid, index, 0) && has(self)
    }
}

/// When a file was last written or otherwise changed, ns since the epoch.
fn written(file: BorrowedFd<'_>) -> Option<i128> {
    let stat = fstat(file).ok()?;
    let time = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let (modified, changed) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
    Some(time(modified.0, modified.1).max(time(changed.0, changed.1)))
}

/// The entries of `/proc/PID/pagemap` for pages (Documentation/admin-guide/mm/pagemap.rst).
fn pagemap(tgid: u32, pages: &[u64]) -> Option<Vec<u64>> {
    let file = File::open(format!("/proc/{tgid}/pagemap")).ok()?;
    let read = |page: u64| {
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, page * 8).ok()?;
        Some(u64::from_ne_bytes(entry))
    };
    pages.iter().map(|&page| read(page)).collect()
}

/// Whether two processes have the same page at an address. Without `CAP_SYS_ADMIN` the kernel hides the page's number.
/// Then two pages count as the same if neither is exclusive to its process and the file was not written since the fork.
fn is_same_page(own: u64, theirs: u64, unwritten: bool) -> bool {
    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;
    const NUMBER: u64 = (1 << 55) - 1;
    if own & theirs & PRESENT == 0 {
        return false;
    }
    match (own & NUMBER, theirs & NUMBER) {
        (0, 0) => unwritten && (own | theirs) & EXCLUSIVE == 0,
        (own, theirs) => own == theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_page;

    #[test]
    fn a_page_that_one_of_them_wrote_to_is_another() {
        const PRESENT: u64 = 1 << 63;
        const EXCLUSIVE: u64 = 1 << 56;
        for (own, theirs, unwritten, same) in [
            (PRESENT | 7, PRESENT | 7, false, true),
            (PRESENT | 7, PRESENT | EXCLUSIVE | 8, true, false),
            (7, PRESENT | 7, true, false),
            (PRESENT, PRESENT, true, true),
            (PRESENT, PRESENT, false, false),
            (PRESENT | EXCLUSIVE, PRESENT, true, false),
        ] {
            assert_eq!(is_same_page(own, theirs, unwritten), same, "{own:x} {theirs:x} {unwritten}");
        }
    }
}
