//! The sampling thread: ends a window each second and sends its stacks, counts and process events, until it has to
//! stop.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use super::batch::{EventTotals, SessionTotals, WindowBatch};
use crate::capture::online::OnlineCpuFile;
use crate::capture::program::BpfProgram;
use crate::capture::sideband::Sideband;
use crate::capture::window::CaptureOptions;
use crate::capture::{
    AllocationProbes, Capture, CgroupMap, CgroupMember, ContextMap, IdleAddressMap, UnwindMemory, Window,
};
use crate::plan::Control;
use crate::process::ProcessEvent;
use crate::process::throttling::MachineTime;
use crate::sample::unit::Unit;
use crate::sample::{EventPeriod, MonoNs};
use crate::targets::processes::{FilterChange, Targets};

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// How often the thread reads process events while nothing wakes it.
const SIDEBAND_INTERVAL: Duration = Duration::from_millis(100);
/// Delay between a stack with unknown code and reading process events: a new program is still mapping its libraries.
const MAPPING_DELAY: Duration = Duration::from_millis(10);
/// Windows that may wait for the stages. If the stages are slower, windows become longer.
const WAITING: usize = 8;
/// Process events that are kept before the first sample.
const MAX_EARLY: usize = 1 << 18;

/// Messages from the thread, in time order.
pub(super) enum SamplerMessage {
    /// Process events within a window that is not over.
    Events(Vec<ProcessEvent>),
    Window(Box<WindowBatch>),
}

pub(super) struct Sampler {
    thread: JoinHandle<anyhow::Result<()>>,
    go: SyncSender<StartCommand>,
    control: Control,
    /// The channel closes when sampling has ended.
    pub(super) messages: Option<Receiver<SamplerMessage>>,
    /// The receiver sets this flag while it waits: process events then come at once, else with their window.
    pub(super) eager: Arc<AtomicBool>,
    pub(super) ready: Option<ProgramHandles>,
}

/// Handles of a loaded program through which other threads change it while it runs.
pub(super) struct ProgramHandles {
    pub(super) unwind: UnwindMemory,
    pub(super) cgroups: CgroupMap,
    pub(super) idle_addresses: IdleAddressMap,
    /// The programs of each event of allocations.
    pub(super) allocations: Vec<AllocationProbes>,
    pub(super) contexts: ContextMap,
    /// The groups of all processes, as the cgroup filter sees them, and whether it wants each; empty without a cgroup
    /// filter.
    pub(super) members: Vec<CgroupMember>,
}

impl ProgramHandles {
    fn of(program: &BpfProgram) -> anyhow::Result<ProgramHandles> {
        Ok(ProgramHandles {
            unwind: program.unwind_memory()?,
            cgroups: program.cgroups()?,
            idle_addresses: program.idle_addresses()?,
            allocations: program
                .events()
                .iter()
                .filter(|event| event.allocates())
                .map(|event| program.allocation_probes(*event))
                .collect::<anyhow::Result<_>>()?,
            contexts: program.contexts()?,
            members: program.members()?,
        })
    }
}

/// How long to sample, and how many windows make a part (`None`: the whole session is one part).
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLength {
    pub(super) duration: Option<Duration>,
    pub(super) part: Option<u32>,
}

/// The command to start sampling.
struct StartCommand {
    length: RunLength,
    /// Descendants of the chosen processes.
    descendants: Vec<u32>,
    /// Gets a message when the events run.
    begun: SyncSender<()>,
}

struct WindowSender {
    send: SyncSender<SamplerMessage>,
    eager: Arc<AtomicBool>,
}

