//! Opens files by path inside another process's root, without being led out of it or blocked.
//!
//! An absolute symlink in a container's `/tmp`, opened as `/proc/PID/root/tmp/x`, resolves to the *host's* file. So
//! every path goes through `openat2(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)` on a descriptor of the root. A FIFO or
//! device is never opened, because that could block, or do something. `O_PATH` comes first, then `fstat`, then the real
//! open of the very same inode through `/proc/self/fd`.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, makedev, openat, openat2, statat,
    statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::process_dir::{LiveThread, ProcessDir};
use super::procfs::{self, Status};
use super::served_file::is_served;

/// Retries after `EAGAIN`: something was renamed meanwhile, and the kernel could not prove that the path stayed inside.
/// A process that renames all the time must not keep us here.
const MAX_RETRIES: usize = 16;

/// A process's root directory and identity. The descriptor holds the mount on which the root lies; mounts below it go
/// with the mount namespace. Everything is read through descriptors of the process's directory in `/proc`. So a pid
/// that is reused in between gives an error, and not a mixture of two processes.
#[derive(Debug)]
pub struct ProcessRoot {
    dir: Arc<OwnedFd>,
    /// Inode number of its mount namespace.
    pub mount_ns: u64,
    /// Device and inode of the root directory. Under chroot it differs within a mount namespace.
    pub identity: (u64, u64),
    /// Effective user id, in our user namespace.
    pub uid: u32,
    /// Effective group id, in our user namespace.
    pub gid: u32,
    /// Start of the process in clock ticks since boot, which distinguishes it from a later one with its pid.
    pub start_ticks: u64,
    /// Process id in the innermost pid namespace: the process uses it in file names.
    pub ns_pid: u32,
}

/// Who must own a file that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOwner {
    /// Any user: the file is verified in another way.
    Any,
    /// The process's own user or root. The last component of the path must not be a symlink either.
    ProcessUserOrRootUser,
}

/// Why a path was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum OpenRefusal {
    /// There is no such file.
    #[error("no such file")]
    Missing,
    /// A directory, FIFO, socket, device, or (where it may not be followed) a symlink.
    #[error("not a regular file")]
    NotRegular,
    /// The file belongs to another user.
    #[error("owned by another user")]
    ForeignOwner,
    /// A program serves the file system, and may never answer.
    #[error("on a file system that a program serves")]
    Served,
    /// The path leads through a magic link of `/proc` or too many links.
    #[error("path leads astray")]
    Astray,
    /// The kernel or its policy forbids it.
    #[error("not permitted")]
    Denied,
    /// The process has ended.
    #[error("process gone")]
    ProcessGone,
    /// Another error of the system call, by its number.
    #[error("errno {0}")]
    Errno(i32),
}

impl From<Errno> for OpenRefusal {
    fn from(errno: Errno) -> OpenRefusal {
        match errno {
            Errno::NOENT | Errno::NOTDIR => OpenRefusal::Missing,
            Errno::LOOP | Errno::XDEV => OpenRefusal::Astray,
            Errno::ACCESS | Errno::PERM => OpenRefusal::Denied,
            Errno::SRCH => OpenRefusal::ProcessGone,
            other => OpenRefusal::Errno(other.raw_os_error()),
        }
    }
}

