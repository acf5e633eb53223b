//! The JVMs of a session. The profiler attaches to them before the clock starts, or when they first run. Their leases
//! are renewed each window and end with the session.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::java_threads::JavaThreadNames;
use super::jvm::{JvmEntry, Measured};
use super::jvm_setup::{AgentRequests, DescribedJvm, Discovery, JvmSetup};
use super::pauses::Pauses;
use crate::jvm::{self, AttachOptions};
use crate::plan::{AgentRule, Control, JavaNaming, OptedInPods, PermanentRefusals, Settings, Target};
use crate::process::cgroup::CgroupMembership;
use crate::process::container::Node;
use crate::process::hierarchies::Hierarchies;
use crate::process::throttling::CpuSnapshot;
use crate::process::{EventKind, ProcessEvent, Processes};
use crate::profile::report::JvmReport;
use crate::sample::{MonoNs, ProcessId, ProcessInCgroup};
use crate::symbolize::{LogStats, Symbolizer};
use crate::targets::processes;
use crate::world::{AgentSamplingState, NameDelay, PartEnd, Readiness, WindowPauses, World};

/// How often leases are renewed while attaches are pending.
const RENEW: Duration = Duration::from_secs(1);
/// How long sampling may wait for the JVMs that are there, unless the timeout of one attach is longer.
const FIRST: Duration = Duration::from_secs(60);
/// Pause between two checks for finished attaches.
const LOOK: Duration = Duration::from_millis(5);

/// A JVM that started during the run.
struct Queued {
    tgid: u32,
    /// The identity in the process's first stack; `None` before that.
    process: Option<ProcessId>,
    /// When it mapped `libjvm.so`.
    mapped: MonoNs,
}

struct ExitedJvm {
    /// The window that showed the exit: the last one that may have the JVM's stacks.
    window: u64,
    entry: JvmEntry,
}

pub(super) struct HotSpotJvms {
    java: JavaNaming,
    target: Target,
    children: bool,
    options: AttachOptions,
    hierarchies: Hierarchies,
    entries: HashMap<u32, JvmEntry>,
    /// Processes that mapped `libjvm.so` during the run and have no entry yet, and when they did.
    mapped: HashMap<u32, MonoNs>,
    /// Processes that exited, with the window of the exit: their last stacks come with that window.
    leaving: Vec<(u64, u32)>,
    ended: Vec<ExitedJvm>,
    /// JVMs that were reported, and may have stacks that wait until the next part is reported.
    reported: Vec<ProcessId>,
    /// JVMs that run and wait for a free attach slot.
    queue: VecDeque<Queued>,
    at_once: usize,
    agent_for: Vec<AgentRule>,
    node: Node,
    refused: PermanentRefusals,
    results: BTreeMap<String, u64>,
    /// Why JVMs that ran before could not be looked for.
    undiscovered: Option<String>,
    /// Java's names of threads; `None` if threads are not separated.
    pub(super) threads: Option<JavaThreadNames>,
    /// Keep the numbers in names of threads.
    pub(super) raw_threads: bool,
    /// What was measured of JVMs in parts that are not reported yet, by the part's last window.
    measured: BTreeMap<u64, Measured>,
    /// Whether the profile distinguishes seconds.
    keeps_seconds: bool,
    /// The pauses of windows that are not reported yet.
    window_pauses: Vec<WindowPauses>,
    /// Samples of allocations by agents.
    requests: AgentRequests,
    /// Unwind descriptions, from the threads that read them.
    described: (Sender<DescribedJvm>, Receiver<DescribedJvm>),
}

impl HotSpotJvms {
    pub(super) fn new(settings: &Settings, control: &Control) -> HotSpotJvms {
        settings.agent_for.iter().filter_map(AgentRule::opted_in).for_each(OptedInPods::open);
        let options = AttachOptions {
            timeout: settings.attach_timeout,
            force: settings.force_attach,
            interrupt: control.interrupted(),
            ..AttachOptions::new(settings.binary.clone())
        };
        HotSpotJvms {
            java: settings.java,
            target: settings.target.clone(),
            children: settings.children,
            options,
            hierarchies: Hierarchies::mounted(),
            entries: HashMap::new(),
            mapped: HashMap::new(),
            leaving: Vec::new(),
            ended: Vec::new(),
            reported: Vec::new(),
            queue: VecDeque::new(),
            at_once: settings.attach_at_once,
            agent_for: settings.agent_for.clone(),
            node: settings.node.clone(),
            refused: settings.refused.clone(),
            results: BTreeMap::new(),
            undiscovered: None,
            threads: settings.per_thread.then(|| JavaThreadNames::new(settings.raw_threads)),
            raw_threads: settings.raw_threads,
            measured: BTreeMap::new(),
            keeps_seconds: settings.seconds,
            window_pauses: Vec::new(),
            requests: AgentRequests::of(settings),
            described: channel(),
        }
    }

