//! The one process that a helper works on, held by descriptors from before the first check.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::ids::{UserIds, as_target};
use super::memory::ProcessMemory;
use super::refusal::Refusal;
use super::status::catches_sigquit;
use crate::process::maps::{Maps, MapsEntry};
use crate::process::process_dir::ProcessDir;
use crate::process::procfs::{self, Status};
use crate::sample::MonoNs;

const OPEN_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Most descriptors of a JVM that are read.
const MAX_DESCRIPTORS: usize = 200_000;

/// The process that a helper works on.
#[derive(Debug)]
pub(super) struct AttachTarget {
    pub(super) tgid: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) ns_pid: u32,
    start_ticks: u64,
    mapped: Option<MonoNs>,
    pidfd: OwnedFd,
    process: ProcessDir,
    root: OwnedFd,
}

impl AttachTarget {
    /// Opens the process with that pid, if it started at `start_ticks`. `mapped`: when it mapped its `libjvm.so`, if
    /// that is known.
    pub(super) fn open(tgid: u32, start_ticks: u64, mapped: Option<MonoNs>) -> Result<AttachTarget, Refusal> {
        let pid = i32::try_from(tgid).ok().and_then(Pid::from_raw).ok_or(Refusal::Exited)?;
        // The pidfd comes first: if the directory opened next belongs to the right process, so does the pidfd.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(refusal)?;
        let process = ProcessDir::open(tgid).map_err(refusal)?;
        if process.stat().map_err(refusal)?.start_ticks != start_ticks {
            return Err(Refusal::Exited);
        }
        let task = process.live_thread().map_err(refusal)?.dir;
        let status = procfs::read_at(task.as_fd(), "status").map_err(refusal)?;
        let Status { uid, gid, ns_pid, .. } = procfs::parse_status(&status).ok_or(Refusal::Exited)?;
        let root = openat(&task, "root", OPEN_DIRECTORY, Mode::empty()).map_err(refusal)?;
        Ok(AttachTarget { tgid, uid, gid, ns_pid, start_ticks, mapped, pidfd, process, root })
    }