impl ProcessRoot {
    /// The root of a process, by its thread group id in our pid namespace.
    ///
    /// # Errors
    /// [`OpenRefusal::ProcessGone`], or the kernel's error.
    pub fn of(tgid: u32) -> Result<ProcessRoot, OpenRefusal> {
        let gone = |errno: Errno| if errno == Errno::NOENT { OpenRefusal::ProcessGone } else { errno.into() };
        let process = ProcessDir::open(tgid).map_err(gone)?;
        // A process that has exited but was not waited for has no root any more.
        let LiveThread { dir: task, stat } = process.live_thread().map_err(gone)?;
        let status = procfs::read_at(task.as_fd(), "status").map_err(gone)?;
        let Status { uid, gid, ns_pid, .. } =
            procfs::parse_status(&status).ok_or(OpenRefusal::ProcessGone)?;
        let start_ticks = stat.start_ticks;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&task, "root", flags, Mode::empty()).map_err(gone)?;
        // A program may serve the root. It is not asked, since device and inode do not change. (If it denies root
        // access, the device still comes.)
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let root = statx(&dir, "", flags, StatxFlags::empty())?;
        let ns = statat(&task, "ns/mnt", AtFlags::empty()).map_err(gone)?;
        let identity = (makedev(root.stx_dev_major, root.stx_dev_minor), root.stx_ino);
        Ok(ProcessRoot { dir: Arc::new(dir), mount_ns: ns.st_ino, identity, uid, gid, start_ticks, ns_pid })
    }

    /// Opens a regular file for reading, by its absolute path as the process names it. May wait for a network or
    /// user-space file system: [`Processes::open_own_file`](super::Processes::open_own_file) does not.
    ///
    /// # Errors
    /// Why the file was not opened.
    pub fn open_regular(&self, path: &Path, owner: FileOwner) -> Result<OwnedFd, OpenRefusal> {
        open_regular(self.dir(), path, owner, self.uid)
    }

    /// The `O_PATH` descriptor of the root directory.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The same descriptor, to keep.
    pub(super) fn shared_dir(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.dir)
    }
}

/// The root directories in use: processes of one container share a descriptor.
#[derive(Debug, Default)]
pub(super) struct Roots {
    known: HashMap<RootKey, Weak<OwnedFd>>,
}

/// Identifies a root directory.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RootKey {
    mount_ns: u64,
    /// As in [`ProcessRoot::identity`].
    identity: (u64, u64),
}

impl Roots {
    /// The root of a process. Processes with the same root share its directory.
    pub(super) fn of(&mut self, tgid: u32) -> Result<ProcessRoot, OpenRefusal> {
        let mut root = ProcessRoot::of(tgid)?;
        let key = RootKey { mount_ns: root.mount_ns, identity: root.identity };
        match self.known.get(&key).and_then(Weak::upgrade) {
            Some(dir) => root.dir = dir,
            None => drop(self.known.insert(key, Arc::downgrade(&root.dir))),
        }
        Ok(root)
    }

    /// Directories of all roots in use.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<OwnedFd>> + '_ {
        self.known.values().filter_map(Weak::upgrade)
    }

    /// Evicts roots that are no longer in use.
    pub(super) fn evict_unused(&mut self) {
        self.known.retain(|_, dir| dir.strong_count() > 0);
    }
}

/// Finds the inode at a path below a root without opening it: an `O_PATH` descriptor and its `stat`.
pub(super) fn find(
    root: BorrowedFd<'_>,
    path: &Path,
    owner: FileOwner,
) -> Result<(OwnedFd, Stat), OpenRefusal> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if owner == FileOwner::ProcessUserOrRootUser {
        flags |= OFlags::NOFOLLOW;
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let attempt = || openat2(root, path, flags, Mode::empty(), resolve);
    let mut found = attempt();
    for _ in 0..MAX_RETRIES {
        match found {
            Err(Errno::AGAIN | Errno::INTR) => found = attempt(),
            _ => break,
        }
    }
    let found = found?;
    let stat = fstat(&found)?;
    Ok((found, stat))
}

/// Opens a regular file below the root of a process of the user `uid`, see [`ProcessRoot::open_regular`].
pub(super) fn open_regular(
    root: BorrowedFd<'_>,
    path: &Path,
    owner: FileOwner,
    uid: u32,
) -> Result<OwnedFd, OpenRefusal> {
    let (found, stat) = find(root, path, owner)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenRefusal::NotRegular);
    }
    if owner == FileOwner::ProcessUserOrRootUser && stat.st_uid != uid && stat.st_uid != 0 {
        return Err(OpenRefusal::ForeignOwner);
    }
    if is_served(found.as_fd()) {
        return Err(OpenRefusal::Served);
    }
    Ok(procfs::reopen(found.as_fd(), OFlags::RDONLY)?)
}
