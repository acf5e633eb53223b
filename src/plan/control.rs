//! Commands to a running session: end, change the sampling period, free memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// A handle to one session. Clones control the same session.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    /// Readable when the session is to end. `None` if the kernel gave no eventfd: the session then notices one polling
    /// interval later.
    wake: Option<Arc<OwnedFd>>,
    /// Readable when the session must not wait for anything any more.
    interrupt: Option<Arc<OwnedFd>>,
    period_ns: Arc<AtomicU64>,
    evict: Arc<AtomicBool>,
}

impl Default for Control {
    fn default() -> Control {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new);
        Control {
            stop: Arc::default(),
            wake: event(),
            interrupt: event(),
            period_ns: Arc::default(),
            evict: Arc::default(),
        }
    }
}

/// Makes an event readable for good. A full counter refuses the write, but no session gets that many commands.
fn signal_event(event: Option<&Arc<OwnedFd>>) {
    let _ = event.map(|event| rustix::io::write(event, &1_u64.to_ne_bytes()));
}

impl Control {
    /// Ends the session: no sample is taken later than a tenth of a second from now. `why` is for the log.
    pub fn stop(&self, why: &str) {
        if !self.stop.swap(true, Ordering::Relaxed) {
            log::info!("sampling: stopping: {why}");
            signal_event(self.wake.as_ref());
        }
    }

    /// Like [`Control::stop`], for a caller that waits: JVMs that have not answered yet are given up.
    pub fn interrupt(&self, why: &str) {
        self.stop(why);
        signal_event(self.interrupt.as_ref());
    }

    /// An event that is readable from [`Control::interrupt`] on.
    pub(crate) fn interrupted(&self) -> Option<Arc<OwnedFd>> {
        self.interrupt.clone()
    }

    /// An event that is readable from [`Control::stop`] on.
    pub(crate) fn wake_event(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(|wake| wake.as_fd())
    }

    /// Whether the session was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether [`Control::interrupt`] was called.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.poll_interrupt(Some(&Timespec::default())) == Ok(1)
    }

    /// Waits until [`Control::interrupt`] is called. Returns at once if the kernel gave no event to wait for.
    pub fn wait_for_interrupt(&self) {
        while self.poll_interrupt(None) == Err(Errno::INTR) {}
    }

    fn poll_interrupt(&self, timeout: Option<&Timespec>) -> Result<usize, Errno> {
        let Some(event) = &self.interrupt else { return Ok(0) };
        poll(&mut [PollFd::new(event, PollFlags::IN)], timeout)
    }

    /// Sets the sampling period, in nanoseconds, from the next part on. The period must not be shorter than the one in
    /// the settings, which the maps are sized for.
    pub fn set_period(&self, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
    }

    /// The period, in nanoseconds, that was last set with `set_period`, if any.
    pub(crate) fn period(&self) -> Option<u64> {
        Some(self.period_ns.load(Ordering::Relaxed)).filter(|&ns| ns > 0)
    }

    /// Asks the session to evict from its caches what it can read again.
    pub fn evict(&self) {
        self.evict.store(true, Ordering::Relaxed);
    }

    /// Whether [`Control::evict`] was called since the last check.
    pub(crate) fn take_evict(&self) -> bool {
        self.evict.swap(false, Ordering::Relaxed)
    }
}
