//! Reads the mappings of a process that existed before the profiler. Runs under [`TimedCalls`](super::TimedCalls): a
//! process may hold its memory lock for as long as it likes.

use std::os::fd::AsFd as _;

use rustix::fs::{Dir, Mode, OFlags, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::maps::{Maps, MapsEntry};
use super::process_dir::{LiveThread, ProcessDir, is_dead};
use super::procfs::{self, Stat};
use super::unlocated::Unlocated;

/// Bytes of paths that are kept of one reading.
const MAX_PATHS: usize = 16 << 20;

/// When a process started, in clock ticks since boot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StartTicks {
    pub(super) earliest: u64,
    pub(super) latest: u64,
}

impl StartTicks {
    pub(super) fn contain(self, ticks: u64) -> bool {
        (self.earliest..=self.latest).contains(&ticks)
    }
}

/// The program that is meant: another one may have its pid by now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ExpectedProgram {
    pub(super) tgid: u32,
    pub(super) start_ticks: StartTicks,
    /// Where the stack begins; 0 if not known.
    pub(super) start_stack: u64,
}

impl ExpectedProgram {
    pub(super) fn is(&self, stat: &Stat) -> bool {
        self.start_ticks.contain(stat.start_ticks)
    }

    /// Whether a thread still runs the program: an exec would have given it another stack.
    pub(super) fn same_program(&self, thread: &Stat) -> bool {
        self.start_stack == 0 || self.start_stack == thread.start_stack
    }
}

/// Executable mappings as they were read.
#[derive(Debug, Default)]
pub(super) struct ReadMaps {
    pub(super) entries: Vec<MapsEntry>,
    /// Number of mappings that were too many.
    pub(super) left_out: u64,
}

/// The executable mappings of a living program, `most` of them.
pub(super) fn read_maps(expected: ExpectedProgram, most: usize) -> Result<ReadMaps, Unlocated> {
    let process = ProcessDir::open(expected.tgid).map_err(why)?;
    if !expected.is(&process.stat().map_err(why)?) {
        return Err(Unlocated::ProcessGone);
    }
    for LiveThread { dir, .. } in process.live_threads().map_err(why)? {
        let read = match Maps::open(dir.as_fd()).and_then(|maps| collect(maps, most)).map_err(why) {
            Ok(read) => read,
            Err(Unlocated::NoDescriptor) => return Err(Unlocated::NoDescriptor),
            Err(_) => continue,
        };
        // A thread that runs has mappings: this one has just ended.
        if read.entries.is_empty() {
            continue;
        }
        // Read after the maps, because an exec meanwhile would change it.
        let after = procfs::parse_stat(&procfs::read_at(dir.as_fd(), "stat").map_err(why)?);
        let same = after.is_some_and(|stat| expected.same_program(&stat));
        return if same { Ok(read) } else { Err(Unlocated::ProcessGone) };
    }
    Err(Unlocated::ProcessGone)
}

/// What an error means: the program is gone, unless we have no descriptor left.
fn why(error: Errno) -> Unlocated {
    match error {
        Errno::MFILE | Errno::NFILE => Unlocated::NoDescriptor,
        _ => Unlocated::ProcessGone,
    }
}

fn collect(maps: impl Iterator<Item = Result<MapsEntry, Errno>>, most: usize) -> Result<ReadMaps, Errno> {
    let (mut read, mut paths) = (ReadMaps::default(), 0);
    for entry in maps {
        let mut entry = entry?;
        let length = entry.path.as_os_str().len();
        match read.entries.last() {
            // A file is mapped in parts, and a JIT maps one piece after the other.
            Some(last) if last.path == entry.path => entry.path = last.path.clone(),
            _ => paths += length,
        }
        if read.entries.len() < most && paths <= MAX_PATHS {
            read.entries.push(entry);
        } else {
            read.left_out += 1;
        }
    }
    Ok(read)
}

/// `/proc/PID/stat` of a process that has memory, as a thread that runs shows it.
pub(super) fn stat_with_memory(tgid: u32) -> Option<Stat> {
    let process = ProcessDir::open(tgid).ok()?;
    let mut threads = process.live_threads().ok()?.map(|thread| thread.stat);
    threads.find(|stat| stat.start_stack != 0)
}

/// Ids of all threads of a process, sorted.
pub(super) fn thread_ids(tgid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{tgid}/task")).unwrap_or_default()
}

/// A thread of a process that neither has ended nor is about to: the first one, if possible.
#[must_use]
pub fn running_thread(tgid: u32) -> Option<u32> {
    let is_killed =
        |tid: u32| procfs::status(&format!("/proc/{tid}/status")).is_none_or(|status| status.killed);
    let runs = |tid: &u32| {
        let stat = procfs::stat(*tid);
        stat.is_some_and(|stat| !is_dead(&stat) && !stat.exiting) && !is_killed(*tid)
    };
    std::iter::once(tgid).chain(thread_ids(tgid)).find(runs)
}

/// Ids of all thread groups, sorted.
///
/// # Errors
/// When `/proc` cannot be read, for example because all descriptors are in use.
pub(super) fn tgids() -> Result<Vec<u32>, Errno> {
    numbers("/proc")
}

fn numbers(dir: &str) -> Result<Vec<u32>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let number = |name: &[u8]| u32::try_from(procfs::decimal(name)?).ok();
    let mut found = Vec::new();
    for entry in open(dir, flags, Mode::empty()).and_then(Dir::new)? {
        found.extend(number(entry?.file_name().to_bytes()));
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let entry = |at: u64, path: &str| {
            Ok(MapsEntry {
                start: at,
                end: at + 1,
                offset: 0,
                inode: Default::default(),
                path: Arc::from(Path::new(path)),
                executable: true,
            })
        };
        let read = collect((0..9).map(|at| entry(at, "/x")), 5).unwrap();
        assert_eq!((read.entries.len(), read.left_out), (5, 4));
        assert!(read.entries.iter().all(|entry| Arc::ptr_eq(&entry.path, &read.entries[0].path)));
        let long = |at: u64| entry(at, &format!("/{at}{}", "x".repeat(1 << 20)));
        let read = collect((0..20).map(long), 100).unwrap();
        assert_eq!((read.entries.len(), read.left_out), (15, 5));
        let failed = [entry(1, "/x"), Err(Errno::INTR)];
        assert_eq!(collect(failed.into_iter(), 5).unwrap_err(), Errno::INTR, "not whole");
    }
}
