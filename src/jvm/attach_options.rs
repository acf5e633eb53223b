//! The options of attaching to a JVM.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::process::child::is_readable;

/// How a JVM is attached to, described or opened: time limits, helper, lease, size of the log.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Deadline of the whole attach, replay included.
    pub timeout: Duration,
    /// Attach even to builds that may crash.
    pub force: bool,
    /// This program, to be run as the helper.
    pub binary: PathBuf,
    /// How long the agent writes unless its lease is renewed.
    pub lease: Duration,
    /// Most bytes of log that lie unread in the JVM's memory.
    pub log_cap: u64,
    /// Makes the JVM choose samples of its allocations: the mean number of bytes between two of them.
    pub alloc_interval: Option<u64>,
    /// Becomes readable when the result is no longer wanted.
    pub interrupt: Option<Arc<OwnedFd>>,
}

impl AttachOptions {
    /// Ten seconds, a lease of 15 seconds, 32 MiB, no interrupt.
    #[must_use]
    pub fn new(binary: PathBuf) -> AttachOptions {
        AttachOptions {
            timeout: Duration::from_secs(10),
            force: false,
            binary,
            lease: Duration::from_secs(15),
            log_cap: 32 << 20,
            alloc_interval: None,
            interrupt: None,
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| is_readable(interrupt, Duration::ZERO))
    }
}
