//! One JVM of a session: its symbol source, and which of the sampled processes it is.

use std::collections::HashMap;
use std::fs::File;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::jvm_setup::{DescribedJvm, JvmSetupResult, NoAgent, OpenedSource};
use super::pauses::Pauses;
use crate::jvm::vm::VmLayout;
use crate::jvm::{
    self, AgentStart, AttachFailure, AttachOptions, Attached, Inspection, JavaVersion, Jvm, OpenedMemory,
    Refusal,
};
use crate::plan::JavaNaming;
use crate::process::Processes;
use crate::process::cgroup::CgroupMembership;
use crate::process::hierarchies::Hierarchies;
use crate::process::throttling::CpuSnapshot;
use crate::profile::pauses::PauseTotals;
use crate::profile::report::{JvmRefusal, JvmReport, ReportedNameSource, ThrottleTotals};
use crate::sample::ProcessId;
use crate::symbolize::{JvmLog, JvmMemory, LogStats, Symbolizer};
use crate::world::{PartEnd, RuntimeSamples, WindowPauses};

/// Identifies an entry. An exec can make the same process another JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct JvmEntryId {
    tgid: u32,
    /// When the process was first seen.
    began: Instant,
}

/// How the JVMs were kept from running in a part.
pub(super) type StopTimesByJvm = HashMap<JvmEntryId, StopTimes>;

/// How a JVM was kept from running in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopTimes {
    /// `None` if its cgroup had no quota, or the JVM has exited.
    pub(super) throttling: Option<ThrottleTotals>,
    /// `None` if the JVM has no counters or has exited.
    pub(super) pauses: Option<PauseTotals>,
}

/// The state of a JVM's names.
enum NamingState {
    /// A thread attaches to the JVM or opens its memory.
    Attaching(JoinHandle<JvmSetupResult>),
    Attached(Box<Attached>),
    /// Names are read from the JVM's memory.
    Opened(Box<OpenedMemory>),
    Refused(Refusal),
    /// No names were requested.
    Off,
    /// The JVM has exited, and its last stacks are named: the symbol source for the report.
    Closed(ReportedNameSource),
}

/// How long after it was first seen a starting JVM is described again. The JVM makes stubs until its compilers run,
/// which takes a tenth of a second, or seconds with little CPU.
const DESCRIBE_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

pub(super) struct JvmEntry {
    tgid: u32,
    /// The symbol source that the user chose.
    java: JavaNaming,
    /// `None` until the attach has ended.
    jvm: Option<Jvm>,
    names: NamingState,
    /// The memory from which interpreted methods get their names, once it is open.
    memory: Option<(File, VmLayout)>,
    inspection: Option<Inspection>,
    /// Why the JVM has no agent, if its memory was opened instead.
    no_agent: Option<Refusal>,
    /// Why the JVM's stacks are unwound by frame pointers alone.
    undescribed: Option<Refusal>,
    /// The identity of the process in the samples, from its first stack on.
    pub(super) bound: Option<ProcessId>,
    /// The JVM was set up while sampling ran.
    is_late: bool,
    /// How often the JVM was described again.
    descriptions_again: usize,
    began: Instant,
    took: Duration,
    /// How far the JVM's log was read.
    pub(super) log: LogStats,
    /// There was no room to read the JVM's log or memory.
    unread: bool,
    cpu: CpuSnapshot,
    pauses: Pauses,
}

impl JvmEntry {
    /// An entry to which this thread attaches; `cpu`: how its cgroup was throttled until now.
    pub(super) fn attaching(
        tgid: u32,
        java: JavaNaming,
        thread: JoinHandle<JvmSetupResult>,
        is_late: bool,
        pauses: Pauses,
        cpu: CpuSnapshot,
    ) -> JvmEntry {
        JvmEntry {
            tgid,
            java,
            jvm: None,
            names: NamingState::Attaching(thread),
            memory: None,
            inspection: None,
            no_agent: None,
            undescribed: None,
            bound: None,
            is_late,
            descriptions_again: 0,
            began: Instant::now(),
            took: Duration::ZERO,
            log: LogStats::default(),
            unread: false,
            cpu,
            pauses,
        }
    }

    /// Keeps what the report needs and closes everything else. For a JVM that has exited and whose stacks are named.
    pub(super) fn close(&mut self, symbolizer: &mut Symbolizer) {
        self.names = NamingState::Closed(self.source());
        self.memory = None;
        if let Some(process) = self.bound {
            symbolizer.close_jvm(process);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.names, NamingState::Closed(_))
    }

    /// Whether there was no room to read the JVM's log or memory.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Whether the attach is pending: it is not known yet whether there will be names.
    pub(super) fn is_attaching(&self) -> bool {
        matches!(self.names, NamingState::Attaching(_))
    }

