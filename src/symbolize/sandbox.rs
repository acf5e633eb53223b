//! What the worker may do: compute, read the descriptors it is given, answer. First thing after exec, before it has
//! read a byte of anybody's file.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, Signal, getppid, getuid, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Memory that the worker may write, bytes: parsed files and unpacked sections. Beyond it allocations fail and it dies.
const MAX_DATA: u64 = 1 << 30;
/// Address space, bytes: whole files are mapped to read their DWARF.
const MAX_ADDRESS_SPACE: u64 = 256 << 30;
const MAX_DESCRIPTORS: u64 = 4096;
const NOBODY: u32 = 65534;

/// Gives up everything that the worker does not need. Only the thread that calls is changed: there is no other yet.
///
/// # Errors
/// If the kernel refuses one of the steps: then the worker must not run.
pub(crate) fn enter() -> Result<()> {
    let parent = getppid();
    set_no_new_privs(true).context("no_new_privs")?;
    // Under memory pressure the worker goes first: it can be restarted. Older containers may forbid the file.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    for (resource, limit) in [
        (Resource::Data, MAX_DATA),
        (Resource::As, MAX_ADDRESS_SPACE),
        (Resource::Nofile, MAX_DESCRIPTORS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ] {
        lower(resource, limit).with_context(|| format!("limit of {resource:?}"))?;
    }
    if getuid().is_root() {
        match become_nobody() {
            // A container's root may lack the capabilities for it; the steps below need none.
            Ok(()) | Err(Errno::PERM) => {}
            Err(e) => return Err(e).context("becoming nobody"),
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("dropping capabilities")?;
    // Last of these: a change of ids makes the kernel forget it.
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to die with the parent")?;
    ensure!(getppid() == parent, "orphaned");
    seccompiler::apply_filter(&filter()?).context("seccomp filter")
}

/// Lowers a limit, soft and hard; never above what it is.
fn lower(resource: Resource, limit: u64) -> rustix::io::Result<()> {
    let have = rustix::process::getrlimit(resource);
    let limit = have.maximum.map_or(limit, |have| have.min(limit));
    setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
}

fn become_nobody() -> rustix::io::Result<()> {
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // Above the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(e) => return Err(e),
        }
    }
    set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_res_gid(gid, gid, gid)?;
    // A change of uid also makes the process undumpable: others who run as nobody cannot trace it.
    set_thread_res_uid(uid, uid, uid)
}

/// System calls that remain: memory, the descriptors at hand, time, the end. None takes a path, makes a socket or
/// touches another process; what is not named fails with EPERM (the C library asks for things that it can do without).
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// `fstat` by another name: `statx` and `newfstatat` take paths too, but only with an empty path and `AT_EMPTY_PATH`
/// can they be told from `stat`; reading metadata of a path reveals no content, so both stay.
const ALLOWED_METADATA: &[i64] = &[libc::SYS_statx, libc::SYS_newfstatat];

fn filter() -> Result<BpfProgram> {
    let rules: BTreeMap<i64, _> =
        ALLOWED.iter().chain(ALLOWED_METADATA).map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().context("seccomp for this processor")?;
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).context("seccomp rules")?;
    filter.try_into().context("seccomp program")
}
