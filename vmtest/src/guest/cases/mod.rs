//! The cases: each file has one or two, as functions that return their results or an error of one sentence.

pub(super) mod cgroup;
pub(super) mod events;
pub(super) mod hostile;
pub(super) mod hotplug;
pub(super) mod leave;
pub(super) mod locks;
pub(super) mod musl;
pub(super) mod native;
pub(super) mod pids;
pub(super) mod probed;
pub(super) mod profile;
pub(super) mod refusals;
pub(super) mod two;
pub(super) mod unwind;
pub(super) mod waits;

use super::folded::Folded;

/// The stacks of processes with this name.
fn of(all: &Folded, comm: &str) -> Folded {
    all.keep(|stack| stack[0] == comm)
}