    /// The agent's connection, if the JVM has the agent.
    pub(super) fn attached(&self) -> Option<&Attached> {
        if let NamingState::Attached(attached) = &self.names { Some(attached) } else { None }
    }

    /// Whether the JVM's code is named from its memory.
    pub(super) fn names_from_memory(&self) -> bool {
        matches!(self.names, NamingState::Opened(_))
    }

    /// Takes the unwind description, and with it the memory that names interpreted methods.
    pub(super) fn take_description(&mut self, memory: File, layout: VmLayout, symbolizer: &mut Symbolizer) {
        self.undescribed = None;
        if self.memory.is_none() {
            self.memory = Some((memory, layout));
            self.name_methods(symbolizer);
        }
    }

    /// Reads the unwind description of a JVM that was set up while sampling ran once more, when that is due.
    pub(super) fn describe_again(&mut self, options: &AttachOptions, described: &Sender<DescribedJvm>) {
        let is_due = DESCRIBE_AGAIN_AFTER
            .get(self.descriptions_again)
            .is_some_and(|after| self.began.elapsed() >= *after);
        if !self.is_late || !is_due || self.is_attaching() || self.is_closed() {
            return;
        }
        let Some(jvm) = self.jvm.clone() else { return };
        self.descriptions_again += 1;
        let (options, described) = (options.clone(), described.clone());
        let describe = move || {
            if let Ok(description) = jvm::describe(&jvm, &options) {
                // When the session is over the channel has no receiver.
                let _ = described.send(DescribedJvm { tgid: jvm.process.tgid, description });
            }
        };
        // If the thread cannot start, the earlier description stays.
        let _ = std::thread::Builder::new().name("describe".into()).spawn(describe);
    }

    /// Takes the result of an attach.
    fn take_result(&mut self, result: Result<OpenedSource, AttachFailure>) {
        self.took = self.began.elapsed();
        match result {
            Ok(OpenedSource::Log(attached)) => {
                self.inspection = Some(attached.inspection.clone());
                self.names = NamingState::Attached(attached);
            }
            Ok(OpenedSource::Memory(opened)) => {
                self.inspection = Some(opened.inspection.clone());
                self.names = NamingState::Opened(opened);
            }
            Ok(OpenedSource::None) => self.names = NamingState::Off,
            Err(AttachFailure { refusal, inspection }) => {
                self.inspection = inspection.map(|inspection| *inspection);
                self.names = NamingState::Refused(refusal);
            }
        }
    }

    fn log_names(&self) {
        let (pid, name) = self.jvm.as_ref().map_or((0, "?"), |jvm| (jvm.process.tgid, jvm.main.as_str()));
        match &self.names {
            NamingState::Attached(attached) => {
                log::info!("JVM {pid} ({name}): {:?} agent, in {:.0?}", attached.source, self.took);
            }
            NamingState::Opened(_) => log::info!("JVM {pid} ({name}): opened, in {:.0?}", self.took),
            NamingState::Refused(why) => {
                let detail = why.detail().map(|words| format!(" ({words})")).unwrap_or_default();
                log::info!("JVM {pid} ({name}): {why}{detail}, in {:.0?}", self.took);
            }
            NamingState::Attaching(_) | NamingState::Off | NamingState::Closed(_) => {}
        }
    }

    /// Takes the result of the pending attach, if there is one, and returns its label; `wait`: waits for it. A JVM that
    /// refused the agent and is read instead has two labels.
    pub(super) fn finish_setup(&mut self, wait: bool, symbolizer: &mut Symbolizer) -> Vec<String> {
        let mut results = Vec::new();
        let NamingState::Attaching(thread) = &self.names else { return results };
        if !wait && !thread.is_finished() {
            return results;
        }
        let NamingState::Attaching(thread) = std::mem::replace(&mut self.names, NamingState::Off) else {
            return results;
        };
        // A thread that panics ends the profiler: release builds abort on panic.
        if let Ok(JvmSetupResult { jvm, undescribed, no_agent, names }) = thread.join() {
            if let (Some(jvm), Some(NoAgent { why, .. })) = (&jvm, &no_agent) {
                log::info!("JVM {} ({}): {why}; reading its memory instead", jvm.process.tgid, jvm.main);
            }
            results.extend(no_agent.as_ref().filter(|it| it.in_this_session).map(|it| it.why.to_string()));
            self.jvm = jvm;
            self.undescribed = undescribed;
            self.no_agent = no_agent.map(|it| it.why);
            self.take_result(names);
            self.log_names();
        }
        if let Some(process) = self.bound.take() {
            self.bind(process, symbolizer);
        }
        results.extend(match &self.names {
            NamingState::Attached(_) => Some("agent".to_owned()),
            NamingState::Opened(_) => Some("memory".to_owned()),
            NamingState::Refused(refusal) => Some(refusal.to_string()),
            NamingState::Attaching(_) | NamingState::Off | NamingState::Closed(_) => None,
        });
        results
    }

