//! The JVMs of a session: attached before the clock starts, or when they first run during it; their leases are renewed
//! each window and ended with the session.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::resolver::{Delay, JavaTicks, Tally};
use super::{Java, Settings, Target};
use crate::capture::{Count, Stack};
use crate::jvm::{self, AttachOptions, Attached, Failed, Inspection, Jvm, Opened, Refusal, Source};
use crate::process::cgroup::Membership;
use crate::process::hierarchies::Hierarchies;
use crate::process::throttling::CpuSnapshot;
use crate::process::{EventKind, MonoNs, ProcessEvent, ProcessId, Processes, procfs};
use crate::profile::report::{JvmReport, NameSource, Throttling};
use crate::symbolize::{JvmLog, LogStats, Stats, Symbolizer};

/// JVMs that are attached to at the same time: each costs it some hundred milliseconds of one CPU.
const AT_ONCE: usize = 4;
/// How often leases are renewed while JVMs are attached to.
const RENEW: Duration = Duration::from_secs(1);
/// How often it is looked whether an attach is done.
const LOOK: Duration = Duration::from_millis(5);

/// How it stands with the names of a JVM.
enum Names {
    /// Being attached to or opened, in a thread of its own.
    Attaching(JoinHandle<(Option<Jvm>, Result<Got, Failed>)>),
    Attached(Box<Attached>),
    /// Read out of its memory.
    Opened(Box<Opened>),
    Refused(Refusal),
    /// Nobody asked.
    Off,
}

/// What came of it.
enum Got {
    Log(Box<Attached>),
    Memory(Box<Opened>),
}

struct Entry {
    /// None until it was looked at.
    jvm: Option<Jvm>,
    names: Names,
    inspection: Option<Inspection>,
    /// The process that the ticks saw, from its first stack on.
    bound: Option<ProcessId>,
    /// It came during the run.
    late: bool,
    began: Instant,
    took: Duration,
    log: LogStats,
    cpu: CpuSnapshot,
    throttling: Option<Throttling>,
}

/// All JVMs that are profiled.
pub(super) struct Jvms {
    java: Java,
    target: Target,
    children: bool,
    options: AttachOptions,
    hierarchies: Hierarchies,
    entries: HashMap<u32, Entry>,
    /// Processes that mapped `libjvm.so` during the run and have no entry yet.
    mapped: HashSet<u32>,
    /// Processes that ended in the last window: their last stacks come with it.
    leaving: Vec<u32>,
    ended: Vec<Entry>,
}

