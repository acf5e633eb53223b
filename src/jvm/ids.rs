//! Acting as the target's user: what a JVM accepts, and what an attacker in its place could do anyway.

use rustix::process::{Gid, Uid};
use rustix::process::{Signal, getgid, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::refusal::Refusal;

/// Dies with the process that started it: also after each change of ids, which makes the kernel forget the wish.
/// `false` if that process has ended already.
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

/// Runs `act` with effective ids (and so file system ids) of the target, no other groups, and no capability in
/// force. Real and saved ids stay ours, so that the target's user can neither signal nor trace us.
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
