//! One deadline for a whole attach.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::refusal::Refusal;

/// The end of an attach: a time, or the moment at which the profiler no longer wants the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Instant,
    asker: BorrowedFd<'static>,
}

impl Deadline {
    /// `asker`: the socket to the profiler; a write side that is shut down interrupts the attach.
    pub(super) fn after(timeout: Duration, asker: BorrowedFd<'static>) -> Deadline {
        Deadline { end: Instant::now() + timeout, asker }
    }

    pub(super) fn remaining(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    pub(super) fn check(self) -> Result<(), Refusal> {
        if self.remaining().is_zero() { Err(Refusal::TimedOut) } else { Ok(()) }
    }

    /// Waits until `socket` is ready for `events`.
    ///
    /// # Errors
    /// [`Refusal::Exited`] when the process of `pidfd` ends first, [`Refusal::TimedOut`], [`Refusal::Interrupted`].
    pub(super) fn ready(
        self,
        pidfd: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        events: PollFlags,
    ) -> Result<(), Refusal> {
        loop {
            let process = PollFd::from_borrowed_fd(pidfd, PollFlags::IN);
            let [socket, process] =
                self.wait([PollFd::from_borrowed_fd(socket, events), process], self.remaining())?;
            if socket {
                return Ok(());
            }
            if process {
                return Err(Refusal::Exited);
            }
            self.check()?;
        }
    }

    /// Waits for `pause`, or less if the process ends or the deadline comes.
    ///
    /// # Errors
    /// [`Refusal::Exited`] when the process of `pidfd` ends, [`Refusal::TimedOut`], [`Refusal::Interrupted`].
    pub(super) fn pause(self, pidfd: BorrowedFd<'_>, pause: Duration) -> Result<(), Refusal> {
        let process = PollFd::from_borrowed_fd(pidfd, PollFlags::IN);
        let [ended] = self.wait([process], pause.min(self.remaining()))?;
        if ended { Err(Refusal::Exited) } else { self.check() }
    }

    /// Which descriptors become ready within `timeout`; an interrupt by the asker comes first.
    fn wait<const N: usize>(self, what: [PollFd<'_>; N], timeout: Duration) -> Result<[bool; N], Refusal> {
        let mut all = vec![PollFd::from_borrowed_fd(self.asker, PollFlags::RDHUP)];
        all.extend(what);
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut all, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Refusal::HelperFailed(format!("poll: {errno}"))),
        }
        let mut said = all.iter().map(|one| !one.revents().is_empty());
        if said.next() == Some(true) {
            return Err(Refusal::Interrupted);
        }
        Ok(std::array::from_fn(|_| said.next() == Some(true)))
    }
}
