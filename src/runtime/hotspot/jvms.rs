//! The JVMs of a session. The profiler attaches to them before the clock starts, or when they first run. Their leases
//! are renewed each window and end with the session.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::java_threads::JavaThreadNames;
use super::jvm::JvmEntry;
use super::jvm_entries::JvmEntries;
use super::jvm_reports::JvmReports;
use super::jvm_setup::{AgentSamplingConfig, DescribedJvm, Discovery, JvmSetup, is_libjvm};
use super::pauses::Pauses;
use crate::jvm::{self, AttachOptions};
use crate::plan::{AgentRule, Control, JavaNaming, OptedInPods, PermanentRefusals, Settings, Target};
use crate::process::container::Node;
use crate::process::{EventKind, ProcessEvent};
use crate::sample::{MonoNs, ProcessId};
use crate::symbolize::{ProcessLogStats, Symbolizer};
use crate::targets::processes;
use crate::world::{AgentSamplingState, NameDelay, Readiness, WindowStacks, World};

/// How often leases are renewed while attaches are pending.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// How long sampling may wait for the JVMs that are there, unless the timeout of one attach is longer.
const INITIAL_ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two checks for finished attaches.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A JVM that runs and waits for a free attach slot.
struct QueuedJvm {
    tgid: u32,
    /// The identity in the process's first stack; `None` before that.
    process: Option<ProcessId>,
    discovery: Discovery,
}

/// The channel of unwind descriptions, from the threads that read them.
struct DescriptionChannel {
    sender: Sender<DescribedJvm>,
    receiver: Receiver<DescribedJvm>,
}

