//! The daemon: sessions one after another, whose windows are stored, served over HTTP and pushed to sinks.
//!
//! Four threads form a pipeline: sampling (`session/sampler.rs`); sessions (names); storing (packing, disk); serving
//! (HTTP, sinks, signals). Each hands its windows over without blocking, so a slow stage never stalls the one before it.

mod budget;
pub mod client;
mod config;
mod directory;
mod exposition;
pub mod health;
mod http;
mod keeper;
mod kubelet;
mod metrics;
mod notify;
pub mod push;
mod service;
mod sinks;
mod state;
mod store;
mod window;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};

use crate::sample::unit::Unit;
use crate::sample::{Event, EventPeriod};
use crate::serve::{AccessCheck, Address, Listener, serve};
use crate::session::{self, Control, JavaAllocations, Node, PermanentRefusals, Settings, Target};
use http::{DaemonSite, Endpoints, Server};
use keeper::WindowQueue;
use kubelet::Kubelet;
use notify::ServiceManager;
use sinks::Sinks;
use state::{DaemonState, Phase};
use store::WindowStore;

pub use budget::BudgetLimits;
pub use client::{Auth, Trust};
pub use config::DaemonConfig;
pub use kubelet::KubeletConfig;
pub use push::{Protocol, SinkConfig};
pub use store::StoreLimits;

/// How often to check for the kill switch.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Pause before sampling is tried again after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How long sinks have to accept the last window when the daemon ends.
const LAST_PUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the settings again.
pub type ReadSettings<'a> = &'a dyn Fn() -> anyhow::Result<DaemonConfig>;

/// Runs until SIGTERM or Ctrl-C. SIGHUP reads the settings again, by `read`.
///
/// # Errors
/// The daemon cannot start: this host does not allow sampling, an address is in use, or a directory cannot be written.
/// Later failures are retried.
pub fn run(config: &DaemonConfig, read: ReadSettings<'_>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("HTTP")?;
    let store = WindowStore::open(&config.directory.join("windows"), config.store)?;
    let sinks = Sinks::new(config.directory.join("spool"), config.binary.clone());
    sinks.apply(&config.sinks, runtime.handle())?;
    let kubelet = config.kubelet.clone().map(|kubelet| Kubelet::new(kubelet, &config.binary));
    let state = DaemonState::new(Duration::from_secs(config.window_s.into()), Some(store), sinks, kubelet);
    let state = Arc::new(state);
    runtime.block_on(listen(config, &state))?;
    make_room_for_switch(config.kill_switch.as_deref());
    let switch = Arc::new(StopConditions::default());
    switch.read_file(config.kill_switch.as_deref());
    if state.kubelet.is_some() {
        let (state, switch) = (Arc::clone(&state), Arc::clone(&switch));
        runtime.spawn(async move { ask_kubelet(&state, &switch).await });
    }
    let (queue, keeper) = WindowQueue::open(&state, config.budget, config.hz)?;
    let (ended, end) = oneshot::channel();
    let current = Arc::new(Mutex::new(config.clone()));
    let sampler = SessionRunner {
        config: Arc::clone(&current),
        refused: PermanentRefusals::default(),
        state: Arc::clone(&state),
        switch: Arc::clone(&switch),
        queue,
    };
    let thread = std::thread::Builder::new()
        .name("sessions".into())
        .spawn(move || {
            // The receiver is gone only if `run` has ended already.
            let _ = ended.send(sampler.run());
        })
        .context("starting the thread of sessions")?;
    let outcome = runtime.block_on(watch(&Reload { read, current: &current }, &state, &switch, end));
    // The keeper ends when the `WindowQueue` is dropped, at the end of the sessions.
    let well = thread.join().is_ok() && keeper.join().is_ok();
    anyhow::ensure!(well, "a thread of the daemon has panicked");
    finish(&runtime, &state);
    outcome
}

/// Opens the configured addresses and serves them from now on.
async fn listen(config: &DaemonConfig, state: &Arc<DaemonState>) -> anyhow::Result<()> {
    let server = Arc::new(Server {
        state: Arc::clone(state),
        guard: AccessCheck::new(config.token_file.clone()),
        profiles: Arc::new(Semaphore::new(config.concurrent_profiles)),
    });
    for (address, surface) in [(&config.metrics, Endpoints::Metrics), (&config.api, Endpoints::Profiles)] {
        if let Some(address) = address {
            if let Address::Unix(path) = address
                && let Some(parent) = path.parent().filter(|parent| !parent.exists())
            {
                directory::make_private(parent)?;
            }
            let listener = Listener::bind(address).await?;
            log::info!("HTTP: {surface:?} at {address}");
            let site = DaemonSite { server: Arc::clone(&server), surface };
            tokio::spawn(serve(listener, Arc::new(site)));
        }
    }
    Ok(())
}

