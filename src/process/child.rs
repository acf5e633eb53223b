//! Child processes that run this binary and answer questions: started, asked with a deadline, ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::channel::{Channel, ChannelError, Received};
use super::timed_calls::wait;

/// A child and the socket over which it answers.
#[derive(Debug)]
pub struct ChildProcess {
    pub(crate) process: Child,
    pub(crate) channel: Channel<UnixStream>,
}

impl ChildProcess {
    /// Starts this binary as a child that talks over its standard input. The hidden first argument selects what the
    /// child does. The child has no environment, and no open files that it was not given. The terminal's Ctrl-C goes to
    /// a whole process group. Children are in groups of their own, so that they can finish what the profiler still
    /// needs.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(binary: &Path, argument: &str) -> io::Result<ChildProcess> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = Command::new(binary)
            .arg(argument)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(ChildProcess { process, channel: Channel(ours) })
    }

    /// Process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a question and returns the answer, of at most `max_bytes` bytes, with its descriptors. The answer must
    /// begin within `timeout` of the time that `counts`, see [`wait`].
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        question: &impl Serialize,
        with: &[BorrowedFd<'_>],
        max_bytes: usize,
        timeout: Duration,
        counts: impl FnMut(Duration) -> bool,
    ) -> Result<Received<T>, ChannelError> {
        let deadline = || Some(Instant::now() + timeout);
        self.channel.send(question, with, deadline())?;
        let answered = |time| is_readable(&self.channel.0, time).then_some(());
        wait(timeout, counts, answered).ok_or(ChannelError::TimedOut)?;
        self.channel.receive(max_bytes, deadline())
    }

    /// Kills the child and waits for its end, no longer than `timeout`. Returns the child if it hangs in the kernel.
    #[must_use]
    pub fn end(mut self, timeout: Duration) -> Option<Child> {
        let _ = self.process.kill();
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            match self.process.try_wait() {
                Ok(Some(_)) | Err(_) => return None,
                Ok(None) => thread::sleep(Duration::from_millis(1)),
            }
        }
        Some(self.process)
    }
}

/// Whether the socket is readable within `timeout`: a message came, or the other side has ended.
pub fn is_readable(socket: impl AsFd, timeout: Duration) -> bool {
    first_readable(&[socket.as_fd()], timeout).is_some()
}

/// Index of the first socket, in the given order, that is readable within `timeout`.
pub fn first_readable(sockets: &[BorrowedFd<'_>], timeout: Duration) -> Option<usize> {
    let deadline = Instant::now() + timeout;
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|&socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => return polled.iter().position(|socket| !socket.revents().is_empty()),
        }
    }
}
