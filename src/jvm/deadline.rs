//! One deadline for all of an attach.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::refusal::Refusal;

/// Until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now() + limit)
    }

    pub(super) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn check(self) -> Result<(), Refusal> {
        if self.remaining().is_zero() { Err(Refusal::TimedOut) } else { Ok(()) }
    }

    /// Waits until `socket` is ready for `events`.
    ///
    /// # Errors
    /// [`Refusal::Exited`] when the process of `pidfd` ends first, [`Refusal::TimedOut`].
    pub(super) fn ready(
        self,
        pidfd: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        events: PollFlags,
    ) -> Result<(), Refusal> {
        loop {
            let mut both =
                [PollFd::from_borrowed_fd(socket, events), PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
            wait(&mut both, self.remaining())?;
            if !both[0].revents().is_empty() {
                return Ok(());
            }
            if !both[1].revents().is_empty() {
                return Err(Refusal::Exited);
            }
            self.check()?;
        }
    }

    /// Waits for `pause`, or less if the process ends or the deadline comes.
    ///
    /// # Errors
    /// As [`Deadline::ready`].
    pub(super) fn pause(self, pidfd: BorrowedFd<'_>, pause: Duration) -> Result<(), Refusal> {
        let mut process = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
        wait(&mut process, pause.min(self.remaining()))?;
        if process[0].revents().is_empty() { self.check() } else { Err(Refusal::Exited) }
    }
}

fn wait(what: &mut [PollFd<'_>], limit: Duration) -> Result<(), Refusal> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(what, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Refusal::HelperFailed(format!("poll: {errno}"))),
    }
}
