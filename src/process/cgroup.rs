//! The cgroups of a process, and the container that their paths suggest. v1, v2 and both at once.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::hierarchy::Hierarchy;
use super::path::bytes_path;
use super::procfs;

/// Hexadecimal digits of a container's id, in every runtime.
const ID_DIGITS: usize = 64;

/// The cgroups of a process: a path within each hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMembership {
    /// Path in the hierarchy of v2.
    pub unified: Option<PathBuf>,
    /// Path in the hierarchies of v1, by controller (`cpu`, `memory`, `name=systemd`, …).
    pub v1: BTreeMap<String, PathBuf>,
}

impl CgroupMembership {
    /// Parses lines of the form `hierarchy:controllers:path` (`cgroups(7)`) and skips others. The paths are those that
    /// the reader's cgroup namespace shows.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> CgroupMembership {
        let mut found = CgroupMembership::default();
        for line in bytes.split(|&b| b == b'\n') {
            let mut fields = line.splitn(3, |&b| b == b':');
            let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if procfs::decimal(number).is_none() || !path.starts_with(b"/") {
                continue;
            }
            let path = bytes_path(path.strip_suffix(b" (deleted)").unwrap_or(path)).to_owned();
            if controllers.is_empty() {
                found.unified = Some(path);
                continue;
            }
            for controller in controllers.split(|&b| b == b',') {
                found.v1.insert(String::from_utf8_lossy(controller).into_owned(), path.clone());
            }
        }
        found
    }

    /// The path in a hierarchy.
    #[must_use]
    pub fn in_hierarchy(&self, hierarchy: Hierarchy) -> Option<&Path> {
        match hierarchy {
            Hierarchy::V2 => self.unified.as_deref(),
            Hierarchy::V1(controller) => self.v1.get(controller.name()).map(PathBuf::as_path),
        }
    }

    /// The most informative path: that of v2 unless only its root is used, then those of v1.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let preferred =
            ["cpu", "name=systemd", "memory", "pids"].iter().filter_map(|name| self.v1.get(*name));
        let paths = || self.unified.iter().chain(preferred.clone()).chain(self.v1.values());
        paths().find(|path| path.as_os_str().len() > 1).or_else(|| paths().next()).map(PathBuf::as_path)
    }

    /// The id of the container, 64 hexadecimal digits, if a path has the form of Docker's, containerd's, CRI-O's or
    /// Podman's. This is a guess: a tenant that may make cgroups may name them so.
    #[must_use]
    pub fn container(&self) -> Option<String> {
        self.unified.iter().chain(self.v1.values()).find_map(|path| container_in(path))
    }

    /// The uid of the Kubernetes pod, if a path has the kubelet's form. A guess like [`Self::container`].
    #[must_use]
    pub fn pod(&self) -> Option<String> {
        self.unified.iter().chain(self.v1.values()).find_map(|path| pod_in(path))
    }
}

/// The innermost container, as containers nest.
pub(super) fn container_in(path: &Path) -> Option<String> {
    names(path).rev().find_map(container_named)
}

/// The id of the container whose cgroup has this name. The monitor beside a container (`conmon`) carries the
/// container's id, too, and is skipped.
pub(super) fn container_named(name: &[u8]) -> Option<String> {
    if name.windows(6).any(|part| part == b"conmon") {
        return None;
    }
    let id = name.split(|b| !b.is_ascii_alphanumeric()).find(|word| is_id(word))?;
    Some(String::from_utf8_lossy(id).into_owned())
}

/// Whether these bytes are a container's id.
pub(super) fn is_id(word: &[u8]) -> bool {
    word.len() == ID_DIGITS && word.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn pod_in(path: &Path) -> Option<String> {
    names(path).rev().find_map(pod_named)
}

/// The uid in `pod<uid>` or, made by systemd, in `kubepods-burstable-pod<uid with underscores>.slice`. A pod that the
/// kubelet has from a file has a hash of 32 digits as its uid.
pub(super) fn pod_named(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    let at = name.windows(3).rposition(|part| part == b"pod")?;
    let uid = &name[at + 3..];
    let digits = |also: &[u8]| uid.iter().all(|b| b.is_ascii_hexdigit() || also.contains(b));
    let shape = (uid.len() == 36 && digits(b"-_")) || (uid.len() == 32 && digits(b""));
    shape.then(|| String::from_utf8_lossy(uid).replace('_', "-"))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";

    fn container(path: &str) -> Option<String> {
        CgroupMembership::parse(format!("0::{path}\n").as_bytes()).container()
    }

    #[test]
    fn containers_of_all_runtimes() {
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod0a1b2c3d-0000-1111-2222-333344445555/{ID}"),
            format!("/kubepods.slice/kubepods-pod0a1b.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods.slice/crio-{ID}.scope/container"),
            format!("/machine.slice/libpod-{ID}.scope"),
            format!("/docker/{}/docker/{ID}", ID.replace('3', "4")),
        ] {
            assert_eq!(container(&path).as_deref(), Some(ID), "{path}");
        }
        for path in [
            "/".to_owned(),
            "/user.slice/user-1000.slice/session-1.scope".to_owned(),
            format!("/machine.slice/libpod-conmon-{ID}.scope"),
            format!("/docker/{}", &ID[1..]),
            format!("/docker/{ID}0"),
            format!("/docker/{}", ID.to_uppercase()),
        ] {
            assert_eq!(container(&path), None, "{path}");
        }
    }

    #[test]
    fn pods() {
        let uid = "0a1b2c3d-0000-1111-2222-333344445555";
        let pod = |path: &str| CgroupMembership::parse(format!("0::{path}\n").as_bytes()).pod();
        assert_eq!(pod(&format!("/kubepods/burstable/pod{uid}/{ID}")).as_deref(), Some(uid));
        let slice = format!("/kubepods.slice/kubepods-besteffort-pod{}.slice/x.scope", uid.replace('-', "_"));
        assert_eq!(pod(&slice).as_deref(), Some(uid));
        let hash = "0123456789abcdef0123456789abcdef";
        assert_eq!(pod(&format!("/kubepods/burstable/pod{hash}/{ID}")).as_deref(), Some(hash));
        assert_eq!(pod("/kubepods.slice/x"), None);
    }

    #[test]
    fn hybrid_prefers_what_says_most() {
        let text = b"12:cpu,cpuacct:/box/a\n1:name=systemd:/init.scope\n0::/\n";
        let found = CgroupMembership::parse(text);
        assert_eq!(found.path(), Some(Path::new("/box/a")));
        assert_eq!(found.v1["cpuacct"], Path::new("/box/a"));
        assert_eq!(found.unified.as_deref(), Some(Path::new("/")));
        assert_eq!(CgroupMembership::parse(b"0::/\n").path(), Some(Path::new("/")));
    }

    #[test]
    fn what_is_no_line_is_skipped() {
        assert_eq!(
            CgroupMembership::parse(b"\n::\n0:\nx::/a\n0::relative\n-1::/a\n\xff"),
            CgroupMembership::default()
        );
        assert_eq!(CgroupMembership::parse(b"0::/a:b (deleted)").unified.as_deref(), Some(Path::new("/a:b")));
    }

    #[test]
    fn our_own() {
        assert!(CgroupMembership::of(std::process::id()).unwrap().path().is_some());
    }
}
