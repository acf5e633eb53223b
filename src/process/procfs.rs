//! Parses `/proc/PID/{stat,status}`. Processes choose the names in them: any bytes, which never end a parse or forge a
//! field.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

/// Longest file that is read, bytes. The longest that the kernel makes are `mountinfo`, of 100,000 mounts
/// (`fs.mount-max`), and `net/unix`.
const MAX_FILE: u64 = 64 << 20;

/// Arguments and environment of a process together, bytes: exec takes no more than 6 MiB (`bprm_stack_limits` in
/// `fs/exec.c`). A process may let the kernel show more of its memory in their place (`PR_SET_MM`).
pub const MAX_ARGUMENTS: u64 = 6 << 20;

/// The fields of `/proc/PID/stat` that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Name of the group leader, at most 15 bytes (64 for kernel workers).
    pub comm: Vec<u8>,
    /// State letter; `Z` and `X` mean that the task has ended.
    pub state: u8,
    /// Thread group of the parent.
    pub parent: u32,
    /// The group leader is exiting: `PF_EXITING` of include/linux/sched.h, the same since 2.6.
    pub exiting: bool,
    /// CPU time in user space and in the kernel, in clock ticks.
    pub cpu_ticks: u64,
    /// CPU time of children that have ended and were waited for, in clock ticks.
    pub children_cpu_ticks: u64,
    /// Number of threads, an ended leader included.
    pub threads: u32,
    /// Start of the group leader, in clock ticks since boot.
    pub start_ticks: u64,
    /// First address of the program's own code; 0 for kernel threads, 1 if hidden.
    pub start_code: u64,
    /// Address after the last of the program's own code.
    pub end_code: u64,
    /// Where the stack begins: every exec chooses it at random, fork keeps it. 0 for kernel threads and if hidden.
    pub start_stack: u64,
}

impl Stat {
    /// Whether the task neither runs nor waits for a CPU.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.state != b'R'
    }
}

/// Parses the line of `/proc/PID/stat`. The name stands between the first `(` and the *last* `)`.
#[must_use]
pub fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let open = bytes.iter().position(|&b| b == b'(')?;
    let close = bytes.iter().rposition(|&b| b == b')')?;
    let comm = bytes.get(open + 1..close)?.to_vec();
    // proc_pid_stat(5) numbers the fields from 1; the third is the first after the name.
    let fields: Vec<&[u8]> = bytes.get(close + 2..)?.trim_ascii_end().split(|&b| b == b' ').collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let sum = |first: usize| decimal(field(first)?)?.checked_add(decimal(field(first + 1)?)?);
    Some(Stat {
        comm,
        state: *field(3)?.first()?,
        parent: u32::try_from(decimal(field(4)?)?).ok()?,
        exiting: decimal(field(9)?)? & 4 != 0,
        cpu_ticks: sum(14)?,
        children_cpu_ticks: sum(16)?,
        threads: u32::try_from(decimal(field(20)?)?).ok()?,
        start_ticks: decimal(field(22)?)?,
        start_code: decimal(field(26)?)?,
        end_code: decimal(field(27)?)?,
        start_stack: decimal(field(28)?)?,
    })
}

/// Reads `/proc/PID/stat`; `None` if the process has ended and was waited for.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&read(&format!("/proc/{pid}/stat")).ok()?)
}

/// CPU time that a process has used, without that of its children; zero if the process does not exist.
#[must_use]
pub fn cpu(pid: u32) -> Duration {
    stat(pid).map_or(Duration::ZERO, |stat| clock_ticks(stat.cpu_ticks))
}

/// Resident memory of a process, bytes: the second field of `/proc/PID/statm`, proc_pid_statm(5).
#[must_use]
pub fn resident(pid: u32) -> u64 {
    let statm = read(&format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split(|&b| b == b' ').nth(1).and_then(decimal);
    pages.map_or(0, |pages| pages * rustix::param::page_size() as u64)
}

/// Length of a clock tick of `/proc`, ns.
#[must_use]
pub fn clock_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The duration of this many clock ticks of `/proc`.
#[must_use]
pub fn clock_ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(clock_tick()))
}

/// The identity of a process, from `/proc/PID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Thread group id: a thread's status names its process.
    pub tgid: u32,
    /// Effective user id, in the profiler's user namespace.
    pub uid: u32,
    /// Effective group id, in the profiler's user namespace.
    pub gid: u32,
    /// Process id in the innermost pid namespace of the process.
    pub ns_pid: u32,
    /// Thread id in that namespace.
    pub ns_tid: u32,
    /// The task, or its process, has a SIGKILL that it has not handled yet. An exit of one thread sends the signal to
    /// the others.
    pub killed: bool,
}

/// Reads `/proc/PID/status` or `/proc/PID/task/TID/status`; `None` if the task has ended and was waited for.
#[must_use]
pub fn status(path: &str) -> Option<Status> {
    parse_status(&read(path).ok()?)
}

