//! Paths of cgroups as the host has them, seen from a cgroup namespace (`cgroup_namespaces(7)`).
//!
//! containerd and CRI-O give one to each container where v2 alone is used. In it paths begin at our own cgroup, and those of
//! others with `/..`, both in `/proc/PID/cgroup` and in `/proc/self/mountinfo`. The kernel does not say where our own cgroup
//! is; a mount that shows the whole hierarchy does: in one of its directories is our own process.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use super::cgroup::Membership;
use super::group::{below, processes};
use super::hierarchies::Hierarchies;
use super::hierarchy::Hierarchy;
use super::procfs;

/// Where the root of our namespace is, in the hierarchies that are mounted from above it: none in the host's namespace, and
/// none where ours cannot be found.
pub(super) fn roots() -> &'static BTreeMap<Hierarchy, PathBuf> {
    static ROOTS: OnceLock<BTreeMap<Hierarchy, PathBuf>> = OnceLock::new();
    ROOTS.get_or_init(find_roots)
}

/// Whether a path as the kernel shows it lies outside our namespace.
pub(super) fn is_outside(shown: &Path) -> bool {
    shown.components().any(|part| part == Component::ParentDir)
}

fn find_roots() -> BTreeMap<Hierarchy, PathBuf> {
    let own = procfs::read("/proc/self/cgroup").unwrap_or_default();
    let (own, shown) = (Membership::parse(&own), Hierarchies::shown());
    let outside = shown.mounts().filter(|(_, root, _)| is_outside(root));
    outside
        .filter_map(|(hierarchy, _, point)| Some((hierarchy, root_in(point, own.in_hierarchy(hierarchy)?)?)))
        .collect()
}

/// The root of our namespace below a mount point, by the cgroup there that our process is in, `own` below that root.
fn root_in(point: &Path, own: &Path) -> Option<PathBuf> {
    if is_outside(own) {
        return None;
    }
    let dir = below(point).into_iter().find(|dir| processes(dir).contains(&std::process::id()))?;
    let path = Path::new("/").join(dir.strip_prefix(point).ok()?);
    let levels = own.components().filter(|part| matches!(part, Component::Normal(_))).count();
    path.ancestors().nth(levels).map(Path::to_owned)
}

/// `shown`, which begins at `root`, from the same beginning as that.
pub(super) fn below_root(root: &Path, shown: &Path) -> PathBuf {
    let mut path = root.to_owned();
    for part in shown.components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_our_namespace() {
        let root = Path::new("/kubepods.slice/pod1/own.scope");
        for (shown, path) in [
            ("/", "/kubepods.slice/pod1/own.scope"),
            ("/below", "/kubepods.slice/pod1/own.scope/below"),
            ("/../other.scope/a", "/kubepods.slice/pod1/other.scope/a"),
            ("/../../..", "/"),
            ("/../../../../../etc", "/etc"),
        ] {
            assert_eq!(below_root(root, Path::new(shown)), Path::new(path), "{shown}");
        }
    }

    #[test]
    fn the_root_is_found_by_our_own_process() {
        let tmp = tempfile::tempdir().unwrap();
        let own = tmp.path().join("pods/own/inner");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(tmp.path().join("cgroup.procs"), "1\n").unwrap();
        assert_eq!(root_in(tmp.path(), Path::new("/inner")), None);
        std::fs::write(own.join("cgroup.procs"), format!("1\n{}\n", std::process::id())).unwrap();
        assert_eq!(root_in(tmp.path(), Path::new("/inner")).as_deref(), Some(Path::new("/pods/own")));
        assert_eq!(root_in(tmp.path(), Path::new("/../inner")), None, "we have left it");
        assert_eq!(root_in(tmp.path(), Path::new("/")).as_deref(), Some(Path::new("/pods/own/inner")));
    }
}