    pub(super) fn ids(&self) -> UserIds {
        UserIds { uid: self.uid, gid: self.gid }
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Time since the JVM began: since it mapped its library or, if that is unknown, since its process started. If the
    /// mapping was seen, the process's CPU time counts, but at least a third of the wall time: a JVM with little CPU
    /// starts slowly.
    pub(super) fn age(&self) -> Duration {
        if let Some(mapped) = self.mapped {
            let wall = Duration::from_nanos(MonoNs::now().0.saturating_sub(mapped.0));
            return self
                .process
                .stat()
                .map_or(wall, |stat| procfs::clock_ticks(stat.cpu_ticks).clamp(wall / 3, wall));
        }
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        now.saturating_sub(procfs::clock_ticks(self.start_ticks))
    }

    pub(super) fn has_exited(&self) -> bool {
        let mut process = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut process, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Whether the process has exited, or has lost its memory already: that comes some time before.
    pub(super) fn is_gone(&self) -> bool {
        self.has_exited() || self.maps().is_ok_and(|mut maps| maps.next().is_none())
    }

    /// Whether the process is gone or its first thread is about to exit. The threads of a process end one by one.
    pub(super) fn is_ending(&self) -> bool {
        // In this order: a thread takes its SIGKILL before it is exiting.
        let killed = || {
            let status = self.proc_file("status").ok().and_then(|status| procfs::parse_status(&status));
            status.is_none_or(|status| status.killed)
        };
        let exiting = || {
            let stat = self.proc_file("stat").ok().and_then(|stat| procfs::parse_stat(&stat));
            stat.is_none_or(|stat| stat.exiting)
        };
        killed() || exiting() || self.is_gone()
    }

    pub(super) fn memory(&self) -> Result<ProcessMemory, Refusal> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(ProcessMemory::new(openat(&self.task()?, "mem", flags, Mode::empty()).map_err(refusal)?))
    }

    /// A file in the process's `/proc` directory.
    pub(super) fn proc_file(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        self.process.read(name).map_err(refusal)
    }

    /// The executable mappings, up to the first that cannot be read.
    pub(super) fn maps(&self) -> Result<impl Iterator<Item = MapsEntry>, Refusal> {
        Ok(Maps::open(self.task()?.as_fd()).map_err(refusal)?.map_while(Result::ok))
    }

    /// The `/proc` directory of a thread that runs: the first thread may have exited.
    pub(super) fn task(&self) -> Result<OwnedFd, Refusal> {
        Ok(self.process.live_thread().map_err(refusal)?.dir)
    }

    /// The directory of the process's descriptors, readable.
    pub(super) fn descriptors(&self) -> Result<OwnedFd, Refusal> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.task()?, "fd", flags, Mode::empty()).map_err(refusal)
    }

    /// Numbers and link texts of the process's descriptors. A link text proves nothing.
    pub(super) fn links(&self) -> Result<Vec<(String, Vec<u8>)>, Refusal> {
        let directory = self.descriptors()?;
        let listing = procfs::reopen(directory.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY);
        let entries = listing.and_then(Dir::new).map_err(refusal)?;
        let link = |number: String| {
            let link = readlinkat(&directory, number.as_str(), Vec::new()).ok()?;
            Some((number, link.into_bytes()))
        };
        let numbers = entries
            .take(MAX_DESCRIPTORS)
            .filter_map(|e| e.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(numbers.filter_map(link).collect())
    }

    /// The ids of at most `most` threads, in the process's own pid namespace.
    pub(super) fn thread_ids(&self, most: usize) -> Result<impl Iterator<Item = u32>, Refusal> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(self.process.leader(), "task", flags, Mode::empty()).map_err(refusal)?;
        let numbers = Dir::new(tasks)
            .map_err(refusal)?
            .filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse::<u32>().ok());
        let own = |task: u32| {
            let status = self.proc_file(&format!("task/{task}/status")).ok()?;
            Some(procfs::parse_status(&status)?.ns_tid)
        };
        Ok(numbers.take(most).filter_map(own))
    }

    /// A directory below the process's root, by its path there.
    pub(super) fn directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: a rename was under way, and the kernel cannot prove that the path stayed inside.
        let mut tries = 0..16;
        loop {
            match openat2(&self.root, path, OPEN_DIRECTORY, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries.next().is_some() => {}
                other => return other,
            }
        }
    }

    /// A regular file below the process's root, opened for reading by its path there.
    pub(super) fn regular_file(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = openat2(&self.root, path, flags, Mode::empty(), resolve)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        procfs::reopen(found.as_fd(), OFlags::RDONLY)
    }

    pub(super) fn working_directory(&self) -> Result<OwnedFd, Refusal> {
        openat(&self.task()?, "cwd", OPEN_DIRECTORY, Mode::empty()).map_err(refusal)
    }

    /// Whether the whole process is stopped or traced, so that it answers neither a signal nor a request.
    pub(super) fn is_stopped(&self) -> Result<bool, Refusal> {
        let stat = self.process.live_thread().map_err(refusal)?.stat;
        Ok(matches!(stat.state, b'T' | b't'))
    }

    /// Sends SIGQUIT if the process catches it: SIGQUIT ends every process that does not. The pidfd makes sure that the
    /// signal goes to the opened process even if the pid is reused. The signal is sent with the target's ids: its user
    /// may send it, other users need CAP_KILL.
    pub(super) fn quit_if_caught(&self, parent: u32) -> Result<(), Refusal> {
        if !catches_sigquit(&self.proc_file("status")?) {
            return Err(if self.has_exited() { Refusal::Exited } else { Refusal::SignalNotCaught });
        }
        as_target(self.ids(), parent, || {
            // The process may execute another program at any time: check once more directly before the signal.
            if self.proc_file("status").is_ok_and(|status| !catches_sigquit(&status)) {
                return Err(Refusal::SignalNotCaught);
            }
            pidfd_send_signal(&self.pidfd, Signal::QUIT).map_err(refusal)
        })
    }
}

/// The file at a name in a directory, without following links; `None` if there is no such file.
pub(super) fn entry(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>, Refusal> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refusal(errno)),
    }
}

/// The refusal for a failed system call on the process or its files.
pub(super) fn refusal(errno: Errno) -> Refusal {
    match errno {
        Errno::SRCH | Errno::NOENT => Refusal::Exited,
        Errno::PERM | Errno::ACCESS => Refusal::NotPermitted,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Refusal::OutOfResources(errno.to_string()),
        other => Refusal::HelperFailed(other.to_string()),
    }
}
