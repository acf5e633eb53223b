//! Opening tenants' files in a process of its own: their file systems, and those that lie on the way to them, may never
//! answer.
//!
//! Who waits for the server of a user-space file system (FUSE) that has taken the request and says nothing cannot be
//! ended, not even by SIGKILL (`request_wait_answer` in `fs/fuse/dev.c`). A process with such a thread cannot end
//! either: so it must be another process than the profiler, which is left behind and ends with that file system.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::file::{ContentKey, Found, Unopened};
use super::opening::{self, Wanted};
use super::packet::{self, PacketError, is_readable, receive, send};
use super::path::bytes_path;
use super::patience::{Hanging, MAX_STUCK, Tenant, sleeps, wait};
use super::root::{self, OpenRefusal, Owner, TargetRoot};
use super::served::{self, Copy};

/// The hidden first argument that makes an opener of this binary.
pub const ARGUMENT: &str = "__opener";

/// Longest message, bytes: a path and some numbers.
const MAX_MESSAGE: usize = 8 << 10;
/// How long a killed opener may take to go.
const PARTING: Duration = Duration::from_secs(1);
/// There was no room for the descriptor of a file that was opened.
const NO_DESCRIPTOR: OpenRefusal = OpenRefusal::Errno(libc::EMFILE);
pub(super) const NO_ROOM: Unopened = Unopened::Refused(NO_DESCRIPTOR);

/// What to open; root directories come beside it.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// A file that is mapped.
    Mapped {
        inode: Inode,
        path: Vec<u8>,
        named_deleted: bool,
        live: Option<(u32, u64, u64)>,
        mapped_at: i128,
    },
    /// So many bytes of the file that the first descriptor beside it stands for are copied to the second.
    Copy { size: u64 },
    /// A regular file of this user or root, below the one root that comes beside it.
    Below { path: Vec<u8>, uid: u32 },
}

/// Of [`Request::Mapped`]; the descriptor comes beside it.
type Answer = Result<Opened, Unopened>;
/// Of [`Request::Copy`] and [`Request::Below`].
type AnswerFile = Result<(), OpenRefusal>;

/// What was found out about a file: [`Found`] without its descriptor.
#[derive(Serialize, Deserialize)]
struct Opened {
    served: bool,
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
    left: Hanging<Left>,
}

/// An opener that hangs and cannot be ended.
#[derive(Debug)]
struct Left {
    child: Child,
    over: Within,
}

/// Where a file lies that an opener may hang over. A tenant's files there are not asked for again while that opener waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// A file system without a block device: it may be somebody's server that does not answer.
    Device(u32),
    /// One with a block device answers; but the path to the file may lead through one that does not.
    Process(u32),
    /// Where a path is looked for that says nothing of the device.
    MountNamespace(u64),
}

impl Within {
    fn of(tgid: u32, wanted: &Wanted) -> Within {
        match wanted.inode.major {
            0 => Within::Device(wanted.inode.minor),
            _ => Within::Process(tgid),
        }
    }
}

impl Opener {
    /// One that is started when it is needed. A file may take as long as `limit`.
    pub(super) fn new(binary: PathBuf, limit: Duration) -> Opener {
        Opener { binary, limit, running: None, left: Hanging::at_most(MAX_STUCK) }
    }

    /// Opens a file as [`opening::open_wanted`] does, for the process `tgid`.
    pub(super) fn open(&mut self, tgid: u32, wanted: &Wanted) -> Result<Found, Unopened> {
        let request = Request::Mapped {
            inode: wanted.inode,
            path: wanted.path.as_os_str().as_bytes().to_vec(),
            named_deleted: wanted.named_deleted,
            live: wanted.live,
            mapped_at: wanted.mapped_at,
        };
        let roots: Vec<_> =
            wanted.roots.iter().take(packet::MAX_DESCRIPTORS).map(|dir| dir.as_fd()).collect();
        let answer = self.run::<Answer>(tgid, Within::of(tgid, wanted), &request, &roots);
        match answer.ok_or(Unopened::TooSlow)? {
            (Ok(Opened { served, key, deleted_or_replaced, program_in_memory }), Some(fd)) => {
                Ok(Found { fd, served, key, deleted_or_replaced, program_in_memory })
            }
            (Ok(_), None) => Err(NO_ROOM),
            (Err(why), _) => Err(why),
        }
    }

    /// Copies what [`open`](Self::open) found, which a program serves.
    pub(super) fn copy(&mut self, tgid: u32, wanted: &Wanted, found: &Found) -> Result<OwnedFd, Unopened> {
        let copy = Copy::new().map_err(OpenRefusal::from)?;
        let request = Request::Copy { size: found.key.size };
        let files = [found.fd.as_fd(), copy.as_fd()];
        match self.run::<AnswerFile>(tgid, Within::of(tgid, wanted), &request, &files) {
            Some((Ok(()), _)) => Ok(copy.seal().map_err(OpenRefusal::from)?),
            Some((Err(why), _)) => Err(why.into()),
            None => {
                copy.give_up();
                Err(Unopened::TooSlow)
            }
        }
    }

