//! The keeper's thread: counts each window, applies the budget, and packs, stores and offers the window to the sinks.
//! Disks may be slow: when the keeper falls behind, windows are dropped and counted, and sampling goes on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;

use super::budget::{self, BudgetUse, RateDecision};
use super::http;
use super::state::{DaemonState, Phase};
use super::store::WindowStore;
use super::window::{PackedWindow, now_ms};
use crate::output::{PictureOptions, page};
use crate::serve::feed::{FeedChange, event};
use crate::session::{Control, Outcome};

/// Capacity of the queue of windows. Windows that waited for a JVM's names arrive together after its answer: a minute
/// late and more where some sixty JVMs start together.
const WAITING: usize = 16;

/// Messages to the keeper.
enum KeeperMessage {
    /// A session starts, with its control, the limits of the budget and the configured rate.
    Begun {
        control: Control,
        limits: budget::BudgetLimits,
        hz: f64,
    },
    Window(Box<Outcome>),
    Ended,
}

/// The sending side of the keeper's queue.
pub(super) struct WindowQueue {
    send: SyncSender<KeeperMessage>,
    state: Arc<DaemonState>,
}

impl WindowQueue {
    /// Starts the keeper's thread. The thread ends when the queue is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn open(
        state: &Arc<DaemonState>,
        limits: budget::BudgetLimits,
        hz: f64,
    ) -> anyhow::Result<(WindowQueue, JoinHandle<()>)> {
        let (send, messages) = sync_channel(WAITING);
        let budget = BudgetUse::new(limits, hz);
        state.metrics().hz = hz;
        let mut keeper =
            Keeper { state: Arc::clone(state), budget, control: None, began: Instant::now(), windows: 0 };
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || keeper.run(&messages))
            .context("starting the keeper's thread")?;
        Ok((WindowQueue { send, state: Arc::clone(state) }, thread))
    }

    pub(super) fn send_session_start(&self, control: Control, limits: budget::BudgetLimits, hz: f64) {
        // Sending cannot fail: the keeper runs until this sender is dropped.
        let _ = self.send.send(KeeperMessage::Begun { control, limits, hz });
    }

    pub(super) fn send_session_end(&self) {
        let _ = self.send.send(KeeperMessage::Ended);
    }

    /// Sends a window to the keeper without blocking; drops the window if the queue is full.
    pub(super) fn send_window(&self, outcome: Outcome) {
        self.state.enter(Phase::Sampling);
        if let Err(TrySendError::Full(_)) = self.send.try_send(KeeperMessage::Window(Box::new(outcome))) {
            log::warn!("a profile is dropped: {WAITING} others wait for the disk");
            self.state.metrics().skipped += 1;
        }
    }
}

struct Keeper {
    state: Arc<DaemonState>,
    budget: BudgetUse,
    control: Option<Control>,
    began: Instant,
    /// Windows so far. Their numbers order them, because the clock may be set back.
    windows: u64,
}

impl Keeper {
    fn run(&mut self, messages: &Receiver<KeeperMessage>) {
        while let Ok(message) = messages.recv() {
            match message {
                KeeperMessage::Begun { control, limits, hz } => {
                    if self.budget.is_of(limits, hz) {
                        self.budget.restart();
                    } else {
                        self.budget = BudgetUse::new(limits, hz);
                        self.state.metrics().hz = hz;
                    }
                    control.set_period(period_ns(self.budget.hz()));
                    self.control = Some(control);
                }
                KeeperMessage::Ended => {
                    self.control = None;
                    self.state.metrics().session_ended();
                }
                KeeperMessage::Window(outcome) => self.window(&outcome),
            }
        }
    }

    fn window(&mut self, outcome: &Outcome) {
        self.apply_budget(outcome);
        match PackedWindow::pack(&outcome.profile, outcome.ended) {
            Ok(window) => {
                self.windows += 1;
                let stored =
                    self.state.store.as_ref().map(|store| store.add(&window, self.windows, now_ms()));
                if let Some(Err(error)) = stored {
                    log::warn!("a profile is lost: {error:#}");
                }
                self.state.first_events.forget();
                self.feed(outcome);
                // Sending fails if no reader waits for a window, which is usual.
                let _ = self.state.windows.send(Arc::new(window));
            }
            Err(error) => {
                log::warn!("a profile is lost: {error:#}");
                self.state.store.iter().for_each(WindowStore::count_lost);
            }
        }
        self.state.sinks.offer(&outcome.profile);
    }

    /// Sends the window to pages that are open.
    fn feed(&self, outcome: &Outcome) {
        if self.state.feed.stats().clients == 0 {
            return;
        }
        let report = Some(Arc::new(outcome.report.clone()));
        let picture_options = PictureOptions { report, ..http::page_options(self.state.window_ms()) };
        match page::packed(&outcome.views(), &picture_options) {
            Ok(document) => self.state.feed.publish(&event(FeedChange::Increment, self.windows, &document)),
            Err(error) => log::warn!("a profile is not sent to pages: {error:#}"),
        }
    }

    fn apply_budget(&mut self, outcome: &Outcome) {
        let mut metrics = self.state.metrics();
        metrics.add_window(outcome);
        let now = self.began.elapsed().as_secs_f64();
        let (cpu, memory) = (metrics.cpu_seconds(), metrics.memory());
        let before = self.budget.hz();
        let RateDecision { rate, evict } = self.budget.decide_rate(now, cpu, outcome.report.cpus, memory);
        metrics.share = self.budget.share();
        metrics.hz = self.budget.hz();
        let Some(control) = &self.control else { return };
        if let Some(hz) = rate {
            log::warn!("the sampling rate is now {hz:.1} Hz, to stay within max-cpu");
            metrics.lowered += u64::from(hz < before);
            control.set_period(period_ns(hz));
        }
        if evict {
            log::warn!("caches are evicted, to stay within max-memory: {} KiB are used", memory >> 10);
            metrics.evictions += 1;
            control.evict();
        }
    }
}

/// The period in nanoseconds for a rate in Hz.
pub(super) fn period_ns(hz: f64) -> u64 {
    (1e9 / hz).round() as u64
}
