//! Opens tenants' files in a process of its own: their file systems, and those on the way to them, may never answer.
//!
//! The server of a user-space file system (FUSE) may take a request and never answer. Then not even SIGKILL ends the
//! thread that waits (`request_wait_answer` in `fs/fuse/dev.c`), and its process cannot end either. So the files are
//! opened in another process than the profiler, which is left behind and ends with that file system.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::channel::{Channel, ChannelError, MAX_DESCRIPTORS, Received};
use super::child::ChildProcess;
use super::event::Inode;
use super::file::{ContentKey, FoundFile, Unopened};
use super::moved_search::{self, MovedCode, MovedCodeSearch};
use super::opening::{self, FileQuery, LiveMapping};
use super::path::bytes_path;
use super::root::{self, FileOwner, OpenRefusal, ProcessRoot};
use super::served::{self, ServedFileCopy};
use super::timed_calls::{HungCalls, MAX_STUCK, Tenant, sleeps};
use super::{errno_of, procfs};

/// The hidden first argument that makes an opener of this binary.
pub const ARGUMENT: &str = "__opener";

/// Longest message, bytes: a path and some hundred numbers.
const MAX_MESSAGE: usize = 16 << 10;
/// How long a killed opener may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// No descriptor was left for a file that was opened.
const NO_DESCRIPTOR: OpenRefusal = OpenRefusal::Errno(libc::EMFILE);
pub(super) const NO_ROOM: Unopened = Unopened::Refused(NO_DESCRIPTOR);

/// What to open. Root directories are sent beside it.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Opens a mapped file.
    Mapped { inode: Inode, path: Vec<u8>, named_deleted: bool, live: Option<LiveMapping>, mapped_at: i128 },
    /// Copies this many bytes from the file of the first descriptor that is sent beside it to the second.
    Copy { size: u64 },
    /// Opens a regular file below the one root that is sent beside it; `uid`: the user of the process.
    Below { path: Vec<u8>, owner: FileOwner, uid: u32 },
    /// Looks for code of files in anonymous memory.
    Moved(MovedCodeSearch),
}

/// Answer to [`Request::Mapped`]; the descriptor is sent beside it.
type MappedReply = Result<FoundFileReply, Unopened>;
/// Answer to [`Request::Copy`] and [`Request::Below`].
type FileReply = Result<(), OpenRefusal>;
/// Answer to [`Request::Moved`]; `None` if no code of a file was found.
type CopiedReply = Option<MovedCode>;

/// What is known of an opened file: [`FoundFile`] without its descriptor.
#[derive(Serialize, Deserialize)]
struct FoundFileReply {
    served: bool,
    key: ContentKey,
    deleted_or_replaced: bool,
    program_in_memory: bool,
}

/// What openers cost. Those that have ended and were waited for are in the kernel's sum of all our children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenersCost {
    /// CPU time of the openers that exist.
    pub cpu: Duration,
    /// Resident memory of the openers now, bytes.
    pub resident: u64,
}

/// The running opener, and those that hang.
#[derive(Debug)]
pub(super) struct Opener {
    binary: PathBuf,
    timeout: Duration,
    running: Option<ChildProcess>,
    left: HungCalls<StuckOpener>,
}

/// An opener that hangs and cannot be ended.
#[derive(Debug)]
struct StuckOpener {
    child: Child,
    over: HangScope,
}

/// Where a file lies over which an opener may hang. A tenant's files there are not asked for again while that opener
/// waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HangScope {
    /// A file system without a block device: its server may not answer.
    Device(u32),
    /// A process: its file system has a block device and answers, but the path to the file may lead through one that
    /// does not.
    Process(u32),
    /// A mount namespace, for a path from which the device is not known.
    MountNamespace(u64),
}

impl HangScope {
    fn of(tgid: u32, wanted: &FileQuery) -> HangScope {
        match wanted.inode.major {
            0 => HangScope::Device(wanted.inode.minor),
            _ => HangScope::Process(tgid),
        }
    }
}

impl Opener {
    /// An opener that is started on demand. A file may take as long as `timeout`.
    pub(super) fn new(binary: PathBuf, timeout: Duration) -> Opener {
        Opener { binary, timeout, running: None, left: HungCalls::at_most(MAX_STUCK) }
    }

    /// Opens a file as [`opening::open_wanted`] does, for the process `tgid`.
    pub(super) fn open(&mut self, tgid: u32, wanted: &FileQuery) -> Result<FoundFile, Unopened> {
        let request = Request::Mapped {
            inode: wanted.inode,
            path: wanted.path.as_os_str().as_bytes().to_vec(),
            named_deleted: wanted.named_deleted,
            live: wanted.live,
            mapped_at: wanted.mapped_at,
        };
        let roots: Vec<_> = wanted.roots.iter().take(MAX_DESCRIPTORS).map(|dir| dir.as_fd()).collect();
        match self.run::<MappedReply>(tgid, HangScope::of(tgid, wanted), &request, &roots)? {
            (Ok(FoundFileReply { served, key, deleted_or_replaced, program_in_memory }), Some(fd)) => {
                Ok(FoundFile { fd, served, key, deleted_or_replaced, program_in_memory })
            }
            (Ok(_), None) => Err(NO_ROOM),
            (Err(why), _) => Err(why),
        }
    }

