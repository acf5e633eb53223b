//! The sampling thread: turns the window each second and hands over what came, until it is told to stop.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::capture::online::Online;
use crate::capture::program::BpfProgram;
use crate::capture::sideband::Sideband;
use crate::capture::window::CaptureOptions;
use crate::capture::{Capture, CgroupMap, Elapsed, Member, RunStats, UnwindMemory, WaitMap, Window};
use crate::plan::Control;
use crate::process::ProcessEvent;
use crate::sample::{Event, MonoNs};
use crate::targets::processes::{Change, Targets};

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// How often the thread looks what happened to processes, where nothing tells it that it must.
const BEAT: Duration = Duration::from_millis(100);
/// A program that is seen to begin is still mapping its libraries.
const SETTLING: Duration = Duration::from_millis(10);
/// Windows that may wait for the stages; when it is slower the windows become longer.
const WAITING: usize = 8;
/// Events of processes that are kept before the first tick.
const MAX_EARLY: usize = 1 << 18;

/// What the thread has to say, in the order of time.
pub(super) enum News {
    /// What happened to processes within a window that is not over.
    Events(Vec<ProcessEvent>),
    /// A window is over.
    Window(Box<Batch>),
}

/// What happened in one window.
pub(super) struct Batch {
    pub(super) window: Window,
    /// What happened to processes up to the window's end and was not told before, in the order of time.
    pub(super) events: Vec<ProcessEvent>,
    /// When the window ended.
    pub(super) end: MonoNs,
    /// All until now, if the window is the last of a part.
    pub(super) totals: Option<Totals>,
    /// Run time of the BPF program until now.
    pub(super) program: Option<RunStats>,
}

/// What is known of the sampling since its start.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    /// Of each event.
    pub(super) events: Vec<EventTotals>,
    /// Run time of the BPF program.
    pub(super) program: Option<RunStats>,
    /// When the part ended, by the clock that nobody sets …
    pub(super) ended: Instant,
    /// … and by that of people.
    pub(super) ended_at: jiff::Timestamp,
    /// From the first tick to the end.
    pub(super) duration: Duration,
    /// Side-band events that the kernel had no room for.
    pub(super) lost_events: u64,
    /// Kernel memory of the maps, bytes.
    pub(super) map_bytes: u64,
    /// Distinct stacks that the count map of a window holds.
    pub(super) room_for_stacks: u32,
    /// Most CPUs that ticked at the same time.
    pub(super) cpus: usize,
}

/// What is known of the samples of an event since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTotals {
    pub(super) event: Event,
    /// What the source itself counted.
    pub(super) elapsed: Elapsed,
    /// What a sample stands for, in the part that ends here.
    pub(super) period: u64,
}

impl Totals {
    /// Nanoseconds between two ticks; none if time is not sampled.
    pub(super) fn clock_ns(&self) -> Option<u64> {
        self.events.iter().find(|of| of.event == Event::Cpu).map(|of| of.period)
    }
}

/// A prepared sampling thread.
pub(super) struct Sampler {
    thread: JoinHandle<anyhow::Result<()>>,
    go: SyncSender<Go>,
    control: Control,
    /// It ends when sampling has ended.
    pub(super) news: Option<Receiver<News>>,
    /// Raised by who waits for news: events come at once then, else with their window.
    pub(super) eager: Arc<AtomicBool>,
    /// What the running program can be given.
    pub(super) ready: Option<Ready>,
}

/// What a loaded program can be given while it runs.
pub(super) struct Ready {
    /// Where unwind tables go.
    pub(super) unwind: UnwindMemory,
    /// Which cgroups are chosen.
    pub(super) cgroups: CgroupMap,
    /// Where CPUs wait for work.
    pub(super) waits: WaitMap,
    /// What the filter of cgroups sees; none if it is not used.
    pub(super) members: Vec<Member>,
}

impl Ready {
    fn of(program: &BpfProgram) -> anyhow::Result<Ready> {
        Ok(Ready {
            unwind: program.unwind_memory()?,
            cgroups: program.cgroups()?,
            waits: program.waits()?,
            members: program.members()?,
        })
    }
}

/// How long to sample, and how many windows make a part; one part if there is no number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) duration: Option<Duration>,
    pub(super) part: Option<u32>,
}

/// The word to begin.
struct Go {
    limits: Limits,
    /// Of the chosen processes.
    descendants: Vec<u32>,
    /// Told when the events run.
    begun: SyncSender<()>,
}

/// Where the thread puts what it has.
struct Sink {
    send: SyncSender<News>,
    eager: Arc<AtomicBool>,
}

