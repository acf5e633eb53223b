//! What distinguishes a file from others, the same for all mounts through which it is opened.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstat;

/// What distinguishes a file from others without its device. Containers of one image see one file through mounts
/// (overlayfs) with a device each. The kernel places a uprobe in the file below these, and would run a program once for
/// each probe. A file below has the same inode number and times in all its mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeTraits {
    inode: u64,
    size: i64,
    changed: (i64, u64),
}

impl InodeTraits {
    /// The traits of an open file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(file: impl AsFd) -> io::Result<InodeTraits> {
        let stat = fstat(file)?;
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        Ok(InodeTraits { inode: stat.st_ino, size: stat.st_size, changed })
    }
}
