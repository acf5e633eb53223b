//! The cases: each a file, each a function that gives what it found or says in one sentence what is wrong.

pub(super) mod cgroup;
pub(super) mod hotplug;
pub(super) mod musl;
pub(super) mod native;
pub(super) mod pids;
pub(super) mod profile;
pub(super) mod refusals;
pub(super) mod two;