    /// Records the exact identity of the process, and makes the symbolizer follow its log or memory.
    pub(super) fn bind(&mut self, process: ProcessId, symbolizer: &mut Symbolizer) {
        if self.bound.is_some() {
            return;
        }
        let same = |jvm: &Jvm| jvm::is_same_process(jvm.start_ticks, jvm.process.tgid, process);
        if self.jvm.as_ref().is_some_and(|jvm| !same(jvm)) {
            return;
        }
        self.bound = Some(process);
        self.name_methods(symbolizer);
        let follows = match &self.names {
            NamingState::Attached(attached) => attached.log.try_clone().is_ok_and(|file| {
                let log = JvmLog {
                    file,
                    clock_offset_ns: attached.clock_offset,
                    consume: attached.source == AgentStart::Late,
                    blobs: attached.blobs.clone(),
                };
                symbolizer.add_agent_log(process, log)
            }),
            NamingState::Opened(opened) => opened.memory.try_clone().is_ok_and(|file| {
                let coarse = opened.inspection.flags.debug_non_safepoints != Some(true);
                let layout = opened.layout.clone();
                symbolizer.add_jvm_memory(process, JvmMemory { file, layout, code: true, coarse })
            }),
            NamingState::Refused(_) | NamingState::Off | NamingState::Closed(_) => {
                symbolizer.mark_without_agent(process);
                true
            }
            NamingState::Attaching(_) => true,
        };
        if !follows {
            self.unread = true;
            self.names = NamingState::Refused(Refusal::OutOfResources("it cannot be followed".into()));
            symbolizer.mark_without_agent(process);
        }
    }

    /// Makes the symbolizer name interpreted methods, unless it names all code from the JVM's memory.
    fn name_methods(&mut self, symbolizer: &mut Symbolizer) {
        let (Some(process), Some((memory, layout))) = (self.bound, &self.memory) else { return };
        if self.names_from_memory() {
            return;
        }
        self.unread |= !memory.try_clone().is_ok_and(|file| {
            let layout = layout.clone();
            symbolizer.add_jvm_memory(process, JvmMemory { file, layout, code: false, coarse: true })
        });
    }

    pub(super) fn id(&self) -> JvmEntryId {
        JvmEntryId { tgid: self.tgid, began: self.began }
    }

    /// How the JVM was kept from running since the last call; the pauses are those up to the last reading.
    pub(super) fn measure(&mut self, hierarchies: &Hierarchies) -> StopTimes {
        StopTimes { throttling: self.throttling(hierarchies), pauses: self.pauses.end_part() }
    }

    /// The pauses since the last reading, which are those of a window; `None` if there are none, if the process is no
    /// JVM, or as in [`Pauses::read`].
    pub(super) fn read_pauses(&mut self, window: u64, processes: &mut Processes) -> Option<WindowPauses> {
        if self.jvm.is_none() && !matches!(self.names, NamingState::Attaching(_)) {
            // A process that is no JVM, whatever it maps: the report does not have it either.
            return None;
        }
        let totals = self.pauses.read(self.tgid, processes)?;
        (totals != PauseTotals::default()).then_some(WindowPauses { window, pid: self.tgid, totals })
    }

    /// How the JVM's cgroup was throttled since the last call; `None` if it had no quota, or the JVM has exited.
    fn throttling(&mut self, hierarchies: &Hierarchies) -> Option<ThrottleTotals> {
        let now = hierarchies.snapshot(&CgroupMembership::of(self.tgid).ok()?);
        let spent = now.since(&self.cpu);
        self.cpu = now;
        let throttling = ThrottleTotals { times: spent.throttled_periods, usec: spent.throttled_usec() };
        spent.was_limited().then_some(throttling)
    }

