//! A file that code is mapped from, opened once and shared by all processes that map it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::path::bytes_path;
use super::patience::Tenant;
use super::root::OpenRefusal;
use crate::backoff::Backoff;
use crate::sample::MonoNs;

/// Names the content of a file for the life of the profiler; never used again for another one. Files that are hard
/// links of each other have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// A mapped file.
#[derive(Debug)]
pub struct MappedFile {
    /// Its name in messages to the symbol worker.
    pub id: FileId,
    /// The path as the process named it, without ` (deleted)`. Foreign bytes: clean them before they are printed.
    pub path: Arc<Path>,
    /// The inode as the mapping names it.
    pub inode: Inode,
    /// The path does not lead to this file any more. False if it could not be opened.
    pub deleted_or_replaced: bool,
    pub(super) content: Result<Arc<Content>, Unopened>,
}

/// Tells whether any process that is known still maps a file, under whatever path.
#[derive(Clone, Debug)]
pub struct FileUse(Weak<Content>);

impl FileUse {
    /// Whether one does.
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
    /// What is at the path now is another file than the one that was mapped, or was written to since.
    #[error("another file is at its path")]
    Replaced,
    /// The process ended before it was seen, and no root is known in which its path leads to a file.
    #[error("process gone")]
    ProcessGone,
    /// The file system did not answer in time.
    #[error("took too long")]
    TooSlow,
    /// Our process that opens files ended over it, twice.
    #[error("the opener ended")]
    NoOpener,
    /// A program serves its file system, and there is no memory left for a copy of it.
    #[error("no room for a copy")]
    NoRoom,
    /// It was closed to keep the number of descriptors low; [`super::Processes::locate`] opens it again.
    #[error("closed meanwhile")]
    Closed,
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// To read it from; of one that is served: `O_PATH`, until it is a copy's.
    pub(super) fd: OwnedFd,
    /// A program serves its file system: it is read from a copy.
    pub(super) served: bool,
    pub(super) key: ContentKey,
    pub(super) deleted_or_replaced: bool,
    /// It is a memfd, and begins as an ELF file does.
    pub(super) program_in_memory: bool,
}

impl MappedFile {
    /// A descriptor to read it from.
    ///
    /// # Errors
    /// Why there is none.
    pub fn fd(&self) -> Result<Arc<OwnedFd>, Unopened> {
        self.content.as_ref().map_err(|why| *why)?.fd().ok_or(Unopened::Closed)
    }

    /// Tells later whether it is still mapped; `None` if it could not be opened.
    #[must_use]
    pub fn usage(&self) -> Option<FileUse> {
        self.content.as_ref().ok().map(|content| FileUse(Arc::downgrade(content)))
    }

    /// Whether it is memory with the content of a program: a memfd that was executed or loaded, not one that a
    /// runtime keeps generated code in. False if it could not be opened.
    #[must_use]
    pub fn is_program_in_memory(&self) -> bool {
        self.content.as_ref().is_ok_and(|content| content.program_in_memory)
    }

    /// Size in bytes when it was opened; `None` if it never was.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.content.as_ref().ok().map(|content| content.key.size)
    }
}

/// What makes a file another one: inode numbers are used again, contents are written over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ContentKey {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Inode change time, seconds and nanoseconds: no user can set it.
    pub(super) ctime: (i64, i64),
}

/// An opened file.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) id: FileId,
    pub(super) key: ContentKey,
    pub(super) program_in_memory: bool,
    /// Whose memory for copies it takes, if it is read from one.
    pub(super) copied_for: Option<Tenant>,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    /// Grows with every use.
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

/// A file as mappings name it, opened or not: one for all mappings of an inode under a path.
#[derive(Debug)]
pub(super) struct FileRef {
    inode: Inode,
    path: Arc<Path>,
    /// The kernel says that the path was removed.
    named_deleted: bool,
    pub(super) state: Mutex<FileState>,
}

/// What came of opening it.
#[derive(Debug, Default)]
pub(super) struct FileState {
    pub(super) opened: Option<Arc<MappedFile>>,
    /// When it was last seen to be what was opened.
    pub(super) checked: MonoNs,
    /// The process for which it was opened the last time.
    pub(super) asked_by: u32,
    /// Attempts in a row that failed.
    pub(super) backoff: Backoff,
    /// Not tried again before.
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

    /// Whether both are of one inode. `/proc` does not tell the generation.
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
