//! Lists the directories of cgroups, and the processes in them.

use std::path::{Path, PathBuf};

use super::procfs;

/// Directories that are read in one hierarchy: a tenant that may make cgroups may make any number.
const MAX_DIRS: usize = 65_536;

/// A directory and all directories below it, parents first.
pub(super) fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_DIRS {
        // A directory that has gone has no entries.
        let entries = std::fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(dirs.map(|entry| entry.path()));
        next += 1;
    }
    found
}

/// The processes of a cgroup, with the pids of this pid namespace.
pub(super) fn processes(dir: &Path) -> Vec<u32> {
    // A threaded cgroup of v2 does not list its processes; the cgroup above it does.
    let text = std::fs::read(dir.join("cgroup.procs")).unwrap_or_default();
    text.split(|&b| b == b'\n')
        .filter_map(procfs::decimal)
        .filter_map(|pid| u32::try_from(pid).ok())
        .collect()
}