impl Sampler {
    /// Loads the program and opens the events in a thread of their own; returns when they are ready. The side-band
    /// runs from then on; a stop ends the last window.
    ///
    /// # Errors
    /// When this host does not allow it.
    pub(super) fn prepare(options: CaptureOptions, control: &Control) -> anyhow::Result<Sampler> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let (send, news) = mpsc::sync_channel(WAITING);
        let eager = Arc::new(AtomicBool::new(false));
        let sink = Sink { send, eager: Arc::clone(&eager) };
        let heard = control.clone();
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || {
                let prepared =
                    Run::prepare(&options).and_then(|run| Ok((Ready::of(run.capture.program())?, run)));
                let (given, mut run) = match prepared {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        // The reader waits for exactly this message.
                        let _ = ready.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = ready.send(Ok(given));
                let Some(Go { limits, descendants, begun }) = run.wait(&may_go) else { return Ok(()) };
                let early = std::mem::take(&mut run.events);
                run.follow(|targets| targets.begin(&descendants, &early));
                run.events = early;
                run.sample(limits, &heard, &sink, &begun)
            })
            .context("starting the sampling thread")?;
        let given = is_ready.recv().unwrap_or_else(|_| Err(anyhow!("the sampling thread ended")))?;
        Ok(Sampler { thread, go, control: control.clone(), news: Some(news), eager, ready: Some(given) })
    }

    /// Starts the events, and returns when they run: what begins after that is sampled from its first instruction. False if they
    /// do not: `finish` says why. The chosen processes have these descendants; those since are heard of.
    pub(super) fn go(&self, limits: Limits, descendants: Vec<u32>) -> bool {
        let (begun, has_begun) = mpsc::sync_channel(1);
        self.go.send(Go { limits, descendants, begun }).is_ok() && has_begun.recv().is_ok()
    }

    /// Waits for the end; the batches must be read to their end by then or dropped.
    ///
    /// # Errors
    /// What ended the sampling early.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.control.stop("it is over");
        drop(self.go);
        self.thread.join().unwrap_or_else(|_| Err(anyhow!("the sampling thread panicked")))
    }
}

/// The thread's own state.
struct Run {
    capture: Capture,
    /// What is sampled, and the period of each.
    sampled: Vec<(Event, u64)>,
    online: Online,
    sideband: Sideband,
    follow_children: bool,
    /// None if all are wanted that the filter lets through.
    targets: Option<Targets>,
    /// With a command that was started it is over when that has ended, whatever it leaves behind.
    launched: bool,
    /// What happened to processes and is not told yet.
    events: Vec<ProcessEvent>,
    /// Most CPUs that ticked at the same time.
    cpus: usize,
}

impl Run {
    fn prepare(options: &CaptureOptions) -> anyhow::Result<Run> {
        let targets = Targets::of(&options.filter);
        let capture = Capture::prepare(options)?;
        // Processes run on any CPU, whichever CPUs are sampled.
        let online = Online::open()?;
        let sideband = Sideband::open(online.cpus()?).context("perf events of processes and mappings")?;
        Ok(Run {
            capture,
            sampled: options.events.clone(),
            online,
            sideband,
            follow_children: options.filter.children,
            targets,
            launched: options.filter.launched.is_some(),
            events: Vec::new(),
            cpus: 0,
        })
    }