/// Parses `/proc/PID/status`. The name, which the process chooses, is escaped there and stands in the first line.
#[must_use]
pub fn parse_status(bytes: &[u8]) -> Option<Status> {
    let line = |name: &[u8]| bytes.split(|&b| b == b'\n').skip(1).find_map(|line| line.strip_prefix(name));
    let id = |line: &[u8], nth: usize| {
        let word = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(nth)?;
        u32::try_from(decimal(word)?).ok()
    };
    // Kernels without pid namespaces have only the second name of each pair.
    let innermost = |names: [&[u8]; 2]| {
        let ids = names.into_iter().find_map(line)?;
        let innermost = ids.split(u8::is_ascii_whitespace).rfind(|word| !word.is_empty())?;
        u32::try_from(decimal(innermost)?).ok()
    };
    let pending = |name: &[u8]| {
        let mask = line(name).and_then(|mask| std::str::from_utf8(mask.trim_ascii()).ok());
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
    };
    Some(Status {
        killed: (pending(b"SigPnd:") | pending(b"ShdPnd:")) & 1 << (libc::SIGKILL - 1) != 0,
        tgid: id(line(b"Tgid:")?, 0)?,
        uid: id(line(b"Uid:")?, 1)?,
        gid: id(line(b"Gid:")?, 1)?,
        ns_pid: innermost([b"NStgid:", b"Tgid:"])?,
        ns_tid: innermost([b"NSpid:", b"Pid:"])?,
    })
}

/// Reads a whole file in a directory of `/proc`.
///
/// # Errors
/// The kernel's error; `ESRCH` or `ENOENT` if the process has ended, `EFBIG` if the file is longer than 64 MiB.
pub fn read_at(dir: BorrowedFd<'_>, name: &str) -> Result<Vec<u8>, Errno> {
    let bytes = read_start(dir, name, MAX_FILE + 1)?;
    if bytes.len() as u64 > MAX_FILE { Err(Errno::FBIG) } else { Ok(bytes) }
}

/// Reads at most `most` bytes of a file in a directory of `/proc`, from its start.
///
/// # Errors
/// The kernel's error; `ESRCH` or `ENOENT` if the process has ended.
pub fn read_start(dir: BorrowedFd<'_>, name: &str, most: u64) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = std::fs::File::from(openat(dir, name, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|e| super::errno_of(&e))?;
    Ok(bytes)
}

/// Opens the file of an `O_PATH` descriptor.
///
/// # Errors
/// The kernel's error.
pub fn reopen(found: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())
}

/// Reads a whole file of `/proc` by its path.
///
/// # Errors
/// When the file cannot be opened or read; `EFBIG` if it is longer than 64 MiB.
pub fn read(path: &str) -> Result<Vec<u8>, Errno> {
    read_at(rustix::fs::CWD, path)
}

/// A hexadecimal number without sign or prefix.
pub(super) fn hex(digits: &[u8]) -> Option<u64> {
    number(digits, 16)
}

/// A decimal number without sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    number(digits, 10)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` accepts a sign.
    digits.first().filter(|b| b.is_ascii_alphanumeric())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields_after_it() {
        let fields = "S 7 1 1 0 -1 4194560 1 0 0 0 5 6 70 80 20 0 3 0 4567 1 1 1 1 1 140720000 0";
        let line = format!("99 (a) R 1 1 (\n\u{fffd}) {fields}\n");
        let stat = parse_stat(line.as_bytes()).unwrap();
        assert_eq!(stat.comm, "a) R 1 1 (\n\u{fffd}".as_bytes());
        assert_eq!((stat.state, stat.parent, stat.threads), (b'S', 7, 3));
        assert_eq!((stat.cpu_ticks, stat.children_cpu_ticks), (11, 150));
        assert_eq!((stat.start_ticks, stat.start_stack), (4567, 140_720_000));
        let exiting = line.replace(" 4194560 ", " 4194564 ");
        assert!(!stat.exiting && parse_stat(exiting.as_bytes()).unwrap().exiting);
        for len in 0..line.len() - 12 {
            assert_eq!(parse_stat(&line.as_bytes()[..len]), None, "{len}");
        }
    }

    #[test]
    fn status() {
        let text =
            b"Name:\tUid:\\n1\nUmask:\t0022\nTgid:\t98\nPid:\t99\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t6\t5\t5\n\
            NStgid:\t98\t12\t1\nNSpid:\t99\t13\t2\n";
        let status = Status { tgid: 98, uid: 1001, gid: 6, ns_pid: 1, ns_tid: 2, killed: false };
        assert_eq!(parse_status(text), Some(status));
        for (line, killed) in [
            ("SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n", true),
            ("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", true),
            ("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000001\n", false),
        ] {
            let text = [text, line.as_bytes()].concat();
            assert_eq!(parse_status(&text), Some(Status { killed, ..status }), "{line}");
        }
        assert_eq!(parse_status(b"Name:\tx\nTgid:\t9\nPid:\t9\nUid:\t1\t2\nGid:\t1\t2\n").unwrap().ns_pid, 9);
        assert_eq!(parse_status(b"Name:\tx\nUid:\t1\n"), None);
        assert_eq!(parse_status(b""), None);
    }

    #[test]
    fn our_own() {
        let stat = stat(std::process::id()).unwrap();
        assert!(stat.start_ticks > 0 && stat.start_stack > 0 && stat.threads >= 1);
        assert!(stat.start_code < stat.end_code);
        let status = parse_status(&read("/proc/self/status").unwrap()).unwrap();
        assert_eq!(status.tgid, std::process::id());
        assert_eq!(status.uid, rustix::process::geteuid().as_raw());
    }
}
