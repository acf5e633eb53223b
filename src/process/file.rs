//! A file that code is mapped from, opened once and shared by all processes that map it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::event::Inode;
use super::root::OpenRefusal;

/// Names a [`MappedFile`] for the life of the profiler; never used again for another one.
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
    /// Its build id, where the kernel said it.
    pub build_id: Option<Arc<[u8]>>,
    /// The path does not lead to this file any more.
    pub deleted_or_replaced: bool,
    /// Size in bytes when it was opened; 0 if it never was.
    pub size: u64,
    /// Inode change time when it was opened, seconds and nanoseconds.
    pub ctime: (i64, u32),
    content: Mutex<Result<Arc<OwnedFd>, Unopened>>,
}

/// Why there is no descriptor of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unopened {
    /// The path could not be opened.
    #[error(transparent)]
    Refused(#[from] OpenRefusal),
    /// What is at the path now is another file than the one that was mapped.
    #[error("another file is at its path")]
    Replaced,
    /// The process ended before it was seen, and no root is known in which its path leads to the file.
    #[error("process gone")]
    ProcessGone,
    /// The file system did not answer in time.
    #[error("took too long")]
    TooSlow,
    /// It was closed to keep the number of descriptors low; [`super::Processes::locate`] opens it again.
    #[error("closed meanwhile")]
    Closed,
}

impl MappedFile {
    /// A descriptor to read it from.
    ///
    /// # Errors
    /// Why there is none.
    pub fn fd(&self) -> Result<Arc<OwnedFd>, Unopened> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
