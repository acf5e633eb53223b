//! State that the daemon's threads share: counters, stored windows, and the phase of sampling.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use super::http::FirstEvents;
use super::kubelet::Kubelet;
use super::metrics::Metrics;
use super::sinks::Sinks;
use super::store::WindowStore;
use super::window::PackedWindow;
use crate::serve::feed::Feed;

/// How many windows a slow reader of profiles may lag behind.
const BEHIND: usize = 16;
/// How long the start of a session may take, including attaching to JVMs.
const BEGINS_WITHIN: Duration = Duration::from_secs(180);

/// The phase of sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A session is starting.
    Starting,
    /// A session produces windows.
    Sampling,
    /// The kill switch exists.
    Paused,
    /// The session failed and is to be restarted.
    Failed(String),
}

struct PhaseState {
    phase: Phase,
    /// When the phase began or the last window arrived.
    since: Instant,
}

/// What all tasks of the daemon share: the store, the sinks, metrics, and how far sampling is.
pub(super) struct DaemonState {
    pub(super) window: Duration,
    pub(super) store: Option<WindowStore>,
    pub(super) sinks: Sinks,
    pub(super) kubelet: Option<Kubelet>,
    /// Broadcasts each new window.
    pub(super) windows: broadcast::Sender<Arc<PackedWindow>>,
    /// Sends each new window to pages that are open.
    pub(super) feed: Feed,
    pub(super) first_events: FirstEvents,
    metrics: Mutex<Metrics>,
    progress: Mutex<PhaseState>,
}

impl DaemonState {
    pub(super) fn new(
        window: Duration,
        store: Option<WindowStore>,
        sinks: Sinks,
        kubelet: Option<Kubelet>,
    ) -> DaemonState {
        DaemonState {
            window,
            store,
            sinks,
            kubelet,
            windows: broadcast::Sender::new(BEHIND),
            feed: Feed::default(),
            first_events: FirstEvents::default(),
            metrics: Mutex::default(),
            progress: Mutex::new(PhaseState { phase: Phase::Starting, since: Instant::now() }),
        }
    }

    pub(super) fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Length of a window in milliseconds.
    pub(super) fn window_ms(&self) -> u64 {
        u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Sets the phase and restarts its timeout; called again with each window.
    pub(super) fn enter(&self, phase: Phase) {
        self.metrics().paused = phase == Phase::Paused;
        let mut progress = self.progress();
        *progress = PhaseState { phase, since: Instant::now() };
    }

    /// The text of `/metrics`.
    pub(super) fn exposition(&self) -> String {
        let sinks = self.sinks.stats();
        let polls = self.kubelet.as_ref().map(Kubelet::polls);
        self.metrics().text(self.store.as_ref().map(WindowStore::kept), &sinks, polls, self.feed.stats())
    }

    /// Whether the daemon is alive; an error means that a restart would help. A failed session is healthy, because the
    /// daemon retries it.
    pub(super) fn health(&self) -> Result<&'static str, String> {
        let PhaseState { phase, since } = &*self.progress();
        let silent = since.elapsed();
        match phase {
            Phase::Starting if silent > BEGINS_WITHIN => {
                Err(format!("sampling has been starting for {} s", silent.as_secs()))
            }
            Phase::Sampling if silent > self.window * 3 + Duration::from_secs(30) => {
                Err(format!("no profile was stored for {} s", silent.as_secs()))
            }
            Phase::Starting => Ok("starting"),
            Phase::Sampling => Ok("sampling"),
            Phase::Paused => Ok("paused by the kill switch"),
            Phase::Failed(_) => Ok("sampling failed and will be tried again"),
        }
    }

    /// Whether windows arrive now or soon.
    pub(super) fn expects_windows(&self) -> Result<&'static str, String> {
        let well = self.health()?;
        match &self.progress().phase {
            Phase::Starting | Phase::Sampling => Ok(well),
            Phase::Paused => Err(well.to_owned()),
            Phase::Failed(why) => Err(why.clone()),
        }
    }

    /// Whether windows arrive now.
    pub(super) fn readiness(&self) -> Result<&'static str, String> {
        let well = self.expects_windows()?;
        let come = self.progress().phase == Phase::Sampling && self.metrics().windows() > 0;
        if come { Ok(well) } else { Err(format!("not yet: {well}")) }
    }

    fn progress(&self) -> MutexGuard<'_, PhaseState> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_make_it_ready() {
        let state = DaemonState::new(Duration::from_secs(10), None, Sinks::default(), None);
        assert_eq!(state.health(), Ok("starting"));
        assert!(state.readiness().is_err());
        state.enter(Phase::Paused);
        assert!(state.health().is_ok() && state.readiness().is_err());
        assert!(state.exposition().contains("jbpf_prof_paused 1"));
        state.enter(Phase::Failed("no perf events".to_owned()));
        assert_eq!(state.readiness(), Err("no perf events".to_owned()));
        state.enter(Phase::Sampling);
        assert!(state.readiness().is_err(), "no profile was stored");
    }
}
