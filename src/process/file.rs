//! A file from which code is mapped, opened once and shared by all processes that map it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::path::bytes_path;
use super::root::OpenRefusal;
use super::timed_calls::Tenant;
use crate::backoff::Backoff;
use crate::sample::MonoNs;

/// Identifies the content of a file while the profiler runs. An id is never reused for another content. Hard links of
/// one file have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// A file from which code is mapped, and its descriptor if it could be opened.
#[derive(Debug)]
pub struct MappedFile {
    /// Identifies the file in messages to the symbol worker.
    pub id: FileId,
    /// The path as the process named it, without ` (deleted)`. The bytes are not trusted: clean them before they are
    /// printed.
    pub path: Arc<Path>,
    /// The inode as the mapping names it.
    pub inode: Inode,
    /// Whether the path no longer leads to this file. For a file that could not be opened: whether the kernel says that
    /// it was deleted.
    pub deleted_or_replaced: bool,
    pub(super) content: Result<Arc<Content>, Unopened>,
}

/// Shows whether any known process still maps a file, under any path.
#[derive(Clone, Debug)]
pub struct FileUse(Weak<Content>);

impl FileUse {
    /// Whether a known process still maps the file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Why there is no descriptor of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Unopened {
    /// The path could not be opened.
    #[error(transparent)]
    Refused(#[from] OpenRefusal),
    /// The path now leads to another file than the one that was mapped, or the file was written since.
    #[error("another file is at its path")]
    Replaced,
    /// The process ended before the profiler saw it, and its path leads to a file in no known root.
    #[error("process gone")]
    ProcessGone,
    /// The file system did not answer in time.
    #[error("took too long")]
    TooSlow,
    /// The opener ended twice while it opened the file.
    #[error("the opener ended")]
    NoOpener,
    /// A program serves the file system, and no memory is left for a copy of the file.
    #[error("no room for a copy")]
    NoRoom,
    /// The file was closed to keep the number of descriptors low; [`super::Processes::locate`] opens it again.
    #[error("closed meanwhile")]
    Closed,
}

#[derive(Debug)]
pub(super) struct FoundFile {
    /// A descriptor for reading. For a served file it is `O_PATH`, until a copy's takes its place.
    pub(super) fd: OwnedFd,
    /// Whether a program serves the file system, so that the file is read from a copy.
    pub(super) served: bool,
    pub(super) key: ContentKey,
    pub(super) deleted_or_replaced: bool,
    /// Whether the file is a memfd that begins as an ELF file does.
    pub(super) program_in_memory: bool,
}

impl MappedFile {
    /// A descriptor for reading the file.
    ///
    /// # Errors
    /// Why the file has no descriptor.
    pub fn fd(&self) -> Result<Arc<OwnedFd>, Unopened> {
        self.content.as_ref().map_err(|why| *why)?.fd().ok_or(Unopened::Closed)
    }

    /// A handle that shows later whether the file is still mapped; `None` if the file could not be opened.
    #[must_use]
    pub fn usage(&self) -> Option<FileUse> {
        self.content.as_ref().ok().map(|content| FileUse(Arc::downgrade(content)))
    }

    /// Whether the file is a program in memory: a memfd that was executed or loaded, not one in which a runtime keeps
    /// generated code. False if the file could not be opened.
    #[must_use]
    pub fn is_program_in_memory(&self) -> bool {
        self.content.as_ref().is_ok_and(|content| content.program_in_memory)
    }

    /// Whether the file is read from a copy, because a program serves its file system.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.content.as_ref().is_ok_and(|content| content.copied_for.is_some())
    }

    /// Size in bytes when the file was opened; `None` if it never was.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.content.as_ref().ok().map(|content| content.key.size)
    }
}

/// Identifies the content of a file: inode numbers are reused, and contents are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ContentKey {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Inode change time, seconds and nanoseconds: no user can set it.
    pub(super) ctime: (i64, i64),
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) id: FileId,
    pub(super) key: ContentKey,
    pub(super) program_in_memory: bool,
    /// The tenant whose share of the memory for copies the file uses, if the file is read from a copy.
    pub(super) copied_for: Option<Tenant>,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    /// Number of the last use; later uses have greater numbers.
    pub(super) used: AtomicU64,
}

impl Content {
    pub(super) fn new(id: FileId, found: FoundFile, copied_for: Option<Tenant>) -> Content {
        let FoundFile { fd, key, program_in_memory, .. } = found;
        let (fd, used) = (Mutex::new(Some(Arc::new(fd))), AtomicU64::new(0));
        Content { id, key, program_in_memory, copied_for, fd, used }
    }

    pub(super) fn fd(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.fd).clone()
    }

    pub(super) fn close(&self) {
        lock(&self.fd).take();
    }

    pub(super) fn reopened(&self, fd: OwnedFd) {
        *lock(&self.fd) = Some(Arc::new(fd));
    }

    pub(super) fn touch(&self, time: u64) {
        self.used.store(time, Ordering::Relaxed);
    }
}

/// A file as mappings name it, opened or not. All mappings of an inode under one path share it.
#[derive(Debug)]
pub(super) struct FileRef {
    inode: Inode,
    path: Arc<Path>,
    /// Whether the kernel says that the path was removed.
    named_deleted: bool,
    pub(super) state: Mutex<FileState>,
}

/// The result of opening a file.
#[derive(Debug, Default)]
pub(super) struct FileState {
    pub(super) opened: Option<Arc<MappedFile>>,
    /// When the file was last seen to be unchanged.
    pub(super) checked: MonoNs,
    /// The process for which the file was last opened.
    pub(super) asked_by: u32,
    pub(super) backoff: Backoff,
    /// The file is not tried again before this time.
    pub(super) retry_at: MonoNs,
}

impl FileRef {
    pub(super) fn new(inode: Inode, path: Arc<Path>) -> FileRef {
        use std::os::unix::ffi::OsStrExt as _;
        let bytes = path.as_os_str().as_bytes();
        let stripped = bytes.strip_suffix(b" (deleted)").map(|rest| Arc::from(bytes_path(rest)));
        let (named_deleted, path) = (stripped.is_some(), stripped.unwrap_or(path));
        FileRef { inode, path, named_deleted, state: Mutex::default() }
    }

    pub(super) fn inode(&self) -> Inode {
        self.inode
    }

    pub(super) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(super) fn named_deleted(&self) -> bool {
        self.named_deleted
    }

    /// Whether both have one inode. `/proc` does not give the generation.
    pub(super) fn same_file(&self, other: &FileRef) -> bool {
        let (a, b) = (self.inode, other.inode);
        let generations = a.generation == b.generation || a.generation == 0 || b.generation == 0;
        (a.major, a.minor, a.ino) == (b.major, b.minor, b.ino) && generations
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