    /// The JVM's row of the report; `stop_times`: those of all JVMs in this part.
    pub(super) fn report(&self, part: &PartEnd<'_>, stop_times: &StopTimesByJvm) -> Option<JvmReport> {
        let RuntimeSamples { all, managed, rootless } =
            self.bound.and_then(|process| part.samples.get(&process)).copied().unwrap_or_default();
        let jvm = self.jvm.as_ref()?;
        let leaves = self.bound.and_then(|process| part.symbols.java_leaves.get(&process));
        #[allow(clippy::cast_precision_loss, reason = "a share for people")]
        let compiled_before = leaves.filter(|l| l.all > 0).map(|l| l.before_attach as f64 / l.all as f64);
        let inspection = self.inspection.clone().unwrap_or_default();
        let compiled_before = compiled_before.filter(|_| !inspection.flags.debug_records_from_start);
        let undescribed = self.undescribed.as_ref().filter(|why| **why != Refusal::ZeroVm);
        let StopTimes { throttling, pauses } = stop_times.get(&self.id()).copied().unwrap_or_default();
        Some(JvmReport {
            pid: jvm.process.tgid,
            name: inspection.main_or_command_line(&jvm.main),
            version: inspection.release,
            newer_than: inspection.version.and_then(JavaVersion::newer_than),
            names: self.source(),
            no_agent: self.no_agent.as_ref().map(refused),
            frame_pointers: inspection.flags.preserve_frame_pointer,
            // All frames of a Zero VM are native.
            undescribed: undescribed.map(ToString::to_string),
            compiled_before,
            samples: all,
            java_samples: managed,
            rootless_samples: rootless,
            log_bytes: self.log.read_to,
            log_cut: self.log.cut,
            throttling,
            pauses,
        })
    }

    fn source(&self) -> ReportedNameSource {
        let ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        match &self.names {
            NamingState::Attached(attached) => match (attached.source, self.is_late) {
                (AgentStart::AtStart, _) => ReportedNameSource::AgentAtStart,
                (AgentStart::Late, true) => ReportedNameSource::AgentDuringRun { ms },
                (AgentStart::Late, false) => ReportedNameSource::AgentLate { ms },
            },
            NamingState::Opened(_) => ReportedNameSource::Memory { ms },
            NamingState::Refused(refusal) => {
                let JvmRefusal { label, mut hint } = refused(refusal);
                if self.java == JavaNaming::Agent && self.memory.is_some() && refusal.allows_memory_reading()
                {
                    hint.push_str(" --java auto and --java vm read its names out of its memory.");
                }
                ReportedNameSource::Refused { label, hint }
            }
            NamingState::Closed(source) => source.clone(),
            NamingState::Attaching(_) | NamingState::Off => ReportedNameSource::Off,
        }
    }
}

/// A refusal as the report has it.
fn refused(refusal: &Refusal) -> JvmRefusal {
    JvmRefusal { label: refusal.to_string(), hint: refusal.hint().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::hierarchy::Controller;

    #[test]
    fn each_part_has_its_own_throttling_while_it_is_attached_to() {
        let own = std::process::id();
        let of = CgroupMembership::of(own).unwrap();
        let v1 = of.unified.is_none().then_some(Controller::Cpu);
        let path = of.unified.as_ref().or_else(|| of.v1.get("cpu")).unwrap();
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join(path.strip_prefix("/").unwrap());
        std::fs::create_dir_all(&dir).unwrap();
        let stat = |times, usec| {
            let text = format!("nr_throttled {times}\nthrottled_usec {usec}\n");
            std::fs::write(dir.join("cpu.stat"), text).unwrap();
        };
        let limit = |v2: &str, v1: &str| {
            let files = [("cpu.max", v2), ("cpu.cfs_quota_us", v1), ("cpu.cfs_period_us", "100000\n")];
            files.iter().for_each(|(file, text)| std::fs::write(dir.join(file), text).unwrap());
        };
        limit("20000 100000\n", "20000\n");
        let hierarchies = Hierarchies::below(tmp.path(), v1);
        stat(1, 70);
        let names = Err(AttachFailure { refusal: Refusal::Exited, inspection: None });
        let answer = JvmSetupResult { jvm: None, undescribed: None, no_agent: None, names };
        let thread = std::thread::spawn(move || answer);
        let mut entry = JvmEntry::attaching(
            own,
            JavaNaming::Agent,
            thread,
            true,
            Pauses::new(true),
            hierarchies.snapshot(&of),
        );
        stat(3, 100);
        assert_eq!(entry.throttling(&hierarchies), Some(ThrottleTotals { times: 2, usec: 30 }));
        stat(7, 120);
        assert_eq!(entry.throttling(&hierarchies), Some(ThrottleTotals { times: 4, usec: 20 }));
        assert_eq!(entry.throttling(&hierarchies), Some(ThrottleTotals::default()));
        stat(9, 150);
        limit("max 100000\n", "-1\n");
        assert_eq!(
            entry.throttling(&hierarchies),
            Some(ThrottleTotals { times: 2, usec: 30 }),
            "until it was lifted"
        );
        assert_eq!(entry.throttling(&hierarchies), None);
    }
}