impl Sampler {
    /// Loads the program and opens the events in a new thread, and returns when they are ready. From then on the thread
    /// reads the side-band. `control` ends the last window early.
    ///
    /// # Errors
    /// If this host does not allow sampling.
    pub(super) fn prepare(options: CaptureOptions, control: &Control) -> anyhow::Result<Sampler> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let (send, messages) = mpsc::sync_channel(WAITING);
        let eager = Arc::new(AtomicBool::new(false));
        let sink = WindowSender { send, eager: Arc::clone(&eager) };
        let control_in_thread = control.clone();
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || {
                let prepared = Run::prepare(&options)
                    .and_then(|run| Ok((ProgramHandles::of(run.capture.program())?, run)));
                let (given, mut run) = match prepared {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        // `prepare` waits for this message.
                        let _ = ready.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = ready.send(Ok(given));
                let Some(StartCommand { length, descendants, begun }) = run.wait(&may_go) else {
                    return Ok(());
                };
                let early = std::mem::take(&mut run.events);
                run.follow(|targets| targets.begin(&descendants, &early));
                run.events = early;
                run.sample(length, &control_in_thread, &sink, &begun)
            })
            .context("starting the sampling thread")?;
        let given = is_ready.recv().unwrap_or_else(|_| Err(anyhow!("the sampling thread ended")))?;
        Ok(Sampler {
            thread,
            go,
            control: control.clone(),
            messages: Some(messages),
            eager,
            ready: Some(given),
        })
    }

    /// Starts the events, and returns when they run: a program that starts later is sampled from its first instruction.
    /// Returns false if the events do not run; `finish` returns the error. The side-band reports descendants that start
    /// later.
    pub(super) fn start(&self, length: RunLength, descendants: Vec<u32>) -> bool {
        let (begun, has_begun) = mpsc::sync_channel(1);
        self.go.send(StartCommand { length, descendants, begun }).is_ok() && has_begun.recv().is_ok()
    }

    /// Waits for the end. The caller must have read all messages, or dropped the receiver.
    ///
    /// # Errors
    /// The error that ended sampling early.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.control.stop("it is over");
        drop(self.go);
        self.thread.join().unwrap_or_else(|_| Err(anyhow!("the sampling thread panicked")))
    }
}

struct Run {
    capture: Capture,
    sampled: Vec<EventPeriod>,
    online: OnlineCpuFile,
    sideband: Sideband,
    follow_children: bool,
    /// `None` if the filter names no processes or threads.
    targets: Option<Targets>,
    /// A session with a launched command ends with the command, even if the command leaves descendants behind.
    launched: bool,
    /// Process events that are not sent yet.
    events: Vec<ProcessEvent>,
    /// The highest number of CPUs that were sampled at the same time.
    cpus: usize,
}