    /// Waits for the word to begin and its limits; none if nobody will say it. JVMs may take seconds to be attached to:
    /// the side-band is read meanwhile, its rings would overflow.
    fn wait(&mut self, may_go: &Receiver<Go>) -> Option<Go> {
        loop {
            match may_go.recv_timeout(BEAT) {
                Ok(go) => return Some(go),
                // What does not fit stays in the rings and is counted as lost there.
                Err(RecvTimeoutError::Timeout) if self.events.len() < MAX_EARLY => {
                    self.events.extend(self.sideband.drain());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Samples until it is told to stop.
    fn sample(
        &mut self,
        limits: Limits,
        control: &Control,
        sink: &Sink,
        begun: &SyncSender<()>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.capture.start()?;
        // Whoever said go waits for it, or is gone.
        let _ = begun.try_send(());
        let sampled = self.turn_windows(begin, limits, control, sink);
        if sampled.is_err() {
            self.close(begin, sink);
        }
        sampled
    }

    fn turn_windows(
        &mut self,
        begin: Instant,
        limits: Limits,
        control: &Control,
        sink: &Sink,
    ) -> anyhow::Result<()> {
        let deadline = limits.duration.and_then(|limit| begin.checked_add(limit));
        let mut next = begin + WINDOW;
        let mut windows = 0u32;
        loop {
            if !self.launched && self.targets.as_ref().is_some_and(Targets::have_ended) {
                control.stop("what was chosen has ended");
            }
            let stopping = control.is_stopped() || deadline.is_some_and(|d| Instant::now() >= d);
            if stopping {
                self.capture.stop()?;
            }
            if stopping || Instant::now() >= next {
                windows += 1;
                let ends_part = stopping || limits.part.is_some_and(|part| windows >= part);
                self.cpus = self.cpus.max(self.capture.cpus().len());
                // Read before the window turns: a tick in between is missed by neither.
                let totals = ends_part.then(|| self.totals(begin)).transpose()?;
                let window = self.capture.take_window()?;
                // Whoever dropped the receiver does not want the rest.
                if !self.send_window(window, totals, sink) || stopping {
                    break;
                }
                if ends_part {
                    windows = 0;
                    self.follow_period(control)?;
                }
                self.follow_hotplug();
                next += WINDOW;
                next = next.max(Instant::now());
            }
            let until = deadline.map_or(next, |deadline| deadline.min(next));
            self.wait_until(until, control)?;
            self.take_events();
            if !self.events.is_empty() && sink.eager.swap(false, Ordering::Relaxed) {
                let told = sink.send.try_send(News::Events(std::mem::take(&mut self.events)));
                if let Err(TrySendError::Full(News::Events(back))) = told {
                    self.events = back;
                }
            }
        }
        Ok(())
    }

    /// After a failure: what was sampled before is given all the same. Ticks that cannot be read any more are missed.
    fn close(&mut self, begin: Instant, sink: &Sink) {
        // This may be what has failed.
        let _ = self.capture.stop();
        if let Ok(totals) = self.totals(begin) {
            let window = self.capture.take_window().unwrap_or_default();
            self.send_window(window, Some(totals), sink);
        }
    }

    /// Whether somebody wants the window.
    fn send_window(&mut self, window: Window, totals: Option<Totals>, sink: &Sink) -> bool {
        self.take_events();
        let program = self.capture.run_stats();
        let events = std::mem::take(&mut self.events);
        let batch = Batch { window, events, end: MonoNs::now(), totals, program };
        sink.send.send(News::Window(Box::new(batch))).is_ok()
    }

    /// Waits for something to do. What begins is looked at when it ticks; children must be known before.
    fn wait_until(&self, until: Instant, control: &Control) -> anyhow::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let wake = control.wake();
        let left = if self.follow_children || wake.is_none() { left.min(BEAT) } else { left };
        let others: Vec<BorrowedFd<'_>> = wake.into_iter().chain([self.sideband.as_fd()]).collect();
        if self.capture.wait(left, &others)? {
            std::thread::sleep(SETTLING.min(until.saturating_duration_since(Instant::now())));
        }
        // That a ring is half full is told once; it is read in any case.
        self.sideband.wait(Duration::ZERO).context("waiting for events of processes")?;
        Ok(())
    }

    fn totals(&self, begin: Instant) -> anyhow::Result<Totals> {
        let counted = self.sampled.iter().zip(self.capture.elapsed()?);
        let events =
            counted.map(|(&(event, period), elapsed)| EventTotals { event, elapsed, period }).collect();
        let (ended, ended_at) = (Instant::now(), jiff::Timestamp::now());
        Ok(Totals {
            events,
            ended,
            ended_at,
            program: self.capture.run_stats(),
            duration: ended.saturating_duration_since(begin),
            lost_events: self.sideband.lost(),
            map_bytes: self.capture.program().map_bytes(),
            room_for_stacks: self.capture.program().room_for_stacks(),
            cpus: self.cpus,
        })
    }

    fn follow_period(&mut self, control: &Control) -> anyhow::Result<()> {
        let clock = self.sampled.iter_mut().find(|(event, _)| *event == Event::Cpu);
        let Some(((_, period), wanted)) = clock.zip(control.period()) else { return Ok(()) };
        if *period != wanted {
            self.capture.set_period(Event::Cpu, wanted)?;
            *period = wanted;
            log::info!("sampling: from now on a tick every {wanted} ns");
        }
        Ok(())
    }

    fn follow_hotplug(&mut self) {
        // The next look is soon.
        if let Ok(online) = self.online.cpus() {
            self.capture.follow_hotplug(&online);
            self.sideband.follow_hotplug(&online);
        }
    }

    fn take_events(&mut self) {
        let new = self.sideband.drain();
        self.follow(|targets| targets.follow(&new));
        self.events.extend(new);
    }

    /// Tells the filter what has become of the targets.
    fn follow(&mut self, what: impl FnOnce(&mut Targets) -> Vec<Change>) {
        let Some(targets) = &mut self.targets else { return };
        let program = self.capture.program();
        for change in what(targets) {
            match change {
                Change::Want(tgid) => {
                    // Without room it is found by its ancestors, as long as those run.
                    let _ = program.want(tgid);
                }
                Change::Forget(id) => program.forget(id),
            }
        }
    }
}
