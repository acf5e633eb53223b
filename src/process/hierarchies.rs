//! Where the cgroups of a process are to be found as directories: v1, v2 and both at once.

use std::path::{Component, Path, PathBuf};

use super::cgroup::Membership;
use super::path::bytes_path;
use super::procfs;

/// A controller of v1 that has its own hierarchy. In v2 there is one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// `cpu`
    Cpu,
    /// `memory`
    Memory,
}

impl Controller {
    const ALL: [Controller; 2] = [Controller::Cpu, Controller::Memory];

    fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
        }
    }
}

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    unified: Option<Mount>,
    /// Of v1, in the order of [`Controller::ALL`].
    v1: [Option<Mount>; Controller::ALL.len()],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// Which cgroup is mounted there.
    root: PathBuf,
}

impl Hierarchies {
    /// As they are mounted in our mount namespace.
    #[must_use]
    pub fn mounted() -> Hierarchies {
        Hierarchies::parse(&procfs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Reads `proc_pid_mountinfo(5)`.
    fn parse(mountinfo: &[u8]) -> Hierarchies {
        let mut found = Hierarchies::default();
        for line in mountinfo.split(|&b| b == b'\n') {
            let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
            let (Some(root), Some(point)) = (fields.get(3), fields.get(4)) else { continue };
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

    /// The directories of a process's cgroup and all above it, in the hierarchy that has the controller. None if they
    /// cannot be seen from our namespaces.
    pub(super) fn levels(&self, controller: Controller, of: &Membership) -> Vec<PathBuf> {
        let own = Controller::ALL.into_iter().zip(&self.v1).find(|(other, _)| *other == controller);
        let v1 = own.and_then(|(_, mount)| mount.as_ref()).zip(of.v1.get(controller.name()));
        let v2 = || self.unified.as_ref().zip(of.unified.as_ref());
        v1.or_else(v2).map(|(mount, path)| mount.levels(path)).unwrap_or_default()
    }

    /// For tests: a hierarchy of v2, or of a controller of v1, in a directory.
    #[cfg(test)]
    pub(super) fn below(point: &Path, v1: Option<Controller>) -> Hierarchies {
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

impl Mount {
    /// The directories of a cgroup and all above it.
    fn levels(&self, cgroup: &Path) -> Vec<PathBuf> {
        let below = cgroup.strip_prefix(&self.root).unwrap_or_else(|_| Path::new(""));
        // A cgroup outside our namespace is shown as `/../x`.
        if below.components().any(|part| part == Component::ParentDir) {
            return Vec::new();
        }
        below.ancestors().map(|part| self.point.join(part.strip_prefix("/").unwrap_or(part))).collect()
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
            [Path::new("/sys/fs/cgroup/a"), Path::new("/sys/fs/cgroup/")]
        );
    }

    #[test]
    fn mounts_of_a_hybrid_host() {
        let text = b"30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
            31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            32 25 0:28 /box /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\nrubbish - x\n";
        let found = Hierarchies::parse(text);
        assert_eq!(found.unified.as_ref().unwrap().point, Path::new("/sys/fs/cgroup/unified"));
        let member = Membership::parse(b"3:cpu,cpuacct:/box/a\n4:memory:/b\n0::/c/d\n");
        let cpu = found.levels(Controller::Cpu, &member);
        assert_eq!(cpu, ["/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct/"].map(PathBuf::from));
        assert_eq!(found.levels(Controller::Memory, &member).len(), 3, "that of v2");
    }
}
