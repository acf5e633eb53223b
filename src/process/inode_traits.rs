//! What distinguishes a file from others, the same for all mounts through which it is opened.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstat;

use super::ioctl::inode_generation;
use super::served_file::{OVERLAYFS, file_system};

/// What distinguishes a file from others. The kernel places a uprobe in an inode, and would run a program once for each
/// probe.
///
/// Containers of one image see one file through mounts (overlayfs) with a device each, and the probe is placed in the file
/// below. That file has the same inode number, size and times in all its mounts. Elsewhere the device counts, since a
/// snapshot of a file system has the same numbers and times. There the time of the last change of the content counts, and
/// not of owner or mode, if the inode's generation shows that it is no other file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeTraits {
    inode: u64,
    /// `None` on overlayfs.
    device: Option<u64>,
    /// `None` on overlayfs, and if the file system has no generations.
    generation: Option<u32>,
    size: i64,
    /// Of the content with a generation, else of anything.
    changed: ChangeTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeTime {
    s: i64,
    ns: u64,
}

impl InodeTraits {
    /// The traits of an open file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(file: impl AsFd) -> io::Result<InodeTraits> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        let is_overlay = file_system(file)? == OVERLAYFS;
        let generation = if is_overlay { None } else { inode_generation(file) };
        Ok(InodeTraits {
            inode: stat.st_ino,
            device: (!is_overlay).then_some(stat.st_dev),
            generation,
            size: stat.st_size,
            changed: match generation {
                Some(_) => ChangeTime { s: stat.st_mtime, ns: stat.st_mtime_nsec },
                None => ChangeTime { s: stat.st_ctime, ns: stat.st_ctime_nsec },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn another_mode_or_name_is_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let traits = |name| InodeTraits::of(File::open(path(name)).unwrap()).unwrap();
        fs::write(path("one"), "library").unwrap();
        fs::write(path("other"), "library").unwrap();
        let before = traits("one");
        assert!(before == traits("one") && before != traits("other"));
        if before.generation.is_none() {
            eprintln!("SKIP: the change of a mode: this file system has no generations");
            return;
        }
        fs::set_permissions(path("one"), Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(path("one"), path("link")).unwrap();
        assert!(before == traits("one") && before == traits("link"));
        fs::write(path("one"), "another library").unwrap();
        assert_ne!(before, traits("one"));
    }

    #[test]
    fn a_snapshot_has_the_same_numbers_on_another_device() {
        let changed = ChangeTime { s: 5, ns: 6 };
        let file = InodeTraits { inode: 7, device: Some(1792), generation: Some(3), size: 9, changed };
        assert_ne!(file, InodeTraits { device: Some(1793), ..file });
    }
}
