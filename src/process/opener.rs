//! Opening files whose file system may never answer, in a process of its own.
//!
//! Who waits for the server of a user-space file system (FUSE) that has taken the request and says nothing cannot be
//! ended, not even by SIGKILL (`request_wait_answer` in `fs/fuse/dev.c`). A process with such a thread cannot end
//! either: so it must be another process than the profiler, which is left behind and ends with that file system.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::file::{ContentKey, Unopened};
use super::opening::{self, Found, Wanted};
use super::packet::{self, is_readable, receive, send};
use super::path::bytes_path;

/// The hidden first argument that makes an opener of this binary.
pub const ARGUMENT: &str = "__opener";

/// Longest message, bytes: a path and some numbers.
const MAX_MESSAGE: usize = 8 << 10;
/// Openers that hang and cannot be ended, at most; then no such file is opened until one goes.
const MAX_LEFT: usize = 32;

/// Which file; the root directories come beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    inode: Inode,
    path: Vec<u8>,
    named_deleted: bool,
    live: Option<(u32, u64, u64)>,
    mapped_at: i128,
}

/// The descriptor comes beside it.
type Answer = Result<Opened, Unopened>;

/// What was found out about a file that is open: [`Found`] without its descriptor.
#[derive(Serialize, Deserialize)]
struct Opened {
    key: ContentKey,
    deleted_or_replaced: bool,
    program_in_memory: bool,
}

/// A running opener, and those that hang.
#[derive(Debug)]
pub(super) struct Opener {
    binary: PathBuf,
    limit: Duration,
    running: Option<(Child, OwnedFd)>,
    left: Vec<Child>,
}

impl Opener {
    /// One that is started when it is needed. A file may take as long as `limit`.
    pub(super) fn new(binary: PathBuf, limit: Duration) -> Opener {
        Opener { binary, limit, running: None, left: Vec::new() }
    }

    /// Opens a file as [`opening::open_wanted`] does.
    pub(super) fn open(&mut self, wanted: &Wanted) -> Result<Found, Unopened> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        // The more hang, the less patience is left for the next one.
        let limit = self.limit / u32::try_from(1 + self.left.len()).unwrap_or(u32::MAX);
        let answer = self.ask(wanted, limit);
        if answer.is_none()
            && let Some((mut child, _)) = self.running.take()
        {
            log::warn!("processes: an opener is lost over {}", wanted.path.display());
            let _ = child.kill();
            self.left.push(child);
        }
        match answer.ok_or(Unopened::TooSlow)? {
            (Ok(Opened { key, deleted_or_replaced, program_in_memory }), Some(fd)) => {
                Ok(Found { fd, key, deleted_or_replaced, program_in_memory })
            }
            (Ok(_), None) => Err(Unopened::TooSlow),
            (Err(why), _) => Err(why),
        }
    }

    /// How many hang now.
    pub(super) fn stuck(&self) -> usize {
        self.left.len()
    }

    /// `None` if there is no answer in time.
    fn ask(&mut self, wanted: &Wanted, limit: Duration) -> Option<(Answer, Option<OwnedFd>)> {
        use std::os::unix::ffi::OsStrExt as _;
        if self.running.is_none() && self.left.len() < MAX_LEFT {
            self.running = start(&self.binary);
        }
        let (_, socket) = self.running.as_ref()?;
        let request = Request {
            inode: wanted.inode,
            path: wanted.path.as_os_str().as_bytes().to_vec(),
            named_deleted: wanted.named_deleted,
            live: wanted.live,
            mapped_at: wanted.mapped_at,
        };
        let roots: Vec<BorrowedFd<'_>> =
            wanted.roots.iter().take(packet::MAX_DESCRIPTORS).map(|dir| dir.as_fd()).collect();
        send(socket, &request, &roots).ok()?;
        if !is_readable(socket, limit) {
            return None;
        }
        let (answer, mut descriptors) = receive::<Answer>(socket, MAX_MESSAGE).ok()?;
        Some((answer, descriptors.pop()))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(binary: &Path) -> Option<(Child, OwnedFd)> {
    let (ours, theirs) = packet::pair().ok()?;
    Some((packet::start(binary, ARGUMENT, theirs).ok()?, ours))
}

/// The child's entry: it opens what the socket that is its standard input asks for, until that is closed. Returns the
/// exit code.
#[must_use]
pub fn main() -> i32 {
    let socket = rustix::stdio::stdin();
    while let Ok((request, roots)) = receive::<Request>(socket, MAX_MESSAGE) {
        let wanted = Wanted {
            inode: request.inode,
            path: Arc::from(bytes_path(&request.path)),
            named_deleted: request.named_deleted,
            live: request.live,
            roots: roots.into_iter().map(Arc::new).collect(),
            mapped_at: request.mapped_at,
        };
        let sent = match opening::open_wanted(&wanted) {
            Ok(Found { fd, key, deleted_or_replaced, program_in_memory }) => {
                let opened = Opened { key, deleted_or_replaced, program_in_memory };
                send(socket, &Answer::Ok(opened), &[fd.as_fd()])
            }
            Err(why) => send(socket, &Answer::Err(why), &[]),
        };
        if sent.is_err() {
            return 1;
        }
    }
    0
}
