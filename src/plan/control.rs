//! What is said to a session while it runs: that it is to end, how often to tick, that it holds too much.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The words for one session; clones speak to the same one.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    /// Readable when the session is to end; none where the kernel had none: it is noticed a beat later then.
    wake: Option<Arc<OwnedFd>>,
    /// Readable when nothing is to be waited for any more.
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

/// Makes an event readable for good. It counts as far as it has room, which is more than anybody tells.
fn raise(event: Option<&Arc<OwnedFd>>) {
    let _ = event.map(|event| rustix::io::write(event, &1_u64.to_ne_bytes()));
}

impl Control {
    /// Ends the session: no tick runs a tenth of a second later. `why` is for the log.
    pub fn stop(&self, why: &str) {
        if !self.stop.swap(true, Ordering::Relaxed) {
            log::info!("sampling: stopping: {why}");
            raise(self.wake.as_ref());
        }
    }

    /// The same, and whoever said so waits: JVMs that have not answered yet are given up.
    pub fn interrupt(&self, why: &str) {
        self.stop(why);
        raise(self.interrupt.as_ref());
    }

    /// Readable from [`Control::interrupt`] on.
    pub(crate) fn interrupted(&self) -> Option<Arc<OwnedFd>> {
        self.interrupt.clone()
    }

    /// Readable from [`Control::stop`] on.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(|wake| wake.as_fd())
    }

    /// Whether the session is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// From the next part on, ticks come at this period; it must not be shorter than the one in the settings, for
    /// which the maps were made.
    pub fn set_period(&self, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
    }

    /// The period that was asked for since the start, if any.
    pub(crate) fn period(&self) -> Option<u64> {
        Some(self.period_ns.load(Ordering::Relaxed)).filter(|&ns| ns > 0)
    }

    /// Has the session forget what it can learn again.
    pub fn evict(&self) {
        self.evict.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for since the last look.
    pub(crate) fn take_evict(&self) -> bool {
        self.evict.swap(false, Ordering::Relaxed)
    }
}
