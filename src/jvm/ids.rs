//! Acting as the target's user. A JVM accepts that user, and an attacker in the JVM's place has the user's rights
//! anyway.

use rustix::process::{Gid, Uid};
use rustix::process::{Signal, getgid, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

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

/// Runs `act` with the target's effective ids (and so file system ids), no other groups, and no effective capability, also
/// if the target is root's. Real and saved ids stay the profiler's, so that the target's user can neither signal nor trace
/// this process.
///
/// A change of ids from or to root changes the sets of capabilities, other changes do not. So this sets them itself.
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
    let own_sets = capabilities(None).map_err(denied)?;
    let without = CapabilitySets { effective: CapabilitySet::empty(), ..own_sets };
    // Else a profiler that is not root has no permitted capability after it was root for a moment.
    set_keep_capabilities(true).map_err(denied)?;
    set_thread_groups(&[]).map_err(denied)?;
    set_thread_res_gid(own_gid, Gid::from_raw(gid), own_gid).map_err(denied)?;
    let become_target = set_thread_res_uid(own_uid, Uid::from_raw(uid), own_uid);
    let is_ready = || set_capabilities(None, without).is_ok() && die_with_parent(parent);
    let result = match become_target {
        Ok(()) if is_ready() => act(),
        _ => Err(Refusal::NotPermitted),
    };
    set_thread_res_uid(own_uid, own_uid, own_uid).map_err(denied)?;
    set_thread_res_gid(own_gid, own_gid, own_gid).map_err(denied)?;
    set_capabilities(None, own_sets).map_err(denied)?;
    if die_with_parent(parent) { result } else { Err(Refusal::HelperFailed("orphaned".into())) }
}
