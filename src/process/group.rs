//! A cgroup as a directory: which one it is, and who is in it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cgroup::Membership;
use super::cgroup_dir::{below, processes};
use super::hierarchies::Hierarchies;
use super::hierarchy::Hierarchy;

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const MAGICS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];
/// kernfs gives this number to the root of every hierarchy.
const ROOT: u64 = 1;
/// As deep as a group may lie that is chosen: `JP_MAX_LEVEL` of `bpf/abi.h`.
pub const MAX_LEVEL: u32 = 63;

/// Which cgroup: kernfs numbers those of a hierarchy, and uses no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId {
    /// Its hierarchy.
    pub hierarchy: Hierarchy,
    /// Its number there: the inode number of its directory.
    pub id: u64,
}

/// A cgroup that was there when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which one.
    pub id: GroupId,
    /// As `/proc/PID/cgroup` writes it.
    pub path: PathBuf,
    /// Its directory.
    pub dir: PathBuf,
    /// How far it is from its hierarchy's root; none if our mounts do not show that.
    pub level: Option<u32>,
}

/// Why a path is no cgroup to choose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGroup {
    /// Nothing of this name.
    #[error("cgroup {} does not exist; `systemd-cgls` or `ls /sys/fs/cgroup` lists cgroups", .0.display())]
    Missing(PathBuf),
    /// Something else.
    #[error("{} is not a cgroup: use a directory of a cgroup file system, such as /sys/fs/cgroup/NAME, or a path as in /proc/PID/cgroup", .0.display())]
    Other(PathBuf),
    /// `name=systemd` and its like.
    #[error("{} is in a hierarchy without a controller, which BPF cannot read: select the same group in another hierarchy, such as `memory`", .0.display())]
    NoController(PathBuf),
    /// No one has it as deep.
    #[error("{} is more than {MAX_LEVEL} levels deep: select a cgroup above it", .0.display())]
    TooDeep(PathBuf),
}

impl Hierarchies {
    /// The group that a user names: by its directory, or by the path that `/proc/PID/cgroup` shows, in the first
    /// hierarchy that has it with processes.
    ///
    /// # Errors
    /// When there is none.
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
            // `/system.slice` may be a cgroup's path and a directory as well.
            let below = named.strip_prefix("/").unwrap_or(named);
            return self.like(below).ok_or_else(|| NoGroup::Other(named.to_owned()));
        }
        let hierarchy = self.all().find(|(_, point)| kind_and_device(point).is_some_and(|p| p.1 == device));
        let Some((hierarchy, _)) = hierarchy else { return Err(NoGroup::NoController(named.to_owned())) };
        let group = self.at(hierarchy, &dir).ok_or_else(missing)?;
        if group.level.is_some_and(|level| level > MAX_LEVEL) {
            return Err(NoGroup::TooDeep(named.to_owned()));
        }
        // Runtimes that know v1 only may leave the processes of a group of v2 in its root.
        let elsewhere = (!group.is_populated()).then(|| self.like(group.path.strip_prefix("/").ok()?));
        Ok(elsewhere.flatten().filter(Group::is_populated).unwrap_or(group))
    }

    /// The group with this path in the first hierarchy in which it has processes, else in the first that has it.
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

    /// The group that a directory of a hierarchy is.
    #[must_use]
    pub fn at(&self, hierarchy: Hierarchy, dir: &Path) -> Option<Group> {
        let meta = std::fs::metadata(dir).ok().filter(std::fs::Metadata::is_dir)?;
        let id = GroupId { hierarchy, id: meta.ino() };
        Some(Group { id, path: self.path_of(hierarchy, dir)?, dir: dir.into(), level: level(dir) })
    }

    /// The group of a process in a hierarchy.
    #[must_use]
    pub fn group_of(&self, hierarchy: Hierarchy, tgid: u32) -> Option<Group> {
        self.at(hierarchy, &self.dir(hierarchy, &Membership::of(tgid).ok()?)?)
    }

    /// All groups of a hierarchy, those above before those below; 65,536 at most.
    #[must_use]
    pub fn dirs(&self, hierarchy: Hierarchy) -> Vec<PathBuf> {
        let root = self.all().find(|(other, _)| *other == hierarchy).map(|(_, point)| point.to_owned());
        root.map(|root| below(&root)).unwrap_or_default()
    }
}

impl Group {
    /// The processes in it and below it, as this pid namespace knows them.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        below(&self.dir).iter().flat_map(|dir| processes(dir)).collect()
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        below(&self.dir).iter().any(|dir| !processes(dir).is_empty())
    }

    /// Whether a process is in it or below it.
    #[must_use]
    pub fn holds(&self, of: &Membership) -> bool {
        of.in_hierarchy(self.id.hierarchy).is_some_and(|path| path.starts_with(&self.path))
    }
}

fn kind_and_device(dir: &Path) -> Option<(i64, u64)> {
    let kind = rustix::fs::statfs(dir).ok()?.f_type;
    #[allow(clippy::useless_conversion, reason = "its width differs between architectures")]
    Some((i64::from(kind), std::fs::metadata(dir).ok()?.dev()))
}

/// How many directories lie between one and the root of its hierarchy; none if that is not to be seen.
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
            assert!(root.holds(&Membership::of(std::process::id()).unwrap()));
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
