//! The directories of a process's cgroups: v1, v2 and both at once.

use std::path::{Path, PathBuf};

use super::cgroup::CgroupMembership;
use super::hierarchy::{Controller, Hierarchy};
use super::path::{bytes_path, is_outside};
use super::procfs;

/// The mount points of the cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    pub(super) unified: Option<Mount>,
    /// Hierarchies of v1, in the order of [`Controller::ALL`].
    pub(super) v1: [Option<Mount>; Controller::ALL.len()],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    point: PathBuf,
    /// The cgroup that is mounted there.
    pub(super) root: PathBuf,
}

/// A hierarchy, the cgroup that is mounted, and the mount point.
pub(super) struct MountedHierarchy<'h> {
    pub(super) hierarchy: Hierarchy,
    pub(super) root: &'h Path,
    pub(super) point: &'h Path,
}

impl Hierarchies {
    /// The hierarchies as they are mounted in our mount namespace, with the paths that our cgroup namespace shows.
    pub(super) fn shown() -> Hierarchies {
        Hierarchies::parse(&procfs::read("/proc/self/mountinfo").unwrap_or_default(), is_seen)
    }

    pub(super) fn mounts(&self) -> impl Iterator<Item = MountedHierarchy<'_>> {
        let v1 = Controller::ALL.into_iter().map(Hierarchy::V1).zip(&self.v1);
        let all = std::iter::once((Hierarchy::V2, &self.unified)).chain(v1);
        all.filter_map(|(hierarchy, mount)| Some((hierarchy, mount.as_ref()?)))
            .map(|(hierarchy, mount)| MountedHierarchy { hierarchy, root: &mount.root, point: &mount.point })
    }

    /// Parses `proc_pid_mountinfo(5)`. Leaves out mounts that `is_seen` does not find at their points, by device.
    fn parse(mountinfo: &[u8], is_seen: impl Fn(&Path, &[u8]) -> bool) -> Hierarchies {
        let mut found = Hierarchies::default();
        for line in mountinfo.split(|&b| b == b'\n') {
            let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
            let (Some(device), Some(root), Some(point)) = (fields.get(2), fields.get(3), fields.get(4))
            else {
                continue;
            };
            if !fields.iter().any(|field| field.starts_with(b"cgroup")) || !is_seen(bytes_path(point), device)
            {
                continue;
            }
            let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
            let (Some(kind), Some(options)) = (fields.get(dash + 1), fields.get(dash + 3)) else { continue };
            let mount = || Mount { point: bytes_path(point).into(), root: bytes_path(root).into() };
            match *kind {
                b"cgroup2" => {
                    found.unified.get_or_insert_with(mount);
                }
                b"cgroup" => {
                    for (slot, controller) in found.v1.iter_mut().zip(Controller::ALL) {
                        if options.split(|&b| b == b',').any(|option| option == controller.name().as_bytes())
                        {
                            slot.get_or_insert_with(mount);
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// The directories of a process's cgroup and of all above it, in the hierarchy that has the controller. Empty if
    /// our namespaces do not show them.
    pub(super) fn levels(&self, controller: Controller, of: &CgroupMembership) -> Vec<PathBuf> {
        let both = [Hierarchy::V1(controller), Hierarchy::V2];
        let found = both.into_iter().find_map(|h| Some((self.mount(h)?, of.in_hierarchy(h)?)));
        found.map(|(mount, path)| mount.levels(path)).unwrap_or_default()
    }

    /// The mounted hierarchies, each once. A hierarchy with several controllers goes by the first one.
    pub fn all(&self) -> impl Iterator<Item = (Hierarchy, &Path)> {
        let mut seen: Vec<&Path> = Vec::new();
        self.mounts().filter_map(move |MountedHierarchy { hierarchy, point, .. }| {
            let new = !seen.contains(&point);
            seen.push(point);
            new.then_some((hierarchy, point))
        })
    }

    /// The hierarchy that distinguishes containers. If v1 has a controller that containers are made for, the hierarchy
    /// is that of v1: all processes may be in the root of v2.
    #[must_use]
    pub fn naming(&self) -> Hierarchy {
        const V1_NAMING: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];
        let v1 = V1_NAMING.into_iter().find(|controller| self.v1[*controller as usize].is_some());
        v1.map_or(Hierarchy::V2, Hierarchy::V1)
    }

    /// The directory of a process's cgroup in a hierarchy; `None` if our mounts do not show it.
    #[must_use]
    pub fn dir(&self, hierarchy: Hierarchy, of: &CgroupMembership) -> Option<PathBuf> {
        self.mount(hierarchy)?.levels(of.in_hierarchy(hierarchy)?).into_iter().next()
    }

    /// The path of a directory as `/proc/PID/cgroup` writes it.
    pub(super) fn path_of(&self, hierarchy: Hierarchy, dir: &Path) -> Option<PathBuf> {
        let mount = self.mount(hierarchy)?;
        Some(mount.root.join(dir.strip_prefix(&mount.point).ok()?))
    }

    fn mount(&self, hierarchy: Hierarchy) -> Option<&Mount> {
        match hierarchy {
            Hierarchy::V2 => self.unified.as_ref(),
            Hierarchy::V1(controller) => self.v1[controller as usize].as_ref(),
        }
    }

    /// For tests: one hierarchy in a directory, of v2 or of a controller of v1.
    #[cfg(test)]
    pub(crate) fn below(point: &Path, v1: Option<Controller>) -> Hierarchies {
        let mount = || Some(Mount { point: point.into(), root: "/".into() });
        match v1 {
            None => Hierarchies { unified: mount(), ..Hierarchies::default() },
            Some(v1) => {
                let v1 = Controller::ALL.map(|other| if other == v1 { mount() } else { None });
                Hierarchies { unified: None, v1 }
            }
        }
    }
}

/// Whether the device at a mount point is the one that was mounted there, given as `MAJOR:MINOR`. Another mount may lie
/// over it.
fn is_seen(point: &Path, device: &[u8]) -> bool {
    let seen =
        rustix::fs::stat(point).map(|stat| (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)));
    seen.is_ok_and(|(major, minor)| format!("{major}:{minor}").as_bytes() == device)
}

impl Mount {
    /// The directories of a cgroup and of all above it, up to the mount point.
    fn levels(&self, cgroup: &Path) -> Vec<PathBuf> {
        let Ok(below) = cgroup.strip_prefix(&self.root) else { return Vec::new() };
        if is_outside(below) {
            return Vec::new();
        }
        below.ancestors().map(|part| self.point.join(part)).collect()
    }
}

/// For tests: makes a cgroup's directory below `root`, with these files.
#[cfg(test)]
pub(super) fn test_dir(root: &Path, name: &str, files: &[(&str, &str)]) {
    std::fs::create_dir_all(root.join(name)).unwrap();
    for (file, text) in files {
        std::fs::write(root.join(name).join(file), text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_the_namespace_is_not_followed() {
        let mount = Mount { point: "/sys/fs/cgroup".into(), root: "/".into() };
        assert_eq!(mount.levels(Path::new("/../../etc")), Vec::<PathBuf>::new());
        assert_eq!(
            mount.levels(Path::new("/a")),
            [Path::new("/sys/fs/cgroup/a"), Path::new("/sys/fs/cgroup")]
        );
    }

    #[test]
    fn mounts_of_a_hybrid_host() {
        let text = b"29 25 0:25 / /sys/fs/cgroup rw - cgroup2 hidden rw\n\
            30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
            31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            32 25 0:28 /box /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\nrubbish - x\n";
        let found = Hierarchies::parse(text, |_, device| device != b"0:25");
        assert_eq!(found.unified.as_ref().unwrap().point, Path::new("/sys/fs/cgroup/unified"));
        let member = CgroupMembership::parse(b"3:cpu,cpuacct:/box/a\n4:memory:/b\n0::/c/d\n");
        let cpu = found.levels(Controller::Cpu, &member);
        assert_eq!(cpu, ["/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct/"].map(PathBuf::from));
        assert_eq!(found.levels(Controller::Memory, &member).len(), 3, "that of v2");
        let all: Vec<_> = found.all().map(|(hierarchy, _)| hierarchy.to_string()).collect();
        assert_eq!(all, ["v2", "v1 cpu", "v1 cpuset"]);
        assert_eq!(found.naming(), Hierarchy::V1(Controller::Cpu));
        let dir = found.dir(found.naming(), &member).unwrap();
        assert_eq!(found.path_of(found.naming(), &dir).unwrap(), Path::new("/box/a"));
    }

    #[test]
    fn numbers_are_those_of_the_order() {
        for number in 0..=Controller::ALL.len() {
            let hierarchy = Hierarchy::numbered(number as u32).unwrap();
            assert_eq!(usize::from(hierarchy.number()), number);
        }
        assert_eq!(Hierarchy::numbered(15), None);
    }
}
