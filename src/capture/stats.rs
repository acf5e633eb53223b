//! What the kernel counts of a BPF program: its run time, and how often it was skipped. `unsafe` is allowed here because libbpf-rs 0.27
//! has no call for one program's counters.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Run time of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Run time in nanoseconds.
    pub ns: u64,
    /// Number of runs.
    pub runs: u64,
}

impl RunStats {
    pub(super) fn scale(self, by: f64) -> RunStats {
        let scale = |n: u64| (n as f64 * by) as u64;
        RunStats { ns: scale(self.ns), runs: scale(self.runs) }
    }

    /// What was added since `before`.
    pub(super) fn since(self, before: RunStats) -> RunStats {
        RunStats { ns: self.ns.saturating_sub(before.ns), runs: self.runs.saturating_sub(before.runs) }
    }
}

impl std::ops::AddAssign for RunStats {
    fn add_assign(&mut self, other: RunStats) {
        self.ns += other.ns;
        self.runs += other.runs;
    }
}

/// Enables the kernel's run time statistics of BPF programs until the descriptor is closed.
///
/// # Errors
/// `EINVAL` before 5.8, `EPERM` without `CAP_SYS_ADMIN`.
pub(super) fn enable() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and returns a descriptor.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads a program's run time.
///
/// # Errors
/// When bpf(2) refuses `BPF_OBJ_GET_INFO_BY_FD`.
pub(super) fn read(program: BorrowedFd<'_>) -> io::Result<RunStats> {
    let info = info(program)?;
    Ok(RunStats { ns: info.run_time_ns, runs: info.run_cnt })
}

/// How often the kernel skipped a program, because the program or another one ran on the CPU already. 0 where the kernel
/// does not count that: before 6.1 for raw tracepoints, where it skips none, and before 6.7 for kprobes.
///
/// # Errors
/// When bpf(2) refuses `BPF_OBJ_GET_INFO_BY_FD`.
pub(super) fn skipped(program: BorrowedFd<'_>) -> io::Result<u64> {
    info(program).map(|info| info.recursion_misses)
}

fn info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is `len` bytes and lives through the call; all its pointers are null, so nothing else is written.
    let rc = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) };
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(-rc));
    }
    Ok(info)
}
