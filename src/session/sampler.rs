//! The sampling thread: turns the window each second and hands over what came, until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::capture::sideband::Sideband;
use crate::capture::window::Options;
use crate::capture::{Capture, Elapsed, RunStats, UnwindMemory, Window};
use crate::process::{EventKind, MonoNs, ProcessEvent};

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// How often the thread looks whether it is to stop.
const BEAT: Duration = Duration::from_millis(100);
/// Windows that may wait for the resolver; when it is slower the windows become longer.
const WAITING: usize = 8;
/// Events of processes that are kept before the first tick.
const MAX_EARLY: usize = 1 << 18;

/// What the thread has to say, in the order of time.
pub(super) enum News {
    /// What happened to processes within a window that is not over.
    Events(Vec<ProcessEvent>),
    /// A window is over.
    Window(Batch),
}

/// What happened in one window.
pub(super) struct Batch {
    pub(super) window: Window,
    /// What happened to processes up to the window's end and was not told before, in the order of time.
    pub(super) events: Vec<ProcessEvent>,
    /// When the window ended.
    pub(super) end: MonoNs,
}

/// What is known when sampling has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// What the events themselves counted.
    pub(super) elapsed: Elapsed,
    /// Run time of the BPF program.
    pub(super) program: Option<RunStats>,
    /// Wall time between the first and the last tick.
    pub(super) duration: Duration,
    /// Side-band events that the kernel had no room for.
    pub(super) lost_events: u64,
    /// Kernel memory of the maps, bytes.
    pub(super) map_bytes: u64,
    /// Most CPUs that ticked at the same time.
    pub(super) cpus: usize,
}

/// A prepared sampling thread.
pub(super) struct Sampler {
    thread: JoinHandle<anyhow::Result<Totals>>,
    go: SyncSender<Option<Duration>>,
    stop: Arc<AtomicBool>,
    /// It ends when sampling has ended.
    pub(super) news: Option<Receiver<News>>,
    /// Raised by who waits for news: events come at once then, else with their window.
    pub(super) eager: Arc<AtomicBool>,
    /// Where unwind tables go.
    pub(super) unwind: Option<UnwindMemory>,
}

/// Where the thread puts what it has.
struct Sink {
    send: SyncSender<News>,
    eager: Arc<AtomicBool>,
}

impl Sampler {
    /// Loads the program and opens the events in a thread of their own; returns when they are ready. The side-band
    /// runs from then on; a raised `stop` ends the last window.
    ///
    /// # Errors
    /// When this host does not allow it.
    pub(super) fn prepare(options: Options, stop: Arc<AtomicBool>) -> anyhow::Result<Sampler> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let (send, news) = mpsc::sync_channel(WAITING);
        let eager = Arc::new(AtomicBool::new(false));
        let sink = Sink { send, eager: Arc::clone(&eager) };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || {
                let prepared =
                    Run::prepare(&options).and_then(|run| Ok((run.capture.program().unwind_memory()?, run)));
                let (memory, mut run) = match prepared {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        // The reader waits for exactly this message.
                        let _ = ready.send(Err(error));
                        return Ok(Totals::default());
                    }
                };
                let _ = ready.send(Ok(memory));
                let mut early = Vec::new();
                let Some(limit) = run.wait(&may_go, &mut early) else { return Ok(Totals::default()) };
                run.sample(limit, early, &stopped, &sink)
            })
            .context("starting the sampling thread")?;
        let unwind = is_ready.recv().unwrap_or_else(|_| Err(anyhow!("the sampling thread ended")))?;
        Ok(Sampler { thread, go, stop, news: Some(news), eager, unwind: Some(unwind) })
    }

    /// Starts the ticks, for `limit` at most.
    pub(super) fn go(&self, limit: Option<Duration>) {
        // If the thread is gone, `finish` says why.
        let _ = self.go.send(limit);
    }

    /// Waits for the end; the batches must be read to their end by then or dropped.
    ///
    /// # Errors
    /// What ended the sampling early.
    pub(super) fn finish(self) -> anyhow::Result<Totals> {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.go);
        self.thread.join().unwrap_or_else(|_| Err(anyhow!("the sampling thread panicked")))
    }
}

