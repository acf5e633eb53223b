//! Finding JVMs: every process that executes `libjvm.so`, of any user and in any namespaces.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::command_line::main_of;
use crate::process::cgroup::CgroupMembership;
use crate::process::maps::{Maps, MapsEntry};
use crate::process::path::bytes_path;
use crate::process::process_dir::{LiveThread, ProcessDir};
use crate::process::procfs::{self, MAX_ARGUMENTS};
use crate::process::timed_calls::CALL_TIMEOUT;
use crate::process::{CallTimedOut, TimedCalls};
use crate::sample::{MonoNs, ProcessId};

/// A process that maps a file called `libjvm.so` to execute it. The process itself controls every field except the
/// numbers: text is for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jvm {
    /// Which process. The start time comes from `/proc` and is exact to one clock tick (10 ms), and `exec` is 0;
    /// compare with [`is_same_process`].
    pub process: ProcessId,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Pid in the innermost pid namespace of the process.
    pub ns_pid: u32,
    /// Effective user id, in the profiler's user namespace.
    pub uid: u32,
    /// Effective group id, in the profiler's user namespace.
    pub gid: u32,
    /// Main class, module or jar; else the program's name.
    pub main: String,
    /// Container id, as a guess from the cgroup.
    pub container: Option<String>,
    /// Path of `libjvm.so` as the process's maps have it: any bytes, not fit to print.
    pub libjvm: PathBuf,
    /// Address at which the first page of `libjvm.so` is mapped.
    pub(super) base: u64,
    /// When `libjvm.so` was mapped, if the profiler saw that.
    pub(super) mapped: Option<MonoNs>,
}

impl Jvm {
    /// Sets the time at which the process mapped `libjvm.so`. The process may be much older: often a shell ran in it
    /// before it executed the JVM.
    #[must_use]
    pub fn mapped_at(self, at: MonoNs) -> Jvm {
        Jvm { mapped: Some(at), ..self }
    }
}

/// Whether a pid with a start time from `/proc/PID/stat` (clock ticks since boot, rounded down) is the process that BPF
/// saw (nanoseconds). `/proc` has no exec id, so exec ids are not compared.
#[must_use]
pub fn is_same_process(start_ticks: u64, tgid: u32, bpf: ProcessId) -> bool {
    tgid == bpf.tgid && bpf.start / procfs::clock_tick() == start_ticks
}

/// All JVMs on the host that `/proc` shows, in the order of pids.
/// A process whose memory lock is held for long is left out, and the log says how many.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn discover() -> Result<Vec<Jvm>, Errno> {
    let mut timed_calls = TimedCalls::new(CALL_TIMEOUT);
    let directory = open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut pids: Vec<u32> = rustix::fs::Dir::new(directory)?
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut slow = 0;
    let mut look = |pid| match timed_calls.run(pid, move || inspect(pid)) {
        Ok(found) => found,
        Err(CallTimedOut) => {
            slow += 1;
            None
        }
    };
    let found = pids.into_iter().filter_map(&mut look).collect();
    if slow > 0 {
        log::warn!(
            "JVMs: the mappings of {slow} processes could not be read in time; JVMs among them are unknown"
        );
    }
    Ok(found)
}

/// The JVM with this pid; `None` if the process is no JVM, has exited, or cannot be read.
#[must_use]
pub fn find(tgid: u32) -> Option<Jvm> {
    TimedCalls::new(CALL_TIMEOUT).run(tgid, move || inspect(tgid)).ok().flatten()
}

/// Reads everything through one descriptor of `/proc/PID`, so that a reused pid cannot mix two processes.
fn inspect(tgid: u32) -> Option<Jvm> {
    let process = ProcessDir::open(tgid).ok()?;
    let LiveThread { dir, stat } = process.live_thread().ok()?;
    let (base, path) = libjvm_of(dir.as_fd())?;
    let read = |name| procfs::read_start(dir.as_fd(), name, MAX_ARGUMENTS).ok();
    let status = procfs::parse_status(&read("status")?)?;
    let start = stat.start_ticks.saturating_mul(procfs::clock_tick());
    Some(Jvm {
        process: ProcessId { tgid, start, exec: 0 },
        start_ticks: stat.start_ticks,
        ns_pid: status.ns_pid,
        uid: status.uid,
        gid: status.gid,
        main: main_of(&read("cmdline")?),
        container: read("cgroup").and_then(|text| CgroupMembership::parse(&text).container()),
        libjvm: path,
        base,
        mapped: None,
    })
}

/// Base address and path of the `libjvm.so` that a process executes. Indexers, scanners and packers map another
/// `libjvm.so` as data. Only processes without an executable `libjvm.so` have all their mappings read.
fn libjvm_of(task: BorrowedFd<'_>) -> Option<(u64, PathBuf)> {
    let mut maps = Maps::open(task).ok()?;
    while let Some(Ok(entry)) = maps.next() {
        if let Some(path) = libjvm(&entry)
            && let Some(base) = maps.beginning(&entry)
        {
            return Some((base, path.to_owned()));
        }
    }
    None
}

/// The path of a mapping, if it is one of `libjvm.so`.
fn libjvm(entry: &MapsEntry) -> Option<&Path> {
    let path = entry.path.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.ends_with(b"/libjvm.so").then(|| bytes_path(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::process::event::Inode;

    #[test]
    fn libjvm_is_known_by_its_path() {
        let named = |path: &str| {
            let path = Arc::from(Path::new(path));
            let entry =
                MapsEntry { start: 1, end: 2, offset: 0, inode: Inode::default(), path, executable: true };
            libjvm(&entry).map(Path::to_owned)
        };
        let path = PathBuf::from("/opt/a b/libjvm.so");
        assert_eq!(named("/opt/a b/libjvm.so"), Some(path.clone()));
        assert_eq!(named("/opt/a b/libjvm.so (deleted)"), Some(path));
        assert_eq!(named("/x/notlibjvm.so"), None);
        assert_eq!(named("libjvm.so"), None);
    }

    #[test]
    fn start_times_of_proc_and_bpf_are_matched() {
        let bpf = ProcessId { tgid: 7, start: 12_345_678_901, exec: 3 };
        assert!(is_same_process(1234, 7, bpf));
        assert!(!is_same_process(1235, 7, bpf));
        assert!(!is_same_process(1234, 8, bpf));
    }

    #[test]
    fn this_process_is_no_jvm() {
        assert_eq!(find(std::process::id()), None);
        assert_eq!(find(u32::MAX), None);
    }
}
