//! Reading what a process that was there before us has mapped. Runs under [`Patience`](super::Patience): the memory
//! lock of a process may be held for as long as it likes.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Dir, Mode, OFlags, open, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Unlocated;
use super::procfs::{self, MapsEntry, Stat};

/// Threads that are asked in place of a leader that has ended, at most.
const MAX_THREADS: usize = 16;

/// Which program is meant: another one may have its pid by now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Expected {
    pub(super) tgid: u32,
    /// Its start lies between these clock ticks since boot.
    pub(super) start_ticks: (u64, u64),
    /// Where its stack begins; 0 if not known.
    pub(super) start_stack: u64,
}

impl Expected {
    pub(super) fn is(&self, stat: &Stat) -> bool {
        let (from, to) = self.start_ticks;
        (from..=to).contains(&stat.start_ticks)
    }

    /// Whether a thread still runs the program: exec gives it another stack.
    pub(super) fn same_program(&self, thread: &Stat) -> bool {
        self.start_stack == 0 || self.start_stack == thread.start_stack
    }
}

/// The executable mappings of a program that is alive.
pub(super) fn read_maps(expected: Expected) -> Result<Vec<MapsEntry>, Unlocated> {
    let gone = |_: Errno| Unlocated::ProcessGone;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = open(format!("/proc/{}", expected.tgid), flags, Mode::empty()).map_err(gone)?;
    let stat = stat_of(process.as_fd()).ok_or(Unlocated::ProcessGone)?;
    if !expected.is(&stat) {
        return Err(Unlocated::ProcessGone);
    }
    // The leader may have ended before the other threads; it has no memory then.
    for thread in threads(process.as_fd(), expected.tgid) {
        let Ok(thread) = openat(&process, format!("task/{thread}"), flags, Mode::empty()) else { continue };
        let maps = procfs::read_at(thread.as_fd(), "maps").unwrap_or_default();
        if maps.is_empty() {
            continue;
        }
        // Read after the maps: what an exec meanwhile would change.
        let same = stat_of(thread.as_fd()).is_some_and(|stat| expected.same_program(&stat));
        return if same { Ok(procfs::parse_maps(&maps).0) } else { Err(Unlocated::ProcessGone) };
    }
    Err(Unlocated::ProcessGone)
}

/// The leader, then a few others, which are looked for only if they are asked for.
pub(super) fn threads(process: BorrowedFd<'_>, tgid: u32) -> impl Iterator<Item = u32> {
    let tasks = move || -> Result<Dir, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(process, "task", flags, Mode::empty()).and_then(Dir::new)
    };
    let entries = std::iter::once_with(tasks).flatten().flatten();
    let others = entries.filter_map(move |entry| {
        let tid = procfs::decimal(entry.ok()?.file_name().to_bytes())?;
        u32::try_from(tid).ok().filter(|tid| *tid != tgid)
    });
    std::iter::once(tgid).chain(others.take(MAX_THREADS))
}

/// What a thread that still has the memory of a process says of it: a leader that has ended has none.
pub(super) fn stat_with_memory(tgid: u32) -> Option<Stat> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = open(format!("/proc/{tgid}"), flags, Mode::empty()).ok()?;
    threads(process.as_fd(), tgid).find_map(|thread| {
        let thread = openat(&process, format!("task/{thread}"), flags, Mode::empty()).ok()?;
        stat_of(thread.as_fd()).filter(|stat| stat.start_stack != 0)
    })
}

pub(super) fn stat_of(task: BorrowedFd<'_>) -> Option<Stat> {
    procfs::parse_stat(&procfs::read_at(task, "stat").ok()?)
}

/// All threads of a process by their ids.
pub(super) fn thread_ids(tgid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{tgid}/task"))
}

/// All thread groups that there are.
pub(super) fn tgids() -> Vec<u32> {
    numbers("/proc")
}

fn numbers(dir: &str) -> Vec<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = open(dir, flags, Mode::empty()).and_then(Dir::new).into_iter().flatten();
    let number = |name: &[u8]| u32::try_from(procfs::decimal(name)?).ok();
    let mut found: Vec<u32> =
        entries.filter_map(|entry| number(entry.ok()?.file_name().to_bytes())).collect();
    found.sort_unstable();
    found
}