    /// Copies a file that [`open`](Self::open) found and that a program serves.
    pub(super) fn copy(
        &mut self,
        tgid: u32,
        wanted: &FileQuery,
        found: &FoundFile,
    ) -> Result<OwnedFd, Unopened> {
        let copy = ServedFileCopy::new().map_err(OpenRefusal::from)?;
        let request = Request::Copy { size: found.key.size };
        let files = [found.fd.as_fd(), copy.as_fd()];
        match self.run::<FileReply>(tgid, HangScope::of(tgid, wanted), &request, &files) {
            Ok((Ok(()), _)) => Ok(copy.seal().map_err(OpenRefusal::from)?),
            Ok((Err(why), _)) => Err(why.into()),
            Err(why) => {
                copy.give_up();
                Err(why)
            }
        }
    }

    /// Opens a file of the process `tgid` below its root as [`ProcessRoot::open_regular`] does.
    pub(super) fn open_below(
        &mut self,
        tgid: u32,
        root: &ProcessRoot,
        path: &Path,
        owner: FileOwner,
    ) -> Result<OwnedFd, Unopened> {
        let request = Request::Below { path: path.as_os_str().as_bytes().to_vec(), owner, uid: root.uid };
        let within = HangScope::MountNamespace(root.mount_ns);
        match self.run::<FileReply>(tgid, within, &request, &[root.dir()])? {
            (Ok(()), fd) => fd.ok_or(NO_ROOM),
            (Err(why), _) => Err(why.into()),
        }
    }

    /// Looks for code of files in anonymous memory, see [`moved_search::find`].
    pub(super) fn find_moved_code(
        &mut self,
        search: &MovedCodeSearch,
    ) -> Result<Option<MovedCode>, Unopened> {
        let tgid = search.program.tgid;
        let request = Request::Moved(search.clone());
        let (found, _) = self.run::<CopiedReply>(tgid, HangScope::Process(tgid), &request, &[])?;
        Ok(found)
    }

    /// Cost of the openers that have not been waited for.
    pub(super) fn cost(&self) -> OpenersCost {
        let running = self.running.iter().map(|helper| &helper.process);
        let all = running.chain(self.left.calls().map(|left| &left.child)).map(Child::id);
        all.fold(OpenersCost::default(), |sum, pid| OpenersCost {
            cpu: sum.cpu + procfs::cpu(pid),
            resident: sum.resident + procfs::resident(pid),
        })
    }

    /// Number of openers that hang now.
    pub(super) fn stuck(&self) -> usize {
        self.left.calls().count()
    }