    /// Opens a file of the process `tgid` below its root as [`TargetRoot::open_regular`] does; `None` if it hangs.
    pub(super) fn open_below(
        &mut self,
        tgid: u32,
        root: &TargetRoot,
        path: &Path,
    ) -> Option<Result<OwnedFd, OpenRefusal>> {
        let request = Request::Below { path: path.as_os_str().as_bytes().to_vec(), uid: root.uid };
        let within = Within::MountNamespace(root.mount_ns);
        match self.run::<AnswerFile>(tgid, within, &request, &[root.dir()])? {
            (Ok(()), fd) => Some(fd.ok_or(NO_DESCRIPTOR)),
            (Err(why), _) => Some(Err(why)),
        }
    }

    /// How many hang now.
    pub(super) fn stuck(&self) -> usize {
        self.left.calls().count()
    }

    /// The answer to a request; `None` if there is none in time.
    fn run<T: DeserializeOwned>(
        &mut self,
        tgid: u32,
        within: Within,
        request: &Request,
        roots: &[BorrowedFd<'_>],
    ) -> Option<(T, Option<OwnedFd>)> {
        let (tenant, limit) = (|| Tenant::of(tgid), self.limit);
        let hangs = |left: &mut Left| matches!(left.child.try_wait(), Ok(None));
        let turn = self.left.turn(limit, tenant, hangs, |left| left.over == within)?;
        let answer = self.ask(request, roots, turn.limit);
        if answer.is_none()
            && let Some((mut child, _)) = self.running.take()
        {
            log::warn!("processes: an opener is lost over a file of process {tgid}");
            let _ = child.kill();
            self.left.add(turn, tenant, Left { child, over: within });
        }
        answer
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        roots: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Option<(T, Option<OwnedFd>)> {
        if self.running.is_none() {
            self.running = start(&self.binary);
        }
        let (child, socket) = self.running.as_ref()?;
        send(socket, request, roots).ok()?;
        let task = format!("/proc/{}", child.id());
        wait(limit, |_| sleeps(&task), |time| is_readable(socket, time).then_some(()))?;
        let (answer, mut descriptors) = receive::<T>(socket, MAX_MESSAGE).ok()?;
        Some((answer, descriptors.pop()))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some((child, _)) = self.running.take() {
            // One that hangs ends with what it hangs in.
            let _ = packet::end(child, PARTING);
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
    // It may wait for a foreign file system when the profiler is killed. If that has ended already, the socket says so.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return 1;
    }
    let socket = rustix::stdio::stdin();
    while let Ok((request, roots)) = receive::<Request>(socket, MAX_MESSAGE) {
        let sent = match request {
            Request::Mapped { inode, path, named_deleted, live, mapped_at } => {
                let path = Arc::from(bytes_path(&path));
                let roots = roots.into_iter().map(Arc::new).collect();
                answer_mapped(socket, &Wanted { inode, path, named_deleted, live, roots, mapped_at })
            }
            Request::Copy { size } => {
                let mut files = roots.into_iter();
                let filled = match (files.next(), files.next()) {
                    (Some(found), Some(copy)) => served::fill(copy, found.as_fd(), size),
                    _ => Err(NO_DESCRIPTOR),
                };
                send(socket, &filled, &[])
            }
            Request::Below { path, uid } => {
                let root = roots.first().ok_or(OpenRefusal::ProcessGone);
                let below = |root: &OwnedFd| {
                    root::open_regular(root.as_fd(), bytes_path(&path), Owner::TargetOrRoot, uid)
                };
                answer_file(socket, root.and_then(below))
            }
        };
        if sent.is_err() {
            return 1;
        }
    }
    0
}

fn answer_mapped(socket: BorrowedFd<'_>, wanted: &Wanted) -> Result<(), PacketError> {
    match opening::open_wanted(wanted) {
        Ok(Found { fd, served, key, deleted_or_replaced, program_in_memory }) => {
            let opened = Opened { served, key, deleted_or_replaced, program_in_memory };
            send(socket, &Answer::Ok(opened), &[fd.as_fd()])
        }
        Err(why) => send(socket, &Answer::Err(why), &[]),
    }
}

fn answer_file(socket: BorrowedFd<'_>, file: Result<OwnedFd, OpenRefusal>) -> Result<(), PacketError> {
    match file {
        Ok(fd) => send(socket, &AnswerFile::Ok(()), &[fd.as_fd()]),
        Err(why) => send(socket, &AnswerFile::Err(why), &[]),
    }
}