/// Polls which pods opt in. When annotations of running JVMs' pods change, sampling restarts: a new session looks at
/// all JVMs again.
async fn ask_kubelet(state: &DaemonState, switch: &StopConditions) {
    if let Some(kubelet) = &state.kubelet {
        let anew = |control: &Control| control.stop("pods that run have other annotations: it begins anew");
        kubelet.run(|| switch.send_control(anew)).await;
    }
}

/// Waits for a signal or the end of sampling, checks for the kill switch, and reports to the service manager.
async fn watch(
    reload: &Reload<'_>,
    state: &DaemonState,
    switch: &StopConditions,
    mut end: oneshot::Receiver<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    let mut manager = ServiceManager::of_environment();
    manager.ready();
    loop {
        tokio::select! {
            _ = interrupt.recv() => end_by_signal(switch, &manager),
            _ = terminate.recv() => end_by_signal(switch, &manager),
            _ = hang_up.recv() => {
                manager.reloading();
                reload.run(state, switch);
                manager.ready();
            }
            _ = looks.tick() => {
                switch.read_file(reload.kill_switch().as_deref());
                manager.report(state.health());
            }
            outcome = &mut end => return outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("sampling has panicked"))),
        }
    }
}

/// The settings in force, and how to read them again.
struct Reload<'a> {
    read: ReadSettings<'a>,
    current: &'a Mutex<DaemonConfig>,
}

impl Reload<'_> {
    fn kill_switch(&self) -> Option<PathBuf> {
        self.config().kill_switch.clone()
    }

    fn config(&self) -> MutexGuard<'_, DaemonConfig> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the settings again. Invalid settings change nothing.
    fn run(&self, state: &DaemonState, switch: &StopConditions) {
        let mut new = match (self.read)() {
            Ok(new) => new,
            Err(error) => {
                log::error!("reload: the settings in force stay as they are: {error:#}");
                return;
            }
        };
        let mut config = self.config();
        let before = config.clone();
        if let Err(error) = state.sinks.apply(&new.sinks, &Handle::current()) {
            log::error!("reload: the sinks stay as they are: {error:#}");
            new.sinks.clone_from(&before.sinks);
        }
        let fixed = config.reload(new);
        if !fixed.is_empty() {
            log::warn!("reload: these settings change only when the daemon restarts: {}", fixed.join(", "));
        }
        make_room_for_switch(config.kill_switch.as_deref());
        if let Some(store) = &state.store {
            store.set_limits(config.store);
        }
        log::info!("reload: the settings were read");
        if !config.samples_like(&before) {
            switch.send_control(|control| control.stop("the settings have changed: it begins anew"));
        }
    }
}

fn end_by_signal(switch: &StopConditions, manager: &ServiceManager) {
    manager.stopping();
    switch.end();
}

/// Gives the sinks a moment for the last window; requests that they do not accept stay in the spool.
fn finish(runtime: &Runtime, state: &DaemonState) {
    runtime.block_on(async {
        let taken = async {
            while state.sinks.stats().iter().any(|(_, stats)| stats.spooled > 0) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        // The next daemon pushes the remaining requests.
        let _ = tokio::time::timeout(LAST_PUSH_TIMEOUT, taken).await;
    });
}

/// Creates the directory of the kill switch: in an emergency `touch` must work at once.
fn make_room_for_switch(file: Option<&Path>) {
    let directory = file
        .and_then(Path::parent)
        .filter(|directory| !directory.as_os_str().is_empty() && !directory.exists());
    if let Some(Err(error)) = directory.map(directory::make_private) {
        log::warn!("kill switch: {error:#}");
    }
}

/// The conditions that stop sampling: the kill switch, and the end of the daemon.
#[derive(Default)]
struct StopConditions {
    off: AtomicBool,
    ends: AtomicBool,
    control: Mutex<Option<Control>>,
}

impl StopConditions {
    /// Checks whether the kill switch exists.
    fn read_file(&self, file: Option<&Path>) {
        let off = file.is_some_and(|file| file.symlink_metadata().is_ok());
        if self.off.swap(off, Ordering::SeqCst) != off {
            log::warn!("the kill switch is {}", if off { "there: sampling stops" } else { "gone" });
        }
        if off {
            self.send_control(|control| control.interrupt("the kill switch is there"));
        }
    }

    fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.send_control(|control| control.interrupt("a signal came"));
    }

    /// Sends a command to the running session.
    fn send_control(&self, word: impl FnOnce(&Control)) {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(word);
    }

    /// Creates the control of the next session. A stop that was requested before takes effect at once.
    fn next(&self) -> Control {
        let control = Control::default();
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control.clone());
        if self.ends() || self.is_off() {
            control.interrupt("a stop was requested before the session began");
        }
        control
    }

    fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }
}

