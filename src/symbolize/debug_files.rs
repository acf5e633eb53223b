//! Where the separate debug files of a mapped file lie: among the host's, by build id, or in the root of the process that
//! maps it, by build id or by the name that the file gives (`.gnu_debuglink`), where debuggers look for them.
//!
//! What the file of one process says must not name another's code that it shares with it. So a file of a process's root is
//! taken only if whoever made it could have made the mapped file as well: see [`is_kin`].

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open};

use super::message::FileFacts;

/// Where they lie in a root.
const DIRECTORY: &str = "/usr/lib/debug";
/// What a DWARF package is called: the name of its file, and this.
const PACKAGE: &str = "dwp";

/// A debug file of the host: `DIR/.build-id/xx/yyyy.debug`, a regular file of root's that nobody else may write. Only the name
/// comes from a tenant, and it is hex.
pub(super) fn of_host(dir: &Path, build_id: &[u8]) -> Option<OwnedFd> {
    let path = dir.join(by_build_id(build_id)?);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    let trusted = meta.is_file()
        && meta.mode() & 0o022 == 0
        && (meta.uid() == 0 || !rustix::process::getuid().is_root());
    trusted.then(|| file.into())
}

/// Where the debug file of a file may lie in the root of a process that maps it, the likeliest first.
pub(super) fn in_root(file: &Path, facts: &FileFacts) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        facts.build_id.as_deref().and_then(in_root_by_build_id).into_iter().collect();
    let link = facts.debug_link.as_ref().map(|link| OsStr::new(&link.name)).filter(|name| is_name(name));
    if let (Some(link), Some(parent)) = (link, file.parent().filter(|parent| parent.is_absolute())) {
        let below = Path::new(DIRECTORY).join(parent.strip_prefix("/").unwrap_or(parent));
        paths.extend([parent.join(".debug").join(link), parent.join(link), below.join(link)]);
    }
    paths
}

/// Where a debug file of that build id may lie in such a root.
pub(super) fn in_root_by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    by_build_id(build_id).map(|path| Path::new(DIRECTORY).join(path))
}

/// Where the DWARF package of a file lies.
pub(super) fn package(file: &Path) -> Option<PathBuf> {
    let mut name = file.file_name().filter(|_| file.is_absolute())?.to_owned();
    name.push(".");
    name.push(PACKAGE);
    Some(file.with_file_name(name))
}

/// Whether a debug file is made by whoever has made the mapped file: it lies in the same file system, is of the same user or of
/// root, and nobody else may write it. In a mount namespace of its own a process can have any of its files at any path.
pub(super) fn is_kin(file: &impl AsFd, debug: &impl AsFd) -> bool {
    let (Ok(file), Ok(debug)) = (fstat(file), fstat(debug)) else { return false };
    let owned = debug.st_uid == file.st_uid || debug.st_uid == 0;
    file.st_dev == debug.st_dev && owned && debug.st_mode & 0o022 == 0
}

/// `.build-id/xx/yyyy.debug`
fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!(".build-id/{first:02x}/{hex}.debug")))
}

/// Whether it is the name of a file, and no path.
fn is_name(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(name) && !name.as_encoded_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::super::message::DebugLink;
    use super::*;

    fn paths(link: &str) -> Vec<String> {
        let debug_link = Some(DebugLink { name: link.to_owned(), crc: 0 });
        let facts = FileFacts { build_id: Some(vec![0xab, 1, 2]), debug_link, ..FileFacts::default() };
        in_root(Path::new("/opt/app/bin/svc"), &facts).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn debug_files_are_where_debuggers_look_for_them() {
        let expected = [
            "/usr/lib/debug/.build-id/ab/0102.debug",
            "/opt/app/bin/.debug/svc.debug",
            "/opt/app/bin/svc.debug",
            "/usr/lib/debug/opt/app/bin/svc.debug",
        ];
        assert_eq!(paths("svc.debug"), expected);
        assert_eq!(package(Path::new("/opt/app/bin/svc")).unwrap(), Path::new("/opt/app/bin/svc.dwp"));
    }

    #[test]
    fn a_link_is_a_name_and_no_path() {
        for link in ["/etc/shadow", "../../etc/shadow", "..", ".", "", "a/b", "a/", "/"] {
            assert_eq!(paths(link).len(), 1, "{link}");
        }
        assert_eq!(in_root(Path::new("relative"), &FileFacts::default()), Vec::<PathBuf>::new());
        assert_eq!(package(Path::new("relative")), None);
    }
}
