//! Paths of cgroups as the host has them, derived inside a cgroup namespace (`cgroup_namespaces(7)`).
//!
//! containerd and CRI-O give each container a cgroup namespace where v2 alone is used. In such a namespace, paths begin
//! at our own cgroup, and those of other cgroups begin with `/..`, both in `/proc/PID/cgroup` and in
//! `/proc/self/mountinfo`. The kernel does not say where our own cgroup is. A mount that shows the whole hierarchy
//! does: in one of its directories is our own process.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;

use super::cgroup::CgroupMembership;
use super::cgroup_dir::{below, processes};
use super::hierarchies::{Hierarchies, MountedHierarchy};
use super::hierarchy::Hierarchy;
use super::path::is_outside;
use super::process_dir::ProcessDir;
use super::procfs;

impl CgroupMembership {
    /// The cgroups of a process.
    ///
    /// # Errors
    /// The kernel's error; `ENOENT` or `ESRCH` if the process has ended.
    pub fn of(tgid: u32) -> Result<CgroupMembership, Errno> {
        let process = ProcessDir::open(tgid)?;
        // A process that has ended and was not waited for keeps its cgroup of v2.
        let text = process.read("cgroup").or_else(|_| procfs::read_at(process.leader(), "cgroup"))?;
        Ok(CgroupMembership::parse(&text).absolute())
    }

    /// Turns the paths that our cgroup namespace shows (`cgroup_namespaces(7)`) into those of the host.
    #[must_use]
    pub fn absolute(mut self) -> CgroupMembership {
        for (hierarchy, root) in roots() {
            let path = match hierarchy {
                Hierarchy::V2 => self.unified.as_mut(),
                Hierarchy::V1(controller) => self.v1.get_mut(controller.name()),
            };
            if let Some(path) = path {
                *path = below_root(root, path);
            }
        }
        self
    }
}

impl Hierarchies {
    /// The hierarchies as they are mounted in our mount namespace, with the host's paths.
    #[must_use]
    pub fn mounted() -> Hierarchies {
        let mut found = Hierarchies::shown();
        for (hierarchy, root) in roots() {
            let mount = match hierarchy {
                Hierarchy::V2 => found.unified.as_mut(),
                Hierarchy::V1(controller) => found.v1[*controller as usize].as_mut(),
            };
            if let Some(mount) = mount {
                mount.root = below_root(root, &mount.root);
            }
        }
        found
    }
}

/// The root of our namespace, for each hierarchy that is mounted from above it. Empty in the host's namespace, and if
/// our root cannot be found.
fn roots() -> &'static BTreeMap<Hierarchy, PathBuf> {
    static ROOTS: OnceLock<BTreeMap<Hierarchy, PathBuf>> = OnceLock::new();
    ROOTS.get_or_init(find_roots)
}

fn find_roots() -> BTreeMap<Hierarchy, PathBuf> {
    let own = procfs::read("/proc/self/cgroup").unwrap_or_default();
    let (own, shown) = (CgroupMembership::parse(&own), Hierarchies::shown());
    let outside = shown.mounts().filter(|mount| is_outside(mount.root));
    outside
        .filter_map(|MountedHierarchy { hierarchy, point, .. }| {
            Some((hierarchy, root_in(point, own.in_hierarchy(hierarchy)?)?))
        })
        .collect()
}

/// The root of our namespace below a mount point, found by the cgroup with our process. The process is in `own` below
/// that root.
fn root_in(point: &Path, own: &Path) -> Option<PathBuf> {
    if is_outside(own) {
        return None;
    }
    let dir = below(point).into_iter().find(|dir| processes(dir).contains(&std::process::id()))?;
    let path = Path::new("/").join(dir.strip_prefix(point).ok()?);
    let levels = own.components().filter(|part| matches!(part, Component::Normal(_))).count();
    path.ancestors().nth(levels).map(Path::to_owned)
}

/// The path `shown`, which begins at `root`, from the same beginning as `root` itself.
fn below_root(root: &Path, shown: &Path) -> PathBuf {
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
