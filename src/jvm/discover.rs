//! Finding JVMs: every process that maps `libjvm.so`, whoever's it is and in whatever namespaces.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::command_line::main_of;
use crate::process::cgroup::Membership;
use crate::process::path::bytes_path;
use crate::process::patience::PATIENCE;
use crate::process::{MonoNs, Patience, ProcessId, procfs};

/// A process that maps a file called `libjvm.so`. All but the numbers is what the process says of itself: text is
/// for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jvm {
    /// Which process. From `/proc` its start is exact to one clock tick (10 ms) and `exec` is 0; compare with
    /// [`is_same_process`].
    pub process: ProcessId,
    /// Its start in clock ticks since boot.
    pub start_ticks: u64,
    /// Its pid in the innermost pid namespace it is in.
    pub ns_pid: u32,
    /// Effective user id, in our user namespace.
    pub uid: u32,
    /// Effective group id, in our user namespace.
    pub gid: u32,
    /// Main class, module or jar; else the program's name.
    pub main: String,
    /// Container id, as a guess from its cgroup.
    pub container: Option<String>,
    /// Path of `libjvm.so` as its maps have it: any bytes, not fit to print.
    pub libjvm: PathBuf,
    /// Address at which its first page is mapped.
    pub(super) base: u64,
    /// When it was mapped, if that was seen.
    pub(super) mapped: Option<MonoNs>,
}

impl Jvm {
    /// The same, which mapped `libjvm.so` at that time. Its process may be much older: what executes a JVM has often been
    /// a shell for a while.
    #[must_use]
    pub fn mapped_at(self, at: MonoNs) -> Jvm {
        Jvm { mapped: Some(at), ..self }
    }
}

/// Whether a pid with a start time from `/proc/PID/stat` (clock ticks since boot, rounded down) is the process that
/// BPF saw (nanoseconds). The exec id is not in `/proc` and so is not compared.
#[must_use]
pub fn is_same_process(start_ticks: u64, tgid: u32, bpf: ProcessId) -> bool {
    tgid == bpf.tgid && bpf.start / procfs::clock_tick() == start_ticks
}

/// Every JVM on the host that `/proc` shows us, in the order of pids.
/// A process whose memory lock is held for long is left out.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn discover() -> Result<Vec<Jvm>, Errno> {
    let mut patience = Patience::new(PATIENCE);
    let directory = open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut pids: Vec<u32> = rustix::fs::Dir::new(directory)?
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids.into_iter().filter_map(|pid| patience.run(pid, move || look_at(pid)).ok().flatten()).collect())
}

/// One process by its pid: `None` if it is no JVM, has ended, or does not let itself be read.
#[must_use]
pub fn find(tgid: u32) -> Option<Jvm> {
    Patience::new(PATIENCE).run(tgid, move || look_at(tgid)).ok().flatten()
}

/// All through one descriptor of `/proc/PID`, so that a reused pid cannot mix two processes.
fn look_at(tgid: u32) -> Option<Jvm> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(format!("/proc/{tgid}"), flags, Mode::empty()).ok()?;
    let read = |name| procfs::read_at(directory.as_fd(), name).ok();
    let (base, path) = libjvm_in(&read("maps")?)?;
    let stat = procfs::parse_stat(&read("stat")?).filter(|stat| !matches!(stat.state, b'Z' | b'X'))?;
    let status = procfs::parse_status(&read("status")?)?;
    let start = stat.start_ticks.saturating_mul(procfs::clock_tick());
    Some(Jvm {
        process: ProcessId { tgid, start, exec: 0 },
        start_ticks: stat.start_ticks,
        ns_pid: status.ns_pid,
        uid: status.uid,
        gid: status.gid,
        main: main_of(&read("cmdline")?),
        container: read("cgroup").and_then(|text| Membership::parse(&text).container()),
        libjvm: bytes_path(&path).to_owned(),
        base,
        mapped: None,
    })
}

/// Where `libjvm.so` begins in the text of `/proc/PID/maps`, and its path.
pub(super) fn libjvm_in(maps: &[u8]) -> Option<(u64, Vec<u8>)> {
    maps.split(|&b| b == b'\n').find_map(|line| {
        let path = line.strip_suffix(b" (deleted)").unwrap_or(line);
        if !path.ends_with(b"/libjvm.so") {
            return None;
        }
        // start-end perms offset dev inode path: the library's first page has offset 0.
        let mut fields = path.splitn(6, |&b| b == b' ');
        let start = fields.next()?.split(|&b| b == b'-').next()?;
        let offset = fields.nth(1)?;
        let path = fields.nth(2)?.trim_ascii_start();
        let start = u64::from_str_radix(std::str::from_utf8(start).ok()?, 16).ok()?;
        (offset.iter().all(|&b| b == b'0')).then(|| (start, path.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_libjvm_is_found() {
        let maps = b"55d0c0000000-55d0c0001000 r--p 00000000 08:01 7 /usr/bin/java\n\
            7f0000300000-7f0000400000 r-xp 00300000 08:01 9    /opt/a b/libjvm.so (deleted)\n\
            7f0000000000-7f0000300000 r--p 00000000 08:01 9    /opt/a b/libjvm.so (deleted)\n";
        assert_eq!(libjvm_in(maps), Some((0x7f00_0000_0000, b"/opt/a b/libjvm.so".to_vec())));
        assert_eq!(libjvm_in(b"1000-2000 r--p 00000000 08:01 7 /x/notlibjvm.so\n"), None);
        assert_eq!(libjvm_in(b"/libjvm.so\nzz-1 r 0 0 0 /libjvm.so\n"), None);
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