/// The thread's own state.
struct Run {
    capture: Capture,
    sideband: Sideband,
    follow_children: bool,
    /// Processes whose children are wanted too.
    family: std::collections::HashSet<u32>,
}

impl Run {
    fn prepare(options: &Options) -> anyhow::Result<Run> {
        let capture = Capture::prepare(options)?;
        // Processes run on any CPU, whichever CPUs are sampled.
        let cpus = crate::capture::clock::online_cpus()?;
        let sideband = Sideband::open(cpus).context("perf events of processes and mappings")?;
        let family = options.filter.tgids.iter().copied().collect();
        Ok(Run { capture, sideband, follow_children: options.filter.children, family })
    }

    /// Waits for the word to begin and its limit; none if nobody will say it. JVMs may take seconds to be attached to:
    /// the side-band is read meanwhile, its rings would overflow.
    fn wait(
        &mut self,
        may_go: &Receiver<Option<Duration>>,
        events: &mut Vec<ProcessEvent>,
    ) -> Option<Option<Duration>> {
        loop {
            match may_go.recv_timeout(BEAT) {
                Ok(limit) => return Some(limit),
                // What does not fit stays in the rings and is counted as lost there.
                Err(RecvTimeoutError::Timeout) if events.len() < MAX_EARLY => self.take_events(events),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// `events` are those from before the ticks.
    fn sample(
        &mut self,
        limit: Option<Duration>,
        mut events: Vec<ProcessEvent>,
        stop: &AtomicBool,
        sink: &Sink,
    ) -> anyhow::Result<Totals> {
        let begin = Instant::now();
        let deadline = limit.and_then(|limit| begin.checked_add(limit));
        self.capture.start()?;
        let mut next = begin + WINDOW;
        let mut cpus = 0;
        loop {
            let stopping = stop.load(Ordering::Relaxed) || deadline.is_some_and(|d| Instant::now() >= d);
            if stopping {
                self.capture.stop()?;
            }
            if stopping || Instant::now() >= next {
                cpus = cpus.max(self.capture.cpus().len());
                let window = self.capture.turn()?;
                self.take_events(&mut events);
                let batch = Batch { window, events: std::mem::take(&mut events), end: MonoNs::now() };
                // Whoever dropped the receiver does not want the rest.
                if sink.send.send(News::Window(batch)).is_err() || stopping {
                    break;
                }
                self.follow_hotplug()?;
                next += WINDOW;
                next = next.max(Instant::now());
            }
            let until = deadline.map_or(next, |deadline| deadline.min(next));
            self.capture.wait(BEAT.min(until.saturating_duration_since(Instant::now())))?;
            self.take_events(&mut events);
            if !events.is_empty() && sink.eager.swap(false, Ordering::Relaxed) {
                let told = sink.send.try_send(News::Events(std::mem::take(&mut events)));
                if let Err(TrySendError::Full(News::Events(back))) = told {
                    events = back;
                }
            }
        }
        Ok(Totals {
            elapsed: self.capture.elapsed()?,
            program: self.capture.run_stats(),
            duration: begin.elapsed(),
            lost_events: self.sideband.lost(),
            map_bytes: self.capture.program().map_bytes(),
            cpus,
        })
    }

    fn follow_hotplug(&mut self) -> anyhow::Result<()> {
        self.capture.follow_hotplug()?;
        self.sideband.follow_hotplug(&crate::capture::clock::online_cpus()?);
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<ProcessEvent>) {
        let new = self.sideband.drain();
        if self.follow_children {
            for event in &new {
                self.follow_family(event);
            }
        }
        events.extend(new);
    }

    /// A descendant is recognised by its ancestors at its ticks; this finds those whose parents have ended, too.
    fn follow_family(&mut self, event: &ProcessEvent) {
        match event.kind {
            EventKind::Fork { parent, .. }
                if event.is_leader()
                    && self.family.contains(&parent)
                    && self.capture.program().want(event.tgid).is_ok() =>
            {
                self.family.insert(event.tgid);
            }
            EventKind::Exit if event.is_leader() && self.family.remove(&event.tgid) => {
                self.capture.program().forget(event.tgid);
            }
            _ => {}
        }
    }
}
