//! The thread that shows the page: it draws each second, and when the user presses a key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use super::keys::Reaction;
use super::live::LiveWindow;
use super::state::TopState;
use super::terminal::{Input, LiveTerminal};
use crate::output::report::thousands;
use crate::plan::Control;
use crate::profile::{Profile, RunReport};
use crate::sample::Event;

/// How long the thread waits for a key before it looks for a new second.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What the page shows.
#[derive(Clone, Debug)]
pub struct TopSetup {
    /// What is profiled, for people.
    pub target: String,
    /// The sampled events, in the order of the user.
    pub events: Vec<Event>,
    /// Length of the sliding window, in seconds.
    pub window_s: usize,
    /// Whether functions have colours.
    pub has_colours: bool,
}

/// The page on the terminal.
pub struct TopScreen {
    window: Arc<Mutex<LiveWindow>>,
    events: Vec<Event>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl TopScreen {
    /// Prepares the terminal and shows the page. When the user quits, `control` ends the session.
    ///
    /// # Errors
    /// The terminal cannot be prepared.
    pub fn start(setup: &TopSetup, control: &Control) -> anyhow::Result<TopScreen> {
        let window = Arc::new(Mutex::new(LiveWindow::new(setup.window_s)));
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut state = TopState::new(&setup.target, &setup.events);
        state.has_colours = setup.has_colours;
        let terminal = LiveTerminal::prepare().context("the terminal cannot be prepared")?;
        let thread = {
            let window = Arc::clone(&window);
            let has_ended = Arc::clone(&has_ended);
            let control = control.clone();
            std::thread::Builder::new().name("top".into()).spawn(move || {
                let shown = run_page(terminal, state, &window, || {
                    control.is_stopped() || has_ended.load(Ordering::Relaxed)
                });
                control.interrupt("the page of top is closed");
                shown
            })
        };
        let thread = Some(thread.context("starting the thread of the page")?);
        Ok(TopScreen { window, events: setup.events.clone(), has_ended, thread })
    }

    /// Adds the profile and the report of one second.
    pub fn push(&self, profile: Profile, report: RunReport) {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).push(profile, report);
    }

    /// A line for each event: its samples since the beginning of the session.
    #[must_use]
    pub fn account(&self) -> String {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |event: &Event| {
            let accounts = window.totals(*event);
            let lost = match accounts.lost_total() {
                0 => "none lost".to_owned(),
                lost => format!("{} lost", thousands(lost)),
            };
            format!("{}: {} samples, {lost}\n", event.title(), thousands(accounts.kept))
        };
        self.events.iter().map(line).collect()
    }

    /// Restores the terminal.
    ///
    /// # Errors
    /// The terminal failed while the page was shown.
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.has_ended.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(shown)) => shown,
            Some(Err(_)) => anyhow::bail!("the thread of the page has panicked; please report this"),
            None => Ok(()),
        }
    }
}

fn run_page(
    mut terminal: LiveTerminal,
    mut state: TopState,
    window: &Mutex<LiveWindow>,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut shown = 0;
    let mut is_changed = true;
    while !is_over() {
        // Summed up outside of the lock, so that the session does not wait.
        let latest = window.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if latest.pushed() != shown && !state.is_paused {
            shown = latest.pushed();
            state.set_snapshot(latest.snapshot());
            is_changed = true;
        }
        drop(latest);
        if std::mem::take(&mut is_changed) {
            terminal.draw(&mut state).context("the terminal failed")?;
        }
        match LiveTerminal::input(POLL_INTERVAL).context("the terminal failed")? {
            Some(Input::Key(key)) => match state.on_key(key) {
                Reaction::Redraw => {}
                Reaction::Quit => break,
                Reaction::Suspend => terminal.suspend().context("the terminal failed")?,
            },
            Some(Input::Resized) => {}
            None => continue,
        }
        is_changed = true;
    }
    Ok(())
}