impl Jvms {
    pub(super) fn new(settings: &Settings) -> Jvms {
        let options = AttachOptions {
            timeout: settings.attach_timeout,
            force: settings.force_attach,
            ..AttachOptions::new(settings.binary.clone())
        };
        Jvms {
            java: settings.java,
            target: settings.target.clone(),
            children: settings.children,
            options,
            hierarchies: Hierarchies::mounted(),
            entries: HashMap::new(),
            mapped: HashSet::new(),
            leaving: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Finds the JVMs that are there and attaches to those that are profiled, several at a time.
    /// It takes as long as the slowest of them, at most the timeout for each four.
    pub(super) fn attach_all(
        &mut self,
        processes: &Processes,
        symbolizer: &mut Symbolizer,
        stop: &AtomicBool,
    ) {
        let wanted: Option<Vec<u32>> = match &self.target {
            Target::All => None,
            Target::Pids(tgids) if self.children => Some(processes.descendants(tgids)),
            Target::Pids(tgids) => Some(tgids.clone()),
            Target::Tids(tids) => Some(tids.iter().filter_map(|&tid| tgid_of(tid)).collect()),
            Target::Launch(_) => Some(Vec::new()),
        };
        let mut found = jvm::discover().unwrap_or_default();
        found.retain(|jvm| wanted.as_ref().is_none_or(|wanted| wanted.contains(&jvm.process.tgid)));
        log::info!("JVMs: {} found to profile", found.len());
        let mut waiting = found.into_iter();
        let mut renewed = Instant::now();
        loop {
            self.entries.values_mut().for_each(|entry| entry.join(false, symbolizer));
            while self.under_way() < AT_ONCE
                && !stop.load(Ordering::Relaxed)
                && let Some(jvm) = waiting.next()
            {
                self.begin(jvm.process.tgid, Some(jvm));
            }
            if self.under_way() == 0 {
                return;
            }
            // While some are slow to answer the others keep what they have logged.
            if renewed.elapsed() >= RENEW {
                self.beat(symbolizer);
                renewed = Instant::now();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes in what happened to processes: JVMs that begin and end.
    pub(super) fn notice(&mut self, events: &[ProcessEvent]) {
        for tgid in std::mem::take(&mut self.leaving) {
            self.ended.extend(self.entries.remove(&tgid));
        }
        for event in events {
            match &event.kind {
                EventKind::Mmap(mapped)
                    if mapped.path.file_name().is_some_and(|name| name == "libjvm.so") =>
                {
                    self.mapped.insert(event.tgid);
                }
                EventKind::Comm { exec: true, .. } => {
                    self.mapped.remove(&event.tgid);
                    self.ended.extend(self.entries.remove(&event.tgid));
                }
                EventKind::Exit if event.is_leader() => {
                    self.mapped.remove(&event.tgid);
                    self.leaving.extend(self.entries.contains_key(&event.tgid).then_some(event.tgid));
                }
                _ => {}
            }
        }
    }

    /// Looks at the stacks of a window: a JVM that came during the run is attached to when it is first seen to run, and
    /// the exact identity of each JVM is that of its stacks.
    pub(super) fn meet(&mut self, stacks: &[(Stack, Count)], symbolizer: &mut Symbolizer) {
        for (stack, _) in stacks {
            let process = stack.key.process;
            if self.mapped.remove(&process.tgid) && !self.entries.contains_key(&process.tgid) {
                self.begin(process.tgid, None);
            }
            if let Some(entry) = self.entries.get_mut(&process.tgid) {
                entry.bind(process, symbolizer);
            }
        }
    }

    /// Renews the leases, and takes the results of attaches that are done.
    pub(super) fn beat(&mut self, symbolizer: &mut Symbolizer) {
        let lease = self.options.lease;
        let until =
            MonoNs(MonoNs::now().0.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)));
        for entry in self.entries.values_mut() {
            entry.join(false, symbolizer);
            if let Names::Attached(attached) = &entry.names {
                // A log that can no longer be written to is the end of its lease; its reader notices.
                let _ = attached.renew_lease(until);
            }
        }
    }

    /// Notes how far the logs have been read.
    pub(super) fn read(&mut self, logs: &[(ProcessId, LogStats)]) {
        let leaving = self.ended.iter_mut();
        for entry in self.entries.values_mut().chain(leaving) {
            if let Some((_, stats)) = logs.iter().find(|(process, _)| Some(*process) == entry.bound) {
                entry.log = *stats;
            }
        }
    }

    /// The end of sampling: waits for attaches under way, so that nothing of ours stays in a JVM's file system.
    pub(super) fn settle(&mut self, symbolizer: &mut Symbolizer) {
        for entry in self.entries.values_mut() {
            entry.join(true, symbolizer);
            entry.measure(&self.hierarchies);
        }
    }

    /// Ends the leases: the agents write no more and free what they hold.
    pub(super) fn release(&self) {
        for entry in self.entries.values() {
            if let Names::Attached(attached) = &entry.names {
                // The JVM may be gone, and its memory with it.
                let _ = attached.end_lease();
            }
        }
    }

    /// What the report says of each JVM that was attached to or ran, the busiest first.
    pub(super) fn report(&self, tally: &Tally, symbols: &Stats) -> Vec<JvmReport> {
        let entries = self.entries.values().chain(&self.ended);
        let mut reports: Vec<JvmReport> = entries.filter_map(|entry| entry.report(tally, symbols)).collect();
        reports.sort_by_key(|report| (std::cmp::Reverse(report.ticks), report.pid));
        reports
    }

    /// Starts the thread that attaches to a JVM: one that was found, or one that has just begun.
    fn begin(&mut self, tgid: u32, found: Option<Jvm>) {
        let late = found.is_none();
        if self.java == Java::Off {
            if let Some(jvm) = found.or_else(|| jvm::find(tgid)) {
                let cpu = self.cpu_of(tgid);
                self.entries.insert(tgid, Entry::new(Some(jvm), Names::Off, late, cpu));
            }
            return;
        }
        let options = self.options.clone();
        let reads_memory = self.java == Java::Vm;
        let begin = move || {
            let jvm = found.or_else(|| jvm::find(tgid));
            let result = match &jvm {
                None => Err(Failed { refusal: Refusal::Exited, inspection: None }),
                Some(jvm) if reads_memory => {
                    jvm::open(jvm, &options).map(|opened| Got::Memory(Box::new(opened)))
                }
                Some(jvm) => jvm::attach(jvm, &options).map(|attached| Got::Log(Box::new(attached))),
            };
            (jvm, result)
        };
        if let Ok(thread) = std::thread::Builder::new().name("attach".into()).spawn(begin) {
            let cpu = self.cpu_of(tgid);
            self.entries.insert(tgid, Entry::new(None, Names::Attaching(thread), late, cpu));
        }
    }

    /// Attaches that are not done.
    fn under_way(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_open()).count()
    }

    fn cpu_of(&self, tgid: u32) -> CpuSnapshot {
        Membership::of(tgid).map(|of| self.hierarchies.snapshot(&of)).unwrap_or_default()
    }
}

impl Delay for Jvms {
    fn is_jvm(&self, tgid: u32) -> bool {
        // What is read out of its memory is there as soon as it runs.
        self.entries.get(&tgid).is_some_and(|entry| !matches!(entry.names, Names::Opened(_)))
    }

    fn is_open(&self, tgid: u32) -> bool {
        self.entries.get(&tgid).is_some_and(Entry::is_open)
    }
}

impl Entry {
    fn new(jvm: Option<Jvm>, names: Names, late: bool, cpu: CpuSnapshot) -> Entry {
        Entry {
            jvm,
            names,
            inspection: None,
            bound: None,
            late,
            began: Instant::now(),
            took: Duration::ZERO,
            log: LogStats::default(),
            cpu,
            throttling: None,
        }
    }

    /// Whether it is not yet known if there will be names.
    fn is_open(&self) -> bool {
        matches!(self.names, Names::Attaching(_))
    }

    /// Takes the result of an attach.
    fn settle(&mut self, result: Result<Got, Failed>) {
        self.took = self.began.elapsed();
        match result {
            Ok(Got::Log(attached)) => {
                self.inspection = Some(attached.inspection.clone());
                self.names = Names::Attached(attached);
            }
            Ok(Got::Memory(opened)) => {
                self.inspection = Some(opened.inspection.clone());
                self.names = Names::Opened(opened);
            }
            Err(Failed { refusal, inspection }) => {
                self.inspection = inspection;
                self.names = Names::Refused(refusal);
            }
        }
    }

    fn tell(&self) {
        let (pid, name) = self.jvm.as_ref().map_or((0, "?"), |jvm| (jvm.process.tgid, jvm.main.as_str()));
        match &self.names {
            Names::Attached(attached) => {
                log::info!("JVM {pid} ({name}): {:?} agent, in {:.0?}", attached.source, self.took);
            }
            Names::Opened(_) => log::info!("JVM {pid} ({name}): opened, in {:.0?}", self.took),
            Names::Refused(why) => log::info!("JVM {pid} ({name}): {why}, in {:.0?}", self.took),
            Names::Attaching(_) | Names::Off => {}
        }
    }

    /// Takes the result of the attach under way, if it is there; `wait`: when it is there.
    fn join(&mut self, wait: bool, symbolizer: &mut Symbolizer) {
        let Names::Attaching(thread) = &self.names else { return };
        if !wait && !thread.is_finished() {
            return;
        }
        let Names::Attaching(thread) = std::mem::replace(&mut self.names, Names::Off) else { return };
        if let Ok((jvm, result)) = thread.join() {
            self.jvm = jvm;
            self.settle(result);
            self.tell();
        }
        if let Some(process) = self.bound.take() {
            self.bind(process, symbolizer);
        }
    }

    /// Learns the exact identity of the process, and has its log followed.
    fn bind(&mut self, process: ProcessId, symbolizer: &mut Symbolizer) {
        if self.bound.is_some() {
            return;
        }
        let same = |jvm: &Jvm| jvm::is_same_process(jvm.start_ticks, jvm.process.tgid, process);
        if self.jvm.as_ref().is_some_and(|jvm| !same(jvm)) {
            return;
        }
        self.bound = Some(process);
        match &self.names {
            Names::Attached(attached) => {
                if let Ok(file) = attached.log.try_clone() {
                    let log = JvmLog {
                        file,
                        clock_offset_ns: attached.clock_offset,
                        consume: attached.source == Source::Late,
                        blobs: attached.blobs.clone(),
                    };
                    symbolizer.follow_jvm(process, log);
                }
            }
            Names::Opened(opened) => {
                if let Ok(memory) = opened.memory.try_clone() {
                    let coarse = opened.inspection.flags.debug_non_safepoints != Some(true);
                    symbolizer.watch_jvm(process, memory.into(), opened.layout.clone(), coarse);
                }
            }
            Names::Refused(_) | Names::Off => symbolizer.note_jvm(process),
            Names::Attaching(_) => {}
        }
    }

    fn measure(&mut self, hierarchies: &Hierarchies) {
        let Some(of) = self.jvm.as_ref().and_then(|jvm| Membership::of(jvm.process.tgid).ok()) else {
            return;
        };
        let spent = hierarchies.snapshot(&of).since(&self.cpu);
        self.throttling = spent.limit_cpus.map(|_| Throttling {
            times: spent.throttled_periods,
            usec: u64::try_from(spent.throttled.as_micros()).unwrap_or(u64::MAX),
        });
    }

    fn report(&self, tally: &Tally, symbols: &Stats) -> Option<JvmReport> {
        let JavaTicks { all, java, rootless } =
            self.bound.and_then(|process| tally.java.get(&process)).copied().unwrap_or_default();
        let jvm = self.jvm.as_ref()?;
        let leaves = self.bound.and_then(|process| symbols.java_leaves.get(&process));
        #[allow(clippy::cast_precision_loss)]
        let compiled_before = leaves.filter(|l| l.all > 0).map(|l| l.before_attach as f64 / l.all as f64);
        let inspection = self.inspection.clone().unwrap_or_default();
        Some(JvmReport {
            pid: jvm.process.tgid,
            name: jvm.main.clone(),
            version: inspection.release,
            names: self.source(),
            frame_pointers: inspection.flags.preserve_frame_pointer,
            compiled_before,
            ticks: all,
            java_ticks: java,
            rootless_ticks: rootless,
            log_bytes: self.log.read_to,
            log_cut: self.log.cut,
            throttling: self.throttling,
        })
    }

    fn source(&self) -> NameSource {
        let ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        match &self.names {
            Names::Attached(attached) => match (attached.source, self.late) {
                (Source::AtStart, _) => NameSource::AgentAtStart,
                (Source::Late, true) => NameSource::AgentDuringRun { ms },
                (Source::Late, false) => NameSource::AgentLate { ms },
            },
            Names::Opened(_) => NameSource::Memory { ms },
            Names::Refused(refusal) => {
                NameSource::Refused { label: refusal.to_string(), hint: refusal.hint().to_owned() }
            }
            Names::Attaching(_) | Names::Off => NameSource::Off,
        }
    }
}

/// The process of a thread.
fn tgid_of(tid: u32) -> Option<u32> {
    let status = procfs::read(&format!("/proc/{tid}/status")).ok()?;
    Some(procfs::parse_status(&status)?.tgid)
}
