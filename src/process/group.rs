//! A cgroup as a directory: its identity, and its processes.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cgroup::CgroupMembership;
use super::cgroup_dir::{below, processes};
use super::hierarchies::Hierarchies;
use super::hierarchy::Hierarchy;

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const MAGICS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];
/// kernfs gives this inode number to the root of every hierarchy.
const ROOT: u64 = 1;
/// The deepest level at which a chosen cgroup may lie: `JP_MAX_LEVEL` of `bpf/abi.h`.
pub const MAX_LEVEL: u32 = 63;

/// Identity of a cgroup. kernfs numbers the cgroups of a hierarchy and uses no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId {
    /// The hierarchy in which `id` is the cgroup's number.
    pub hierarchy: Hierarchy,
    /// Number in the hierarchy: the inode number of the directory.
    pub id: u64,
}

/// A cgroup that existed when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Identity of the cgroup.
    pub id: GroupId,
    /// Path as `/proc/PID/cgroup` writes it.
    pub path: PathBuf,
    /// Directory of the cgroup.
    pub dir: PathBuf,
    /// Levels below the root of the hierarchy; `None` if our mounts do not show the root.
    pub level: Option<u32>,
}

/// Why a path gives no cgroup that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGroup {
    /// Nothing has this name.
    #[error("cgroup {} does not exist; `systemd-cgls` or `find /sys/fs/cgroup -type d` lists cgroups", .0.display())]
    Missing(PathBuf),
    /// The path leads to something else.
    #[error("{} is not a cgroup: use a directory of a cgroup file system, such as /sys/fs/cgroup/NAME, or a path as in /proc/PID/cgroup", .0.display())]
    Other(PathBuf),
    /// The hierarchy has no controller, as `name=systemd`.
    #[error("{} is in a hierarchy without a controller, which BPF cannot read: select the same group in another hierarchy, such as `memory`", .0.display())]
    NoController(PathBuf),
    /// The cgroup lies too deep.
    #[error("{} is more than {MAX_LEVEL} levels deep: select a cgroup above it", .0.display())]
    TooDeep(PathBuf),
}

impl Hierarchies {
    /// The cgroup that a user names: by its directory, or by the path that `/proc/PID/cgroup` shows. A path is searched
    /// for in all hierarchies, and the first in which the cgroup has processes is taken.
    ///
    /// # Errors
    /// When there is no such cgroup, or it cannot be chosen.
    pub fn group(&self, named: &Path) -> Result<Group, NoGroup> {
        let missing = || NoGroup::Missing(named.to_owned());
        let own = std::fs::canonicalize(named).ok().filter(|dir| named.is_absolute() && dir.is_dir());
        let Some(dir) = own else {
            if named.is_absolute() && named.exists() {
                return Err(NoGroup::Other(named.to_owned()));
            }
            return self.like(named.strip_prefix("/").unwrap_or(named)).ok_or_else(missing);
        };
        let (magic, device) = kind_and_device(&dir).ok_or_else(missing)?;
        if !MAGICS.contains(&magic) {
            // `/system.slice` may be a cgroup's path and also a directory.
            let below = named.strip_prefix("/").unwrap_or(named);
            return self.like(below).ok_or_else(|| NoGroup::Other(named.to_owned()));
        }
        let hierarchy = self.all().find(|(_, point)| kind_and_device(point).is_some_and(|p| p.1 == device));
        let Some((hierarchy, _)) = hierarchy else { return Err(NoGroup::NoController(named.to_owned())) };
        let group = self.at(hierarchy, &dir).ok_or_else(missing)?;
        if group.level.is_some_and(|level| level > MAX_LEVEL) {
            return Err(NoGroup::TooDeep(named.to_owned()));
        }
        // Runtimes that know v1 only may leave the processes of a cgroup of v2 in the root of v2.
        let elsewhere = (!group.is_populated()).then(|| self.like(group.path.strip_prefix("/").ok()?));
        Ok(elsewhere.flatten().filter(Group::is_populated).unwrap_or(group))
    }