impl Run {
    fn prepare(options: &CaptureOptions) -> anyhow::Result<Run> {
        let targets = Targets::of(&options.filter);
        let capture = Capture::prepare(options)?;
        // The side-band needs all CPUs: processes run on any CPU, even if the session samples only some of them.
        let online = OnlineCpuFile::open()?;
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

    /// Waits for the command to start; `None` if the sender is gone. Attaching to JVMs may take seconds.
    /// Meanwhile this reads the side-band, because its rings would overflow.
    fn wait(&mut self, may_go: &Receiver<StartCommand>) -> Option<StartCommand> {
        loop {
            match may_go.recv_timeout(SIDEBAND_INTERVAL) {
                Ok(go) => return Some(go),
                // Further events stay in the rings, which count the ones that they drop.
                Err(RecvTimeoutError::Timeout) if self.events.len() < MAX_EARLY => {
                    self.events.extend(self.sideband.drain());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Samples until the duration is over or `control` stops the session.
    fn sample(
        &mut self,
        length: RunLength,
        control: &Control,
        sink: &WindowSender,
        begun: &SyncSender<()>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.capture.start()?;
        // `go` waits for this message, or has returned already.
        let _ = begun.try_send(());
        let sampled = self.turn_windows(begin, length, control, sink);
        if sampled.is_err() {
            self.close(begin, sink);
        }
        sampled
    }

    fn turn_windows(
        &mut self,
        begin: Instant,
        length: RunLength,
        control: &Control,
        sink: &WindowSender,
    ) -> anyhow::Result<()> {
        let deadline = length.duration.and_then(|limit| begin.checked_add(limit));
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
                let ends_part = stopping || length.part.is_some_and(|part| windows >= part);
                self.cpus = self.cpus.max(self.capture.cpus().len());
                // Read before the window ends: a tick between the two is in the window and never counts as missed.
                let totals = ends_part.then(|| self.totals(begin)).transpose()?;
                let window = self.capture.take_window(ends_part)?;
                // A dropped receiver ends the session.
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
            let wait_end = deadline.map_or(next, |deadline| deadline.min(next));
            self.wait_until(wait_end, control)?;
            self.take_events();
            if !self.events.is_empty() && sink.eager.swap(false, Ordering::Relaxed) {
                let sent = sink.send.try_send(SamplerMessage::Events(std::mem::take(&mut self.events)));
                if let Err(TrySendError::Full(SamplerMessage::Events(back))) = sent {
                    self.events = back;
                }
            }
        }
        Ok(())
    }

    /// After a failure: sends what was sampled before. Ticks that cannot be read any more count as missed.
    fn close(&mut self, begin: Instant, sink: &WindowSender) {
        // The failure may be that of `stop` itself.
        let _ = self.capture.stop();
        if let Ok(totals) = self.totals(begin) {
            let window = self.capture.take_window(true).unwrap_or_default();
            self.send_window(window, Some(totals), sink);
        }
    }

    /// Returns false if the receiver is gone.
    fn send_window(&mut self, window: Window, totals: Option<SessionTotals>, sink: &WindowSender) -> bool {
        self.take_events();
        let program = self.capture.run_stats();
        let events = std::mem::take(&mut self.events);
        let batch = WindowBatch { window, events, end: MonoNs::now(), totals, program };
        sink.send.send(SamplerMessage::Window(Box::new(batch))).is_ok()
    }

    /// Waits for an event, a stop or the end of the window. Children of chosen processes must be known before their
    /// first tick, hence the shorter wait. Other new programs can wait until a stack has their code.
    fn wait_until(&self, deadline: Instant, control: &Control) -> anyhow::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let wake = control.wake_event();
        let left = if self.follow_children || wake.is_none() { left.min(SIDEBAND_INTERVAL) } else { left };
        let others: Vec<BorrowedFd<'_>> = wake.into_iter().chain([self.sideband.as_fd()]).collect();
        if self.capture.wait(left, &others)? {
            std::thread::sleep(MAPPING_DELAY.min(deadline.saturating_duration_since(Instant::now())));
        }
        // Clears the readiness, which epoll reports once; the caller reads the rings in any case.
        self.sideband.wait(Duration::ZERO).context("waiting for events of processes")?;
        Ok(())
    }

    fn totals(&self, begin: Instant) -> anyhow::Result<SessionTotals> {
        // Before the events' counts: this read takes milliseconds on large hosts, in which samples go on.
        let machine = MachineTime::now();
        let counted = self.sampled.iter().zip(self.capture.elapsed()?);
        let events = counted
            .map(|(&EventPeriod { event, period }, elapsed)| EventTotals { event, elapsed, period })
            .collect();
        let (ended, ended_at) = (Instant::now(), jiff::Timestamp::now());
        Ok(SessionTotals {
            events,
            ended,
            ended_at,
            machine,
            program: self.capture.run_stats(),
            duration: ended.saturating_duration_since(begin),
            lost_events: self.sideband.lost(),
            map_bytes: self.capture.program().map_bytes(),
            room_for_stacks: self.capture.program().room_for_stacks(),
            cpus: self.cpus,
        })
    }

    /// Samples time at another period if the budget says so.
    fn follow_period(&mut self, control: &Control) -> anyhow::Result<()> {
        let Some(wanted) = control.period() else { return Ok(()) };
        let of_time = self.sampled.iter_mut().filter(|sampled| sampled.event.unit() == Unit::Nanoseconds);
        for EventPeriod { event, period } in of_time.filter(|sampled| sampled.period != wanted) {
            self.capture.set_period(*event, wanted)?;
            *period = wanted;
            log::info!("sampling: from now on {} has a sample for each {wanted} ns", event.name());
        }
        Ok(())
    }

    fn follow_hotplug(&mut self) {
        // An error is ignored: the next window tries again.
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

    /// Updates the filter of the BPF program after changes of the targets.
    fn follow(&mut self, what: impl FnOnce(&mut Targets) -> Vec<FilterChange>) {
        let Some(targets) = &mut self.targets else { return };
        let program = self.capture.program();
        for change in what(targets) {
            match change {
                FilterChange::Want(tgid) => {
                    // If the map is full, the BPF program finds the process by its ancestors, as long as those run.
                    let _ = program.want(tgid);
                }
                FilterChange::Forget(id) => program.forget(id),
            }
        }
    }
}