    /// The report's warning about JVMs.
    pub(super) fn warning(&self) -> Option<&str> {
        self.undiscovered.as_deref()
    }

    /// Passes new unwind descriptions to the unwinder. From then on methods that the interpreter runs have names.
    pub(super) fn publish_descriptions(&mut self, world: &mut World) {
        for DescribedJvm { tgid, description } in self.described.1.try_iter() {
            let jvm::JvmDescription { unwind_info, memory, layout } = description;
            if let Some(entry) = self.entries.get_mut(&tgid) {
                entry.take_description(memory, layout, &mut world.symbolizer);
            }
            world.described.push((tgid, unwind_info));
        }
    }

    /// Finds the running JVMs and attaches to the profiled ones, several at a time. The call takes as long as the
    /// slowest of them, and not much longer than [`FIRST`]. JVMs that got no slot by then are attached to when they
    /// run.
    pub(super) fn attach_all(&mut self, world: &mut World, stop: &Control) {
        self.requests.sampling = world.agent_sampling.clone();
        let wanted: Option<Vec<u32>> = match &self.target {
            Target::All | Target::Groups(_) => None,
            Target::Pids(tgids) if self.children => Some(world.processes.descendants(tgids)),
            Target::Pids(tgids) => Some(tgids.clone()),
            Target::Tids(tids) => Some(processes::processes_of(tids)),
            Target::Launch(_) => Some(Vec::new()),
        };
        let mut found = jvm::discover().unwrap_or_else(|error| {
            let why = format!(
                "jbpf-prof could not search for running JVMs, so their Java code has no names: {error:#}"
            );
            log::warn!("{why}");
            self.undiscovered = Some(why);
            Vec::new()
        });
        found.retain(|jvm| wanted.as_ref().is_none_or(|wanted| wanted.contains(&jvm.process.tgid)));
        if matches!(self.target, Target::Groups(_)) {
            found.retain(|jvm| world.groups.contain(jvm.process.tgid));
        }
        log::info!("JVMs: {} found to profile", found.len());
        let mut waiting = found.into_iter();
        let (begun, mut renewed) = (Instant::now(), Instant::now());
        loop {
            self.join(false, &mut world.symbolizer);
            if stop.is_stopped() {
                self.stop_kubelet_waits();
            }
            if begun.elapsed() >= FIRST.max(self.options.timeout) {
                self.mapped.extend(waiting.map(|jvm| (jvm.process.tgid, MonoNs::default())));
                return;
            }
            while self.under_way() < self.at_once
                && !stop.is_stopped()
                && let Some(jvm) = waiting.next()
            {
                self.start_setup(jvm.process.tgid, Discovery::Found(jvm));
            }
            if self.under_way() == 0 {
                return;
            }
            // While some JVMs are slow to reply, the leases of the others must not end.
            if renewed.elapsed() >= RENEW {
                self.renew(&mut world.symbolizer);
                renewed = Instant::now();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Processes a window's events: JVMs that start and exit.
    pub(super) fn notice(&mut self, world: &World, events: &[ProcessEvent]) {
        let (window, has_ended) = (world.window, |tgid| world.processes.has_ended(tgid));
        for (_, tgid) in self.leaving.extract_if(.., |(since, _)| *since < window) {
            self.ended.extend(self.entries.remove(&tgid).map(|entry| ExitedJvm { window, entry }));
        }
        for event in events {
            let tgid = event.tgid;
            match &event.kind {
                EventKind::Mmap(mapped) if mapped.path.as_os_str().as_bytes().ends_with(b"/libjvm.so") => {
                    self.mapped.insert(tgid, event.at);
                }
                EventKind::Comm { exec: true, .. } => self.replace(window, tgid),
                // The process that had this pid before has exited.
                EventKind::Fork { parent } if event.is_leader() => {
                    self.replace(window, tgid);
                    // The child has a copy of its parent's JVM, and gets an entry if it runs before it executes another
                    // program.
                    if self.entries.contains_key(parent) {
                        self.mapped.entry(tgid).or_default();
                    }
                }
                _ => {}
            }
        }
        // A process ends with the last of its threads; the exit of the first one says nothing.
        let undiscovered = self.mapped.keys().copied().chain(self.queue.iter().map(|queued| queued.tgid));
        for tgid in undiscovered.filter(|tgid| has_ended(*tgid)).collect::<Vec<u32>>() {
            self.forget_undiscovered(tgid);
        }
        let is_new = |tgid: &u32| !self.leaving.iter().any(|(_, left)| left == tgid);
        let left: Vec<u32> = self.entries.keys().copied().filter(|tgid| has_ended(*tgid)).collect();
        let left: Vec<(u64, u32)> = left.into_iter().filter(is_new).map(|tgid| (window, tgid)).collect();
        self.leaving.extend(left);
    }

    /// Another program has the pid now.
    fn replace(&mut self, window: u64, tgid: u32) {
        self.forget_undiscovered(tgid);
        self.leaving.retain(|(_, left)| *left != tgid);
        self.ended.extend(self.entries.remove(&tgid).map(|entry| ExitedJvm { window, entry }));
    }

    fn forget_undiscovered(&mut self, tgid: u32) {
        self.mapped.remove(&tgid);
        self.queue.retain(|queued| queued.tgid != tgid);
    }

    /// Attaches to the JVMs that have just mapped `libjvm.so`. Until its unwind description is known, the stacks of a
    /// starting JVM do not reach the root.
    pub(super) fn attach_new(&mut self, world: &mut World) {
        let HotSpotJvms { mapped, entries, queue, .. } = self;
        // JVMs from before the run that got no slot wait until they run.
        let begun = |tgid: &u32, at: &mut MonoNs| {
            *at != MonoNs::default() && !entries.contains_key(tgid) && world.walks(*tgid)
        };
        let begun = mapped.extract_if(begun);
        queue.extend(begun.map(|(tgid, mapped)| Queued { tgid, process: None, mapped }));
        self.advance(&mut world.symbolizer);
    }

    /// Processes the list of programs that ran in a window. A JVM that started during the run is attached to when it is
    /// first seen to run, unless that happened before. Its stacks give each JVM its exact identity. A program before an
    /// exec of the same process is no JVM, or another one.
    pub(super) fn identify(&mut self, ran: &[ProcessInCgroup], world: &mut World) {
        let World { processes, symbolizer, .. } = world;
        for process in ran.iter().map(|of| of.process).filter(|id| !processes.is_former(*id)) {
            if let Some(mapped) = self.mapped.remove(&process.tgid)
                && !self.entries.contains_key(&process.tgid)
            {
                self.queue.push_back(Queued { tgid: process.tgid, process: Some(process), mapped });
                self.advance(symbolizer);
            }
            if let Some(queued) = self.queue.iter_mut().find(|queued| queued.tgid == process.tgid) {
                queued.process = Some(process);
            }
            if let Some(entry) = self.entries.get_mut(&process.tgid) {
                entry.bind(process, symbolizer);
            }
        }
    }

    /// Whether an attach is pending.
    pub(super) fn is_attaching(&self) -> bool {
        !self.queue.is_empty() || self.under_way() > 0
    }

    /// Renews the leases, and takes the results of finished attaches.
    pub(super) fn renew(&mut self, symbolizer: &mut Symbolizer) {
        let lease = self.options.lease;
        let until =
            MonoNs(MonoNs::now().0.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)));
        self.advance(symbolizer);
        for (tgid, entry) in &mut self.entries {
            entry.describe_again(&self.options, &self.described.0);
            if let Some(attached) = entry.attached() {
                // A log that can no longer be written to ends its lease; its reader notices.
                let _ = if entry.log.given_up { attached.end_lease() } else { attached.renew_lease(until) };
                if entry.log.given_up {
                    let why = "its log is not read any more, because it is too large".to_owned();
                    self.requests.sampling.set(*tgid, AgentSamplingState::Refused(why));
                }
            }
        }
    }

    /// Records how far the logs have been read.
    pub(super) fn note_read(&mut self, logs: &[(ProcessId, LogStats)]) {
        for entry in self.entries.values_mut().chain(self.ended.iter_mut().map(|exited| &mut exited.entry)) {
            if let Some((_, stats)) = logs.iter().find(|(process, _)| Some(*process) == entry.bound) {
                entry.log = *stats;
            }
        }
    }

    /// Waits for pending attaches at the end of sampling, so that no file of the profiler stays in a JVM's file system.
    /// Interrupted attaches clean up and end.
    pub(super) fn wait_for_attaches(&mut self, symbolizer: &mut Symbolizer) {
        self.queue.clear();
        self.stop_kubelet_waits();
        self.join(true, symbolizer);
    }

    /// Stops all waits for the kubelet's answers: from now on only JVMs are waited for.
    fn stop_kubelet_waits(&self) {
        self.agent_for.iter().filter_map(AgentRule::opted_in).for_each(OptedInPods::close);
    }

    /// Begins to measure how JVMs are kept from running: what was before belongs to no part.
    pub(super) fn begin_measuring(&mut self, processes: &mut Processes) {
        self.look_at_pauses(0, processes).for_each(drop);
        self.measure();
    }

    /// Notes how each JVM stood still in a window: in each window if the profile distinguishes seconds, and otherwise in
    /// the last window of a part for the whole part.
    pub(super) fn note_pauses(&mut self, world: &mut World, ends_part: bool) {
        if !self.keeps_seconds && !ends_part {
            return;
        }
        let pauses: Vec<WindowPauses> = self.look_at_pauses(world.window, &mut world.processes).collect();
        if let Some(new) = &mut world.new_pauses {
            new.extend(&pauses);
        }
        self.window_pauses.extend(pauses);
    }

    fn look_at_pauses(
        &mut self,
        window: u64,
        processes: &mut Processes,
    ) -> impl Iterator<Item = WindowPauses> {
        self.entries.values_mut().filter_map(move |entry| entry.pauses_in(window, processes))
    }

    /// The pauses in the windows of a part, of the JVMs that the report has.
    pub(super) fn take_pauses(&mut self, part: &PartEnd<'_>, reported: &[JvmReport]) -> Vec<WindowPauses> {
        let pids: HashSet<u32> = reported.iter().map(|jvm| jvm.pid).collect();
        let own = self.window_pauses.extract_if(.., |pauses| pauses.window <= part.window);
        own.filter(|pauses| pids.contains(&pauses.pid)).collect()
    }

    /// Ends the part whose last window is `window`: records how each JVM was kept from running in it. Of a JVM that has
    /// exited this is unknown, except for its pauses in earlier windows of the part.
    pub(super) fn end_part(&mut self, window: u64) {
        let measured = self.measure();
        self.measured.insert(window, measured);
    }

    /// How each JVM was kept from running since the last call.
    fn measure(&mut self) -> Measured {
        let entries = self.entries.values_mut().chain(self.ended.iter_mut().map(|exited| &mut exited.entry));
        entries.map(|entry| (entry.id(), entry.measure(&self.hierarchies))).collect()
    }

    /// Takes the results of finished attaches; `wait`: of all.
    fn join(&mut self, wait: bool, symbolizer: &mut Symbolizer) {
        for entry in self.entries.values_mut() {
            for result in entry.join(wait, symbolizer) {
                *self.results.entry(result).or_default() += 1;
            }
        }
    }

    /// Takes finished results, and starts as many queued attaches as there are free slots.
    fn advance(&mut self, symbolizer: &mut Symbolizer) {
        self.join(false, symbolizer);
        while self.under_way() < self.at_once
            && let Some(Queued { tgid, process, mapped }) = self.queue.pop_front()
        {
            self.start_setup(tgid, Discovery::Begun(mapped));
            if let Some((entry, process)) = self.entries.get_mut(&tgid).zip(process) {
                entry.bind(process, symbolizer);
            }
        }
    }

    /// How many attempts to get names had each result.
    pub(super) fn results(&self) -> &BTreeMap<String, u64> {
        &self.results
    }

    /// Closes the symbol sources of JVMs that exited in earlier windows, unless their stacks still wait: a long run has
    /// thousands of such JVMs.
    pub(super) fn close_ended(&mut self, world: &mut World) {
        let ended = self.ended.iter_mut().filter(|exited| exited.window < world.window);
        for entry in ended.map(|exited| &mut exited.entry).filter(|entry| !entry.is_closed()) {
            if !entry.bound.is_some_and(|process| world.awaiting_names.contains(&process)) {
                entry.close(&mut world.symbolizer);
            }
        }
    }

    /// How many JVMs lack some or all names because there was no room to read them.
    pub(super) fn unread(&self) -> usize {
        self.all().filter(|entry| entry.is_unread()).count()
    }

    /// All JVMs of this part.
    fn all(&self) -> impl Iterator<Item = &JvmEntry> {
        self.entries.values().chain(self.ended.iter().map(|exited| &exited.entry))
    }

    /// Forgets exited JVMs: those of the part before now, those of this part (`last` is its last window) with the next
    /// call. JVMs that exited in later parts are not reported yet.
    pub(super) fn forget_ended(&mut self, last: u64, symbolizer: &mut Symbolizer) {
        let mut left = Vec::new();
        for ExitedJvm { mut entry, .. } in self.ended.extract_if(.., |exited| exited.window <= last) {
            // No stack of these windows waits any more.
            if !entry.is_closed() {
                entry.close(symbolizer);
            }
            left.extend(entry.bound);
        }
        for process in std::mem::replace(&mut self.reported, left) {
            symbolizer.forget(process);
        }
    }

    /// Ends the leases: the agents stop writing and free their memory.
    pub(super) fn release(&self) {
        for entry in self.entries.values() {
            if let Some(attached) = entry.attached() {
                // The JVM may have exited, and its memory with it.
                let _ = attached.end_lease();
            }
        }
    }

    /// The report's rows of all JVMs that were attached to or ran, the busiest first.
    pub(super) fn report_rows(&mut self, part: &PartEnd<'_>) -> Vec<JvmReport> {
        let later = self.measured.split_off(&(part.window + 1));
        let measured = std::mem::replace(&mut self.measured, later).remove(&part.window).unwrap_or_default();
        let mut reports: Vec<JvmReport> =
            self.all().filter_map(|entry| entry.report(part, &measured)).collect();
        reports.sort_by_key(|report| (std::cmp::Reverse(report.samples), report.pid));
        reports
    }

    /// Starts the thread that attaches to a JVM.
    fn start_setup(&mut self, tgid: u32, discovery: Discovery) {
        let (late, pauses) = (discovery.is_late(), Pauses::new(discovery.is_new()));
        let setup = JvmSetup {
            tgid,
            discovery,
            java: self.java,
            agent_for: self.agent_for.clone(),
            node: self.node.clone(),
            refused: self.refused.clone(),
            options: self.options.clone(),
            requests: self.requests.clone(),
        };
        let described = self.described.0.clone();
        let begin = move || setup.run(&described);
        match std::thread::Builder::new().name("attach".into()).spawn(begin) {
            Ok(thread) => {
                let cpu = self.cpu_of(tgid);
                self.entries.insert(tgid, JvmEntry::attaching(tgid, self.java, thread, late, pauses, cpu));
            }
            Err(e) => log::warn!("JVM {tgid}: cannot attach: {e}"),
        }
    }

    /// Reports whose names come late. Names from memory are there as soon as the JVM runs, and a JVM that refused has
    /// no names to wait for.
    pub(super) fn report_readiness(&self, readiness: &mut Readiness) {
        self.queue.iter().for_each(|queued| readiness.set(queued.tgid, NameDelay::Undecided));
        for (tgid, entry) in &self.entries {
            if entry.is_open() {
                readiness.set(*tgid, NameDelay::Undecided);
            } else if entry.attached().is_some() && !readiness.is_late(*tgid) {
                readiness.set(*tgid, NameDelay::Late);
            }
        }
    }

    /// Number of pending attaches.
    fn under_way(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_open()).count()
    }

    fn cpu_of(&self, tgid: u32) -> CpuSnapshot {
        CgroupMembership::of(tgid).map(|of| self.hierarchies.snapshot(&of)).unwrap_or_default()
    }
}
