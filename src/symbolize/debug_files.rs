//! Where the separate debug files of a mapped file are: on the host, by build id, or in the root of the process that
//! maps the file. In the root, they are found where debuggers look, by build id or by the name in `.gnu_debuglink`.
//!
//! A debug file of one process must not name code that another process shares with it. So a file of a process's root is
//! used only if its owner could have made the mapped file as well: see [`is_kin`].

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open};

use super::message::FileFacts;

/// Directory of debug files in a root.
const DIRECTORY: &str = "/usr/lib/debug";
/// Suffix that makes the name of a file the name of its DWARF package.
const PACKAGE: &str = "dwp";

/// A debug file of the host: `DIR/.build-id/xx/yyyy.debug`, a regular file that root owns and no other user may write.
/// Only the build id comes from a tenant, and it is written in hex.
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

/// Paths in the root of a mapping process at which the debug file may be, the likeliest first.
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

/// Path in such a root at which a debug file of this build id may be.
pub(super) fn in_root_by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    by_build_id(build_id).map(|path| Path::new(DIRECTORY).join(path))
}

/// The path of a file's DWARF package.
pub(super) fn package(file: &Path) -> Option<PathBuf> {
    let mut name = file.file_name().filter(|_| file.is_absolute())?.to_owned();
    name.push(".");
    name.push(PACKAGE);
    Some(file.with_file_name(name))
}

/// Whether the mapped file's owner can have made the debug file. Both are in one file system; the same user or root
/// owns the debug file, and no other may write it. In its own mount namespace a process can have any of its files at
/// any path.
pub(super) fn is_kin(file: &impl AsFd, debug: &impl AsFd) -> bool {
    let (Ok(file), Ok(debug)) = (fstat(file), fstat(debug)) else { return false };
    let owned = debug.st_uid == file.st_uid || debug.st_uid == 0;
    file.st_dev == debug.st_dev && owned && debug.st_mode & 0o022 == 0
}

/// Path below a directory of debug files: `.build-id/xx/yyyy.debug`.
fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!(".build-id/{first:02x}/{hex}.debug")))
}

/// Whether `name` is the name of a file, and no path.
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
