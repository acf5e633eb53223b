//! The state that all connections share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::daemon::state::State;
use crate::serve::Guard;
use crate::serve::browser_page::{PageServer, ServedBy};

/// The state that all connections share.
pub(in crate::daemon) struct Server {
    pub(in crate::daemon) state: Arc<State>,
    pub(in crate::daemon) guard: Guard,
    /// Permits for profiles that are made at the same time.
    pub(in crate::daemon) profiles: Semaphore,
    /// The permit for the first event of a live page. Pages that are opened at the same time wait for each other: each such
    /// event takes several megabytes while it is made.
    pub(in crate::daemon) first_events: Semaphore,
}

impl Server {
    pub(super) fn page(&self) -> PageServer {
        PageServer {
            of: ServedBy::Daemon,
            window_ms: self.state.window_ms(),
            token: self.guard.needs_token(),
        }
    }
}
