//! Acting as the target's user. A JVM accepts that user, and an attacker in the JVM's place has the user's rights
//! anyway.

use rustix::process::{Gid, Uid};
use rustix::process::{Signal, getgid, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::refusal::Refusal;

/// Makes this process die with its parent. Needed again after each change of ids, which resets the kernel's setting.
/// `false` if the parent has already exited.
pub(super) fn die_with_parent(parent: u32) -> bool {
    let asked = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    asked && getppid().is_some_and(|p| p.as_raw_nonzero().get().unsigned_abs() == parent)
}

/// User and group of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserIds {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Runs `act` with the target's effective ids (and so file system ids), no other groups, and no effective capability.
/// Real and saved ids stay the profiler's, so that the target's user can neither signal nor trace this process.
///
/// Only for a process with one thread: on Linux ids belong to threads.
pub(super) fn as_target<T>(
    UserIds { uid, gid }: UserIds,
    parent: u32,
    act: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let (own_uid, own_gid) = (getuid(), getgid());
    let denied = |_| Refusal::NotPermitted;
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Refusal::NotPermitted);
    }
    set_thread_groups(&[]).map_err(denied)?;
    set_thread_res_gid(own_gid, Gid::from_raw(gid), own_gid).map_err(denied)?;
    let become_target = set_thread_res_uid(own_uid, Uid::from_raw(uid), own_uid);
    let result = match become_target {
        Ok(()) if die_with_parent(parent) => act(),
        _ => Err(Refusal::NotPermitted),
    };
    set_thread_res_uid(own_uid, own_uid, own_uid).map_err(denied)?;
    set_thread_res_gid(own_gid, own_gid, own_gid).map_err(denied)?;
    if die_with_parent(parent) { result } else { Err(Refusal::HelperFailed("orphaned".into())) }
}