struct SessionRunner {
    config: Arc<Mutex<DaemonConfig>>,
    /// What JVMs have refused in any session.
    refused: PermanentRefusals,
    state: Arc<DaemonState>,
    switch: Arc<StopConditions>,
    queue: WindowQueue,
}

impl SessionRunner {
    /// Runs until the daemon ends. A failure is an error only before the first window.
    fn run(self) -> anyhow::Result<()> {
        while !self.switch.ends() {
            if self.switch.is_off() {
                self.state.enter(Phase::Paused);
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            self.state.enter(Phase::Starting);
            let control = self.switch.next();
            // After the control: a reload from now on stops this session.
            let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.queue.send_session_start(control.clone(), config.budget, config.hz);
            let settings = Settings { refused: self.refused.clone(), ..settings(&config) };
            let outcome = session::run_parts(&settings, &control, |part| self.queue.send_window(part));
            self.queue.send_session_end();
            if let Err(error) = outcome {
                if self.state.metrics().windows() == 0 {
                    return Err(error);
                }
                log::warn!("sampling failed; retrying in {} s: {error:#}", RETRY_PAUSE.as_secs());
                self.state.metrics().failures += 1;
                self.state.enter(Phase::Failed(format!("{error:#}")));
                self.sleep_or_end(RETRY_PAUSE);
            }
        }
        Ok(())
    }

    fn sleep_or_end(&self, time: Duration) {
        let until = std::time::Instant::now() + time;
        while std::time::Instant::now() < until && !self.switch.ends() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// An event with its period. Events of the processor, such as cycles, are frequent: their usual period is larger than
/// the default of `one_in`, and is the least that they get.
fn event_period(event: Event, config: &DaemonConfig) -> EventPeriod {
    let period = match event.unit() {
        Unit::Nanoseconds => keeper::period_ns(config.hz),
        Unit::Count => config.one_in.max(event.usual_period()),
        Unit::Bytes => event.usual_period(),
    };
    EventPeriod { event, period }
}

fn settings(config: &DaemonConfig) -> Settings {
    Settings {
        binary: config.binary.clone(),
        target: Target::All,
        node: Node::at("/"),
        children: false,
        cpus: None,
        events: config.events.iter().map(|event| event_period(*event, config)).collect(),
        requested_hz: config.hz,
        part: Some(config.window_s),
        duration: None,
        user: true,
        kernel: true,
        idle: false,
        idle_frames: config.idle_frames.clone(),
        wakers: config.wakers,
        java_allocations: JavaAllocations::default(),
        trace_context: config.trace_context,
        include_self: false,
        per_thread: false,
        seconds: false,
        raw_threads: false,
        raw_names: false,
        java: config.java,
        agent_for: config.agent_for.clone(),
        refused: PermanentRefusals::default(),
        // Limits the load: not all JVMs of a host are busy with an attach at the same time.
        attach_at_once: 1,
        attach_timeout: config.attach_timeout,
        force_attach: false,
        btf: None,
        progress: false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::make_room_for_switch;

    #[test]
    fn the_kill_switch_has_a_directory_before_it_is_needed() {
        let tmp = tempfile::tempdir().unwrap();
        let directory = tmp.path().join("run/jbpf-prof");
        make_room_for_switch(Some(&directory.join("stop")));
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // An existing directory keeps its mode, and a missing setting or a bad path stops nothing.
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        make_room_for_switch(Some(&directory.join("stop")));
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        make_room_for_switch(None);
        make_room_for_switch(Some("stop".as_ref()));
        make_room_for_switch(Some("/proc/1/none/stop".as_ref()));
    }
}
