//! The worker's sandbox: it may compute, read the descriptors that it was given, and answer. The worker enters the
//! sandbox first after exec, before it reads a byte of a tenant's file.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, getuid, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{doors, memory};

/// Memory that the worker may write, bytes: parsed files, unpacked sections. Beyond it allocations fail and it dies.
const MAX_DATA: u64 = 1 << 30;
/// Address space, bytes: whole files are mapped to read their DWARF.
const MAX_ADDRESS_SPACE: u64 = 256 << 30;
/// Bytes that it may write to a file of its own in memory. All files that it gets are read-only.
const MAX_FILE: u64 = 1 << 30;
const NOBODY: u32 = 65534;

/// Gives up everything that the worker does not need. Only the calling thread is changed: there is no other yet.
///
/// # Errors
/// If the kernel refuses one of the steps. The worker must not run then.
pub(crate) fn enter() -> Result<()> {
    let parent = getppid();
    set_no_new_privs(true).context("no_new_privs")?;
    // Under memory pressure the kernel kills the worker first: it can be restarted. Older containers may forbid this.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    // Without this, pages of files that it has read count as its memory.
    let _ = memory::prepare();
    for (resource, limit) in [
        (Resource::Data, MAX_DATA),
        (Resource::As, MAX_ADDRESS_SPACE),
        (Resource::Nofile, doors::MAX_DESCRIPTORS as u64),
        (Resource::Fsize, MAX_FILE),
        (Resource::Core, 0),
    ] {
        lower(resource, limit).with_context(|| format!("limit of {resource:?}"))?;
    }
    if getuid().is_root() {
        match become_nobody() {
            // A container's root may lack the capabilities for this; the steps below need none.
            Ok(()) | Err(Errno::PERM) => {}
            Err(e) => return Err(e).context("becoming nobody"),
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("dropping capabilities")?;
    // The last of these steps: a change of ids makes the kernel forget the signal.
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to die with the parent")?;
    ensure!(getppid() == parent, "orphaned");
    doors::answer_path_calls().context("answering calls with a path")?;
    for filter in [doors::filter()?, filter(getpid())?] {
        seccompiler::apply_filter(&filter).context("seccomp filter")?;
    }
    Ok(())
}

/// Lowers a limit, soft and hard; never raises it.
fn lower(resource: Resource, limit: u64) -> rustix::io::Result<()> {
    let have = rustix::process::getrlimit(resource);
    let limit = have.maximum.map_or(limit, |have| have.min(limit));
    setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
}

fn become_nobody() -> rustix::io::Result<()> {
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // The bit is above the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(e) => return Err(e),
        }
    }
    set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_res_gid(gid, gid, gid)?;
    // A change of uid also makes the process undumpable: other processes of `nobody` cannot trace it.
    set_thread_res_uid(uid, uid, uid)
}

/// Allowed system calls: memory, the descriptors at hand, time, exit. None opens a path, makes a socket or affects
/// another process. Others fail with EPERM (the C library makes calls that it can do without), except calls with a
/// path, which [`doors`] answers.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
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
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The system calls that the worker with this process id may make.
fn filter(own: Pid) -> Result<BpfProgram> {
    let mut rules: BTreeMap<i64, _> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // `abort` ends a process by this call. The worker may end only itself.
    let own = u64::from(own.as_raw_nonzero().get().unsigned_abs());
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own);
    let to_itself = to_itself.and_then(|condition| SeccompRule::new(vec![condition]));
    rules.insert(libc::SYS_tgkill, vec![to_itself.context("seccomp rule")?]);
    let arch = std::env::consts::ARCH.try_into().context("seccomp for this processor")?;
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).context("seccomp rules")?;
    filter.try_into().context("seccomp program")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as `seccomp(2)` does, over the number of the call, the architecture and the arguments. Knows
    /// only the instructions that seccompiler writes.
    fn allows(filter: &BpfProgram, call: i64, first: u64) -> bool {
        let arch: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        let mut data = Vec::from(u32::try_from(call).unwrap().to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend([0; 8]);
        data.extend(first.to_le_bytes());
        data.resize(64, 0);
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let &seccompiler::sock_filter { code, jt, jf, k } = &filter[at];
            let jump = |taken: bool| usize::from(if taken { jt } else { jf });
            at += 1;
            match code {
                0x20 => accumulator = u32::from_le_bytes(*data[k as usize..].first_chunk().unwrap()),
                0x05 => at += k as usize,
                0x15 => at += jump(accumulator == k),
                0x06 => return k == libc::SECCOMP_RET_ALLOW,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn the_worker_can_signal_only_itself() {
        let filter = filter(Pid::from_raw(4711).unwrap()).unwrap();
        assert!(allows(&filter, libc::SYS_tgkill, 4711));
        for other in [0, 1, 4712, u64::from(u32::MAX)] {
            assert!(!allows(&filter, libc::SYS_tgkill, other), "{other}");
        }
    }

    #[test]
    fn it_reads_what_it_was_given_and_opens_nothing() {
        let filter = filter(getpid()).unwrap();
        assert!([libc::SYS_pread64, libc::SYS_mmap, libc::SYS_fstat].iter().all(|&c| allows(&filter, c, 3)));
        for call in [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_readlinkat,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_execve,
            libc::SYS_clone,
            // This call sets locks, leases and signals of a tenant's file.
            libc::SYS_fcntl,
        ] {
            assert!(!allows(&filter, call, 3), "{call}");
        }
    }
}