    /// Sends a request and returns the answer. Only a timeout counts against the process. An opener that has ended (the
    /// kernel may have killed it long ago for its memory, say) is replaced once.
    fn run<T: DeserializeOwned>(
        &mut self,
        tgid: u32,
        within: HangScope,
        request: &Request,
        roots: &[BorrowedFd<'_>],
    ) -> Result<(T, Option<OwnedFd>), Unopened> {
        let tenant = || Tenant::of(tgid);
        let hangs = |left: &mut StuckOpener| matches!(left.child.try_wait(), Ok(None));
        let permit = self.left.admit(self.timeout, tenant, hangs, |left| left.over == within);
        let permit = permit.ok_or(Unopened::TooSlow)?;
        let mut answer = self.ask(request, roots, permit.timeout);
        if matches!(answer, Err(Unopened::NoOpener)) {
            log::warn!("processes: a helper has ended");
            self.replace(tenant, within);
            answer = self.ask(request, roots, permit.timeout);
        }
        match answer {
            Err(Unopened::TooSlow) => {
                if let Some(ChildProcess { process: mut child, .. }) = self.running.take() {
                    log::warn!("processes: a helper crashed or timed out on a file of process {tgid}");
                    let _ = child.kill();
                    self.left.add_permitted(permit, tenant, StuckOpener { child, over: within });
                }
            }
            Err(Unopened::NoOpener) => self.replace(tenant, within),
            _ => {}
        }
        answer
    }

    /// Ends this opener, which is of no use any more. The next request starts another one.
    fn replace(&mut self, tenant: impl FnOnce() -> Tenant, over: HangScope) {
        if let Some(helper) = self.running.take()
            && let Some(child) = helper.end(EXIT_TIMEOUT)
        {
            self.left.add(tenant(), StuckOpener { child, over });
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        roots: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(T, Option<OwnedFd>), Unopened> {
        let helper = match &mut self.running {
            Some(running) => running,
            // Too many open files or processes are a limit of the host, and no fault of the request.
            none => {
                let started = ChildProcess::start(&self.binary, ARGUMENT);
                none.insert(started.map_err(|e| OpenRefusal::from(errno_of(&e)))?)
            }
        };
        let task = format!("/proc/{}", helper.pid());
        match helper.ask(request, roots, MAX_MESSAGE, timeout, |_| sleeps(&task)) {
            Ok(Received { message, mut descriptors }) => Ok((message, descriptors.pop())),
            Err(ChannelError::TimedOut) => Err(Unopened::TooSlow),
            Err(_) => Err(Unopened::NoOpener),
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some(helper) = self.running.take() {
            // An opener that hangs ends with the file system that it waits for.
            let _ = helper.end(EXIT_TIMEOUT);
        }
    }
}

/// Opens a regular file of any user below the root of the process `tgid`, in an opener of its own: `binary` is this
/// program.
///
/// # Errors
/// Why the file was not opened within `timeout`.
pub fn open_file(binary: &Path, tgid: u32, path: &Path, timeout: Duration) -> Result<OwnedFd, Unopened> {
    let root = ProcessRoot::of(tgid)?;
    Opener::new(binary.to_owned(), timeout).open_below(tgid, &root, path, FileOwner::Any)
}

/// The channel to the profiler.
type Parent = Channel<BorrowedFd<'static>>;

/// Entry of the child: opens what is requested over the socket that is its standard input, until the socket is closed.
/// Returns the exit code.
#[must_use]
pub fn main() -> i32 {
    // The opener may wait for a foreign file system when the profiler is killed. If the profiler has ended already, the
    // socket shows it.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return 1;
    }
    let channel = Channel(rustix::stdio::stdin());
    while let Ok(Received { message, descriptors: roots }) = channel.receive::<Request>(MAX_MESSAGE, None) {
        let sent = match message {
            Request::Mapped { inode, path, named_deleted, live, mapped_at } => {
                let path = Arc::from(bytes_path(&path));
                let roots = roots.into_iter().map(Arc::new).collect();
                answer_mapped(&channel, &FileQuery { inode, path, named_deleted, live, roots, mapped_at })
            }
            Request::Copy { size } => {
                let mut files = roots.into_iter();
                let filled = match (files.next(), files.next()) {
                    (Some(found), Some(copy)) => served::fill(copy, found.as_fd(), size),
                    _ => Err(NO_DESCRIPTOR),
                };
                channel.send(&filled, &[], None)
            }
            Request::Below { path, owner, uid } => {
                let root = roots.first().ok_or(OpenRefusal::ProcessGone);
                let below = |root: &OwnedFd| root::open_regular(root.as_fd(), bytes_path(&path), owner, uid);
                answer_file(&channel, root.and_then(below))
            }
            Request::Moved(search) => channel.send(&moved_search::find(&search), &[], None),
        };
        if sent.is_err() {
            return 1;
        }
    }
    0
}

fn answer_mapped(channel: &Parent, wanted: &FileQuery) -> Result<(), ChannelError> {
    match opening::open_wanted(wanted) {
        Ok(FoundFile { fd, served, key, deleted_or_replaced, program_in_memory }) => {
            let opened = FoundFileReply { served, key, deleted_or_replaced, program_in_memory };
            channel.send(&MappedReply::Ok(opened), &[fd.as_fd()], None)
        }
        Err(why) => channel.send(&MappedReply::Err(why), &[], None),
    }
}

fn answer_file(channel: &Parent, file: Result<OwnedFd, OpenRefusal>) -> Result<(), ChannelError> {
    match file {
        Ok(fd) => channel.send(&FileReply::Ok(()), &[fd.as_fd()], None),
        Err(why) => channel.send(&FileReply::Err(why), &[], None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that are not openers: one ends at once, one works and never answers.
    const ENDS: &str = "/bin/true";
    const MUTE: &str = "/usr/bin/yes";

    fn opener(binary: &str) -> Opener {
        Opener::new(binary.into(), Duration::from_millis(100))
    }

    fn asked(opener: &mut Opener) -> Unopened {
        let root = ProcessRoot::of(std::process::id()).unwrap();
        opener.open_below(std::process::id(), &root, Path::new("/etc/passwd"), FileOwner::Any).unwrap_err()
    }

    #[test]
    fn an_opener_that_ends_is_no_fault_of_what_it_is_asked_for() {
        let mut opener = opener(ENDS);
        for _ in 0..2 {
            assert_eq!(asked(&mut opener), Unopened::NoOpener);
        }
        assert_eq!(opener.stuck(), 0);
    }

    #[test]
    fn in_the_place_of_one_that_has_ended_the_next_one_is_asked() {
        let mut opener = opener("/nowhere");
        let mut helper = ChildProcess::start(Path::new(ENDS), ARGUMENT).unwrap();
        helper.process.wait().unwrap();
        opener.running = Some(helper);
        assert_eq!(asked(&mut opener), Unopened::Refused(OpenRefusal::Missing));
    }

    #[test]
    fn an_opener_that_cannot_be_started_says_why() {
        assert_eq!(asked(&mut opener("/nowhere")), Unopened::Refused(OpenRefusal::Missing));
    }

    #[test]
    fn what_an_opener_takes_is_known_while_it_runs() {
        let mut opener = opener(MUTE);
        assert_eq!(opener.cost(), OpenersCost::default());
        opener.running = Some(ChildProcess::start(&opener.binary, ARGUMENT).unwrap());
        while opener.cost().cpu < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        assert!(opener.cost().resident > 0);
    }
}
