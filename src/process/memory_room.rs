//! The memory limits of a process's cgroups, and how much is left below them.

use std::fs;
use std::path::Path;

use super::cgroup::CgroupMembership;
use super::hierarchies::Hierarchies;
use super::hierarchy::Controller;

/// The tightest of a process's memory limits, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// The lowest limit, bytes.
    pub limit: u64,
    /// The least that is left below a limit, bytes. Page cache that the kernel would reclaim first does not count as
    /// used.
    pub left: u64,
}

/// v1 writes "no limit" as the largest number of pages; no machine has this many bytes.
const NO_LIMIT: u64 = 1 << 60;

impl Hierarchies {
    /// The limits of a process's cgroup and of those above it; `None` if there is no limit or none can be seen.
    #[must_use]
    pub fn memory(&self, of: &CgroupMembership) -> Option<MemoryRoom> {
        let rooms = self.levels(Controller::Memory, of).into_iter().filter_map(|dir| room(&dir));
        rooms.reduce(|a, b| MemoryRoom { limit: a.limit.min(b.limit), left: a.left.min(b.left) })
    }
}

fn room(dir: &Path) -> Option<MemoryRoom> {
    let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
    // v2, then v1. The counters with these names include the reclaimable page cache of cgroups below.
    let files = [
        ("memory.max", "memory.current", "inactive_file "),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ];
    files.into_iter().find_map(|(limit, used, cache)| {
        let limit: u64 = text(limit)?.trim().parse().ok().filter(|&limit| limit < NO_LIMIT)?;
        let used: u64 = text(used)?.trim().parse().ok()?;
        let stat = text("memory.stat").unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse().ok()).unwrap_or(0);
        Some(MemoryRoom { limit, left: limit.saturating_sub(used.saturating_sub(cache)) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::hierarchies::test_dir as dir;

    #[test]
    fn the_tightest_level_counts() {
        let tmp = tempfile::tempdir().unwrap();
        let pod = [
            ("memory.max", "1000\n"),
            ("memory.current", "900\n"),
            ("memory.stat", "file 7\ninactive_file 50\n"),
        ];
        dir(tmp.path(), "pod", &pod);
        dir(tmp.path(), "pod/box", &[("memory.max", "800\n"), ("memory.current", "100\n")]);
        dir(tmp.path(), "pod/free", &[("memory.max", "max\n"), ("memory.current", "100\n")]);
        let of = |path: &str| {
            Hierarchies::below(tmp.path(), None)
                .memory(&CgroupMembership::parse(format!("0::{path}\n").as_bytes()))
        };
        assert_eq!(of("/pod/box"), Some(MemoryRoom { limit: 800, left: 150 }));
        assert_eq!(of("/pod/free"), Some(MemoryRoom { limit: 1000, left: 150 }));
        assert_eq!(of("/elsewhere"), None);
        assert_eq!(of("/"), None);
    }

    #[test]
    fn version_1() {
        let tmp = tempfile::tempdir().unwrap();
        let limited = [
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "1200\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 150\n"),
        ];
        dir(tmp.path(), "a", &limited);
        dir(
            tmp.path(),
            "",
            &[("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "5\n")],
        );
        let v1 = Hierarchies::below(tmp.path(), Some(Controller::Memory));
        let of = |text: &[u8]| v1.memory(&CgroupMembership::parse(text));
        assert_eq!(of(b"5:memory:/a\n"), Some(MemoryRoom { limit: 1000, left: 0 }));
        assert_eq!(of(b"5:memory:/\n"), None);
    }
}
