//! The state that all connections share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::daemon::state::DaemonState;
use crate::serve::AccessCheck;
use crate::serve::browser_page::{PageServer, ServedBy};

/// The state that all connections share.
pub(in crate::daemon) struct Server {
    pub(in crate::daemon) state: Arc<DaemonState>,
    pub(in crate::daemon) guard: AccessCheck,
    /// Permits for profiles that are made at the same time.
    pub(in crate::daemon) profiles: Arc<Semaphore>,
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