    /// The cgroup with this path in the first hierarchy in which it has processes, else in the first that has it.
    fn like(&self, path: &Path) -> Option<Group> {
        if path.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return None;
        }
        let mut found: Vec<Group> =
            self.all().filter_map(|(hierarchy, point)| self.at(hierarchy, &point.join(path))).collect();
        found.retain(|group| group.level.is_none_or(|level| level <= MAX_LEVEL));
        let nth = found.iter().position(Group::is_populated).unwrap_or(0);
        (nth < found.len()).then(|| found.swap_remove(nth))
    }

    /// The cgroup whose directory in a hierarchy this is.
    #[must_use]
    pub fn at(&self, hierarchy: Hierarchy, dir: &Path) -> Option<Group> {
        let meta = std::fs::metadata(dir).ok().filter(std::fs::Metadata::is_dir)?;
        let id = GroupId { hierarchy, id: meta.ino() };
        Some(Group { id, path: self.path_of(hierarchy, dir)?, dir: dir.into(), level: level(dir) })
    }

    /// The cgroup of a process in a hierarchy.
    #[must_use]
    pub fn group_of(&self, hierarchy: Hierarchy, tgid: u32) -> Option<Group> {
        self.at(hierarchy, &self.dir(hierarchy, &CgroupMembership::of(tgid).ok()?)?)
    }

    /// Directories of all cgroups of a hierarchy, parents before children; about 65,536 at most.
    #[must_use]
    pub fn dirs(&self, hierarchy: Hierarchy) -> Vec<PathBuf> {
        let root = self.all().find(|(other, _)| *other == hierarchy).map(|(_, point)| point.to_owned());
        root.map(|root| below(&root)).unwrap_or_default()
    }
}

impl Group {
    /// The processes in the cgroup and below it, with the pids of this pid namespace.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        below(&self.dir).iter().flat_map(|dir| processes(dir)).collect()
    }

    /// Whether the cgroup, or one below it, has processes.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        below(&self.dir).iter().any(|dir| !processes(dir).is_empty())
    }

    /// Whether a process is in the cgroup or below it.
    #[must_use]
    pub fn holds(&self, of: &CgroupMembership) -> bool {
        of.in_hierarchy(self.id.hierarchy).is_some_and(|path| path.starts_with(&self.path))
    }
}

fn kind_and_device(dir: &Path) -> Option<(i64, u64)> {
    let kind = rustix::fs::statfs(dir).ok()?.f_type;
    #[allow(clippy::useless_conversion, reason = "its width differs between architectures")]
    Some((i64::from(kind), std::fs::metadata(dir).ok()?.dev()))
}

/// Number of levels from the root of its hierarchy down to a directory; `None` if the root cannot be seen.
fn level(dir: &Path) -> Option<u32> {
    let device = std::fs::metadata(dir).ok()?.dev();
    for (level, above) in (0..).zip(dir.ancestors()) {
        let meta = std::fs::metadata(above).ok().filter(|meta| meta.dev() == device)?;
        if meta.ino() == ROOT {
            return Some(level);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_group_with_processes() {
        let hierarchies = Hierarchies::mounted();
        let Some((hierarchy, point)) = hierarchies.all().next() else {
            println!("SKIP: no hierarchy of cgroups is mounted here");
            return;
        };
        let root = hierarchies.group(point).unwrap();
        assert_eq!((root.id.hierarchy, root.dir.as_path()), (hierarchy, point));
        assert!(root.level.is_none_or(|level| level == 0));
        assert!(hierarchies.dirs(hierarchy).contains(&root.dir));
        if root.path == Path::new("/") {
            assert!(root.holds(&CgroupMembership::of(std::process::id()).unwrap()));
        }
    }

    #[test]
    fn what_is_no_group_has_its_sentence() {
        let hierarchies = Hierarchies::mounted();
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [tmp.path(), &file] {
            assert_eq!(hierarchies.group(path), Err(NoGroup::Other(path.into())));
        }
        for path in ["/sys/fs/cgroup/no such", "no/such", "../x", "/no such/../etc"] {
            assert_eq!(hierarchies.group(Path::new(path)), Err(NoGroup::Missing(path.into())), "{path}");
        }
    }
}