pub(super) struct HotSpotJvms {
    java: JavaNaming,
    target: Target,
    children: bool,
    options: AttachOptions,
    pub(super) entries: JvmEntries,
    pub(super) reports: JvmReports,
    /// Processes that have a JVM and no entry yet, by pid: they mapped `libjvm.so`, or wait for their first sample.
    pending: HashMap<u32, Discovery>,
    /// JVMs that run and wait for a free attach slot.
    queue: VecDeque<QueuedJvm>,
    max_attaches: usize,
    agent_rules: Vec<AgentRule>,
    node: Node,
    refused: PermanentRefusals,
    results: BTreeMap<String, u64>,
    /// Why the search for JVMs that ran before sampling failed.
    discovery_error: Option<String>,
    /// When the JVMs that ran before sampling were looked for. Earlier events are older than what is known of them.
    discovered_at: MonoNs,
    /// Java's names of threads; `None` if threads are not separated.
    pub(super) threads: Option<JavaThreadNames>,
    /// Keep the numbers in names of threads.
    pub(super) raw_threads: bool,
    agent_sampling: AgentSamplingConfig,
    described: DescriptionChannel,
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
        let (sender, receiver) = channel();
        HotSpotJvms {
            java: settings.java,
            target: settings.target.clone(),
            children: settings.children,
            options,
            entries: JvmEntries::default(),
            reports: JvmReports::new(settings.seconds),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            max_attaches: settings.attach_at_once,
            agent_rules: settings.agent_for.clone(),
            node: settings.node.clone(),
            refused: settings.refused.clone(),
            results: BTreeMap::new(),
            discovery_error: None,
            discovered_at: MonoNs::default(),
            threads: settings.per_thread.then(|| JavaThreadNames::new(settings.raw_threads)),
            raw_threads: settings.raw_threads,
            agent_sampling: AgentSamplingConfig::of(settings),
            described: DescriptionChannel { sender, receiver },
        }
    }

    /// The report's warning about JVMs.
    pub(super) fn warning(&self) -> Option<&str> {
        self.discovery_error.as_deref()
    }

    /// Passes new unwind descriptions to the unwinder. From then on methods that the interpreter runs have names.
    pub(super) fn publish_descriptions(&mut self, world: &mut World) {
        for DescribedJvm { tgid, description } in self.described.receiver.try_iter() {
            let jvm::JvmDescription { unwind_info, memory, layout } = description;
            if let Some(entry) = self.entries.running.get_mut(&tgid) {
                entry.take_description(memory, layout, &mut world.symbolizer);
            }
            world.described.push((tgid, unwind_info));
        }
    }

    /// Finds the running JVMs and attaches to the profiled ones, several at a time. The call takes as long as the
    /// slowest of them, and not much longer than [`INITIAL_ATTACH_TIMEOUT`]. JVMs that got no slot by then are attached
    /// to when they run.
    pub(super) fn attach_all(&mut self, world: &mut World, stop: &Control) {
        self.agent_sampling.requests = world.agent_sampling.clone();
        let wanted: Option<Vec<u32>> = match &self.target {
            Target::All | Target::Groups(_) => None,
            Target::Pids(tgids) if self.children => Some(world.processes.descendants(tgids)),
            Target::Pids(tgids) => Some(tgids.clone()),
            Target::Tids(tids) => Some(processes::processes_of(tids)),
            Target::Launch(_) => Some(Vec::new()),
        };
        self.discovered_at = MonoNs::now();
        let mut found = jvm::discover().unwrap_or_else(|error| {
            let why = format!(
                "jbpf-prof could not search for running JVMs, so their Java code has no names: {error:#}"
            );
            log::warn!("{why}");
            self.discovery_error = Some(why);
            Vec::new()
        });
        found.retain(|jvm| wanted.as_ref().is_none_or(|wanted| wanted.contains(&jvm.process.tgid)));
        if matches!(self.target, Target::Groups(_)) {
            found.retain(|jvm| world.groups.contain(jvm.process.tgid));
        }
        log::info!("JVMs: {} found to profile", found.len());
        let mut waiting = found.into_iter();
        let begin = Instant::now();
        let mut last_renewal = Instant::now();
        loop {
            self.collect_results(false, &mut world.symbolizer);
            if stop.is_stopped() {
                self.stop_kubelet_waits();
            }
            if begin.elapsed() >= INITIAL_ATTACH_TIMEOUT.max(self.options.timeout) {
                self.pending.extend(waiting.map(|jvm| (jvm.process.tgid, Discovery::Deferred)));
                return;
            }
            while self.pending_attaches() < self.max_attaches
                && !stop.is_stopped()
                && let Some(jvm) = waiting.next()
            {
                self.start_setup(jvm.process.tgid, Discovery::AtStart(jvm));
            }
            if self.pending_attaches() == 0 {
                return;
            }
            // While some JVMs are slow to reply, the leases of the others must not end.
            if last_renewal.elapsed() >= LEASE_RENEWAL_INTERVAL {
                self.poll_jvms(&mut world.symbolizer);
                last_renewal = Instant::now();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Processes a window's events: JVMs that start and exit.
    pub(super) fn on_process_events(&mut self, world: &World, events: &[ProcessEvent]) {
        let window = world.window;
        let has_ended = |tgid| world.processes.has_ended(tgid);
        self.entries.end_leaving(window);
        for event in events {
            let tgid = event.tgid;
            match &event.kind {
                EventKind::Mmap(mapped) if is_libjvm(&mapped.path) => {
                    self.pending.insert(tgid, Discovery::Started { mapped_at: event.at });
                }
                // Another program has the pid now, unless the JVM was found after that.
                EventKind::Comm { exec: true, .. } if event.at >= self.discovered_at => {
                    self.replace(window, tgid);
                }
                EventKind::Comm { exec: true, .. } => {
                    // What the program before had mapped is gone.
                    self.pending
                        .retain(|pid, found| *pid != tgid || !matches!(found, Discovery::Started { .. }));
                }
                // The process that had this pid before has exited.
                EventKind::Fork { parent } if event.is_leader() => {
                    if event.at >= self.discovered_at {
                        self.replace(window, tgid);
                    }
                    // The child has a copy of its parent's JVM, and gets an entry if it runs before it executes another
                    // program.
                    if self.entries.running.contains_key(parent) {
                        self.pending.entry(tgid).or_insert(Discovery::Deferred);
                    }
                }
                _ => {}
            }
        }
        // A process ends with the last of its threads; the exit of the first one says nothing.
        let pending = self.pending.keys().copied().chain(self.queue.iter().map(|queued| queued.tgid));
        for tgid in pending.filter(|tgid| has_ended(*tgid)).collect::<Vec<u32>>() {
            self.forget_pending(tgid);
        }
        self.entries.mark_leaving(window, has_ended);
    }

    /// Another program has the pid now.
    fn replace(&mut self, window: u64, tgid: u32) {
        self.forget_pending(tgid);
        self.entries.end_replaced(window, tgid);
    }

    fn forget_pending(&mut self, tgid: u32) {
        self.pending.remove(&tgid);
        self.queue.retain(|queued| queued.tgid != tgid);
    }

    /// Attaches to the JVMs that have just mapped `libjvm.so`. Until its unwind description is known, the stacks of a
    /// starting JVM do not reach the root.
    pub(super) fn attach_new(&mut self, world: &mut World) {
        let HotSpotJvms { pending, entries, queue, .. } = self;
        // Other JVMs wait until they run.
        let is_due = |tgid: &u32, discovery: &mut Discovery| {
            discovery.is_new() && !entries.running.contains_key(tgid) && world.walks(*tgid)
        };
        let due = pending.extract_if(is_due);
        queue.extend(due.map(|(tgid, discovery)| QueuedJvm { tgid, process: None, discovery }));
        self.start_queued(&mut world.symbolizer);
    }

    /// Processes the list of programs that ran in a window. A pending JVM is attached to when it is first seen to run.
    /// Its stacks give each JVM its exact identity. A program before an exec of the same process is no JVM, or another
    /// one.
    pub(super) fn identify(&mut self, window: &WindowStacks<'_>, world: &mut World) {
        let World { processes, symbolizer, .. } = world;
        for process in window.ran.iter().map(|of| of.process).filter(|id| !processes.is_former(*id)) {
            if self.pending.contains_key(&process.tgid)
                && window.has_sample_of(process)
                && let Some(discovery) = self.pending.remove(&process.tgid)
                && !self.entries.running.contains_key(&process.tgid)
            {
                self.queue.push_back(QueuedJvm { tgid: process.tgid, process: Some(process), discovery });
                self.start_queued(symbolizer);
            }
            if let Some(queued) = self.queue.iter_mut().find(|queued| queued.tgid == process.tgid) {
                queued.process = Some(process);
            }
            if let Some(entry) = self.entries.running.get_mut(&process.tgid) {
                entry.bind(process, symbolizer);
            }
        }
    }

    /// Whether an attach is pending.
    pub(super) fn is_attaching(&self) -> bool {
        !self.queue.is_empty() || self.pending_attaches() > 0
    }

    /// Starts queued attaches, reads unwind descriptions again where that is due, and renews the leases.
    pub(super) fn poll_jvms(&mut self, symbolizer: &mut Symbolizer) {
        let lease = self.options.lease;
        let lease_end =
            MonoNs(MonoNs::now().0.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)));
        self.start_queued(symbolizer);
        for (tgid, entry) in &mut self.entries.running {
            entry.describe_again(&self.options, &self.described.sender);
            if let Some(attached) = entry.attached() {
                // A log that can no longer be written to ends its lease; its reader notices.
                let _ =
                    if entry.log.given_up { attached.end_lease() } else { attached.renew_lease(lease_end) };
                if entry.log.given_up {
                    let why = "its log is not read any more, because it is too large".to_owned();
                    self.agent_sampling.requests.set(*tgid, AgentSamplingState::Refused(why));
                }
            }
        }
    }

    /// Records how far the logs have been read.
    pub(super) fn record_log_stats(&mut self, logs: &[ProcessLogStats]) {
        for entry in self.entries.all_mut() {
            if let Some(log) = logs.iter().find(|log| Some(log.process) == entry.bound) {
                entry.log = log.stats;
            }
        }
    }

    /// Waits for pending attaches at the end of sampling, so that no file of the profiler stays in a JVM's file system.
    /// Interrupted attaches clean up and end.
    pub(super) fn wait_for_attaches(&mut self, symbolizer: &mut Symbolizer) {
        self.queue.clear();
        self.stop_kubelet_waits();
        self.collect_results(true, symbolizer);
    }

    /// Stops all waits for the kubelet's answers: from now on only JVMs are waited for.
    fn stop_kubelet_waits(&self) {
        self.agent_rules.iter().filter_map(AgentRule::opted_in).for_each(OptedInPods::close);
    }

    /// Takes the results of finished attaches; `wait`: of all.
    fn collect_results(&mut self, wait: bool, symbolizer: &mut Symbolizer) {
        for entry in self.entries.running.values_mut() {
            for result in entry.finish_setup(wait, symbolizer) {
                *self.results.entry(result).or_default() += 1;
            }
        }
    }

    /// Takes finished results, and starts as many queued attaches as there are free slots.
    fn start_queued(&mut self, symbolizer: &mut Symbolizer) {
        self.collect_results(false, symbolizer);
        while self.pending_attaches() < self.max_attaches
            && let Some(QueuedJvm { tgid, process, discovery }) = self.queue.pop_front()
        {
            self.start_setup(tgid, discovery);
            if let Some((entry, process)) = self.entries.running.get_mut(&tgid).zip(process) {
                entry.bind(process, symbolizer);
            }
        }
    }

    /// How many attempts to get names had each result.
    pub(super) fn results(&self) -> &BTreeMap<String, u64> {
        &self.results
    }

    /// How many JVMs lack some or all names because there was no room to read them.
    pub(super) fn unread(&self) -> usize {
        self.entries.all().filter(|entry| entry.is_unread()).count()
    }

    /// Ends the leases: the agents stop writing and free their memory.
    pub(super) fn end_leases(&self) {
        for entry in self.entries.running.values() {
            if let Some(attached) = entry.attached() {
                // The JVM may have exited, and its memory with it.
                let _ = attached.end_lease();
            }
        }
    }

    /// Starts the thread that attaches to a JVM.
    fn start_setup(&mut self, tgid: u32, discovery: Discovery) {
        let is_late = discovery.is_late();
        let pauses = Pauses::new(discovery.is_new());
        let setup = JvmSetup {
            tgid,
            discovery,
            java: self.java,
            agent_rules: self.agent_rules.clone(),
            node: self.node.clone(),
            refused: self.refused.clone(),
            options: self.options.clone(),
            agent_sampling: self.agent_sampling.clone(),
        };
        let described = self.described.sender.clone();
        let run = move || setup.run(&described);
        match std::thread::Builder::new().name("attach".into()).spawn(run) {
            Ok(thread) => {
                let cpu = self.reports.throttling_until_now(tgid);
                let entry = JvmEntry::attaching(tgid, self.java, thread, is_late, pauses, cpu);
                self.entries.running.insert(tgid, entry);
            }
            Err(e) => log::warn!("JVM {tgid}: cannot attach: {e}"),
        }
    }

    /// Reports whose names come late. Names from memory are there as soon as the JVM runs, and a JVM that refused has
    /// no names to wait for.
    pub(super) fn report_readiness(&self, readiness: &mut Readiness) {
        self.queue.iter().for_each(|queued| readiness.set(queued.tgid, NameDelay::Undecided));
        for (tgid, entry) in &self.entries.running {
            if entry.is_attaching() {
                readiness.set(*tgid, NameDelay::Undecided);
            } else if entry.attached().is_some() && !readiness.is_late(*tgid) {
                readiness.set(*tgid, NameDelay::Late);
            }
        }
    }

    /// Number of pending attaches.
    fn pending_attaches(&self) -> usize {
        self.entries.running.values().filter(|entry| entry.is_attaching()).count()
    }
}
