//! `/proc/PID` of a process whose leader may have ended before the others (`pthread_exit` in `main`). That thread
//! is a zombie until the last one ends, and `/proc/PID` shows the thread's state: `maps` and `cmdline` are empty,
//! `root`, `cwd`, `exe`, `fd`, `mem`, `environ` and `map_files` do not exist, and the cgroups of v1 are all `/`. The
//! process's own state is in `/proc/TID` of any thread that runs. (Not in `/proc/PID/task/TID`, which has neither
//! `map_files` nor `timens_offsets`.)

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Access, AtFlags, Dir, Mode, OFlags, accessat, open, openat};
use rustix::io::Errno;

use super::procfs::{self, Stat};

/// Threads that are tried in place of the leader. A thread that has ended leaves the list at once, unless it is
/// traced, so that mostly the next one runs.
const MAX_THREADS: usize = 1024;

const OPEN_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory of a process, held open. A process that gets the same pid later is never read through it.
#[derive(Debug)]
pub struct ProcessDir {
    tgid: u32,
    leader: OwnedFd,
}

/// A thread that has not ended.
#[derive(Debug)]
pub struct LiveThread {
    /// The directory `/proc/TID`, which shows what belongs to the process.
    pub dir: OwnedFd,
    /// What `/proc/PID/stat` would show if this thread were the leader. Name and start are the leader's.
    pub stat: Stat,
}

impl ProcessDir {
    /// Opens the directory of a process, by its thread group id.
    ///
    /// # Errors
    /// `ENOENT` if there is no such process.
    pub fn open(tgid: u32) -> Result<ProcessDir, Errno> {
        Ok(ProcessDir { tgid, leader: open(format!("/proc/{tgid}"), OPEN_DIRECTORY, Mode::empty())? })
    }

    /// The directory of the leader, which exists as long as the process does.
    #[must_use]
    pub fn leader(&self) -> BorrowedFd<'_> {
        self.leader.as_fd()
    }

    /// The content of `/proc/PID/stat`: start and CPU time are the process's, the state is its leader's.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended and was waited for.
    pub fn stat(&self) -> Result<Stat, Errno> {
        stat_of(self.leader())
    }

    /// A thread that has not ended: the leader, if it has not ended.
    ///
    /// # Errors
    /// `ESRCH` if all threads have ended.
    pub fn live_thread(&self) -> Result<LiveThread, Errno> {
        self.live_threads()?.next().ok_or(Errno::SRCH)
    }

    /// The threads that have not ended, the leader first. Others are looked up only if the caller goes on to them.
    ///
    /// # Errors
    /// `ESRCH` if the process has ended and was waited for.
    pub fn live_threads(&self) -> Result<impl Iterator<Item = LiveThread> + '_, Errno> {
        let stat = self.stat()?;
        let leader =
            if is_dead(&stat) { None } else { Some(rustix::io::fcntl_dupfd_cloexec(&self.leader, 0)?) };
        let (name, start, threads) = (stat.comm.clone(), stat.start_ticks, stat.threads);
        let others = (threads > 1).then(|| self.other_threads()).into_iter().flatten();
        let as_leader = move |dir: OwnedFd| {
            let stat = stat_of(dir.as_fd()).ok().filter(|stat| !is_dead(stat) && stat.start_stack != 0)?;
            Some(LiveThread { dir, stat: Stat { comm: name.clone(), start_ticks: start, ..stat } })
        };
        Ok(leader.map(|dir| LiveThread { dir, stat }).into_iter().chain(others.filter_map(as_leader)))
    }

    /// Reads a whole file of a thread that has not ended.
    ///
    /// # Errors
    /// As [`procfs::read_at`]; `ESRCH` if all threads have ended.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        procfs::read_at(self.live_thread()?.dir.as_fd(), name)
    }

    fn other_threads(&self) -> impl Iterator<Item = OwnedFd> + '_ {
        let tasks = || -> Result<Dir, Errno> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(&self.leader, "task", flags, Mode::empty()).and_then(Dir::new)
        };
        let entries = std::iter::once_with(tasks).flatten().flatten();
        let tids = entries.filter_map(|entry| procfs::decimal(entry.ok()?.file_name().to_bytes()));
        let others = tids.filter(|tid| *tid != u64::from(self.tgid)).take(MAX_THREADS);
        others.filter_map(|tid| {
            let dir = open(format!("/proc/{tid}"), OPEN_DIRECTORY, Mode::empty()).ok()?;
            // `task/TID` exists after the open, so the TID was not reused before it. A thread that ends later gives
            // ESRCH.
            accessat(&self.leader, format!("task/{tid}"), Access::EXISTS, AtFlags::empty()).ok()?;
            Some(dir)
        })
    }
}

fn stat_of(task: BorrowedFd<'_>) -> Result<Stat, Errno> {
    procfs::parse_stat(&procfs::read_at(task, "stat")?).ok_or(Errno::SRCH)
}

pub(super) fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, b'Z' | b'X')
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn our_own_leader_is_alive() {
        let process = ProcessDir::open(std::process::id()).unwrap();
        let running = process.live_thread().unwrap();
        assert_eq!(running.stat.start_ticks, process.stat().unwrap().start_ticks);
        assert!(!process.read("maps").unwrap().is_empty());
        assert_eq!(ProcessDir::open(u32::MAX).unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn other_threads_are_this_process_as_well() {
        let process = ProcessDir::open(std::process::id()).unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let others: Vec<LiveThread> = process.live_threads().unwrap().skip(1).collect();
        assert!(!others.is_empty());
        for LiveThread { dir, stat } in others {
            assert_eq!(stat.start_ticks, process.stat().unwrap().start_ticks, "{}", dir.as_raw_fd());
            let status = procfs::read_at(dir.as_fd(), "status").ok();
            let status = status.and_then(|status| procfs::parse_status(&status));
            // Threads of other tests come and go.
            assert!(status.is_none_or(|status| status.tgid == std::process::id()));
        }
        drop(end);
        other.join().unwrap().unwrap_err();
    }

    #[test]
    fn a_process_that_has_ended_runs_no_more() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = ProcessDir::open(child.id()).unwrap();
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child));
        rustix::process::waitid(id, options).unwrap();
        assert_eq!(process.live_thread().unwrap_err(), Errno::SRCH, "it is not reaped");
        child.wait().unwrap();
        assert_eq!(process.live_thread().unwrap_err(), Errno::SRCH);
    }
}
