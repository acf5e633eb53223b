//! One JVM of a session: where its names come from, and which of the processes that ticked it is.

use std::collections::HashMap;
use std::fs::File;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::inquiry::{AttachOutcome, DescribedJvm, Got, NoAgent};
use crate::jvm::vm::VmLayout;
use crate::jvm::{
    self, AttachOptions, Attached, Failed, Inspection, JavaVersion, Jvm, LogSource, Opened, Refusal,
};
use crate::plan::JavaNaming;
use crate::process::cgroup::Membership;
use crate::process::hierarchies::Hierarchies;
use crate::process::throttling::CpuSnapshot;
use crate::profile::report::{JvmRefusal, JvmReport, NameSource, ThrottleTotals};
use crate::sample::ProcessId;
use crate::symbolize::{JvmLog, JvmMemory, LogStats, Symbolizer};
use crate::world::{PartEnd, RuntimeTicks};

/// What tells entries apart: the process, and when it was met. What it becomes by an exec may be a JVM too.
pub(super) type EntryId = (u32, Instant);

/// How JVMs' cgroups were throttled in a part: of those that have a quota.
pub(super) type Throttled = HashMap<EntryId, ThrottleTotals>;

/// How it stands with the names of a JVM.
enum Names {
    /// Being attached to or opened, in a thread of its own.
    Attaching(JoinHandle<AttachOutcome>),
    Attached(Box<Attached>),
    /// Read out of its memory.
    Opened(Box<Opened>),
    Refused(Refusal),
    /// Nobody asked.
    Off,
    /// It has ended, and its last stacks are named: what the report tells of it.
    Told(NameSource),
}

/// How long after it was met a JVM that has just begun is described again. It makes stubs until its compilers run, which
/// takes a tenth of a second, or seconds with little CPU.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// One of a session's JVMs.
pub(super) struct Entry {
    tgid: u32,
    /// Where its names were to come from.
    java: JavaNaming,
    /// None until it was looked at.
    jvm: Option<Jvm>,
    names: Names,
    /// What the methods that its interpreter runs are named by, from when it is known.
    memory: Option<(File, VmLayout)>,
    inspection: Option<Inspection>,
    /// Why it has no agent, where its memory was opened instead.
    no_agent: Option<Refusal>,
    /// Why its stacks are walked by frame pointers alone.
    undescribed: Option<Refusal>,
    /// The process that the ticks saw, from its first stack on.
    pub(super) bound: Option<ProcessId>,
    /// It came during the run.
    late: bool,
    /// How often it was described again.
    again: usize,
    began: Instant,
    took: Duration,
    /// How far its log was read.
    pub(super) log: LogStats,
    /// There was no room to read its log or its memory.
    unread: bool,
    cpu: CpuSnapshot,
}

impl Entry {
    /// One that this thread attaches to; `cpu`: how its cgroup was throttled until now.
    pub(super) fn attaching(
        tgid: u32,
        java: JavaNaming,
        thread: JoinHandle<AttachOutcome>,
        late: bool,
        cpu: CpuSnapshot,
    ) -> Entry {
        Entry {
            tgid,
            java,
            jvm: None,
            names: Names::Attaching(thread),
            memory: None,
            inspection: None,
            no_agent: None,
            undescribed: None,
            bound: None,
            late,
            again: 0,
            began: Instant::now(),
            took: Duration::ZERO,
            log: LogStats::default(),
            unread: false,
            cpu,
        }
    }

    /// Keeps what the report tells of it, and closes the rest: of one that has ended and whose stacks are named.
    pub(super) fn close(&mut self, symbolizer: &mut Symbolizer) {
        self.names = Names::Told(self.source());
        self.memory = None;
        if let Some(process) = self.bound {
            symbolizer.close_jvm(process);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.names, Names::Told(_))
    }

    /// Whether there was no room to read its log or its memory.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Whether it is not yet known if there will be names.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.names, Names::Attaching(_))
    }

    /// The agent's, if it has one.
    pub(super) fn attached(&self) -> Option<&Attached> {
        if let Names::Attached(attached) = &self.names { Some(attached) } else { None }
    }

    /// Whether its code is named out of its memory.
    pub(super) fn is_opened(&self) -> bool {
        matches!(self.names, Names::Opened(_))
    }

    /// It is known what its stacks are walked by, and with that what the methods are named by that its interpreter runs.
    pub(super) fn take_description(&mut self, memory: File, layout: VmLayout, symbolizer: &mut Symbolizer) {
        self.undescribed = None;
        if self.memory.is_none() {
            self.memory = Some((memory, layout));
            self.name_methods(symbolizer);
        }
    }

    /// Asks one that came during the run once more what its stacks are walked by, when it is time.
    pub(super) fn describe_again(&mut self, options: &AttachOptions, described: &Sender<DescribedJvm>) {
        let is_due = AGAIN.get(self.again).is_some_and(|after| self.began.elapsed() >= *after);
        if !self.late || !is_due || self.is_open() || self.is_closed() {
            return;
        }
        let Some(jvm) = self.jvm.clone() else { return };
        self.again += 1;
        let (options, described) = (options.clone(), described.clone());
        let describe = move || {
            if let Ok(it) = jvm::describe(&jvm, &options) {
                // Nobody listens any more when the session is over.
                let _ = described.send((jvm.process.tgid, it));
            }
        };
        // What is known of it already remains.
        let _ = std::thread::Builder::new().name("describe".into()).spawn(describe);
    }

    /// Takes the result of an attach.
    fn take_result(&mut self, result: Result<Got, Failed>) {
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
            Ok(Got::Nothing) => self.names = Names::Off,
            Err(Failed { refusal, inspection }) => {
                self.inspection = inspection.map(|inspection| *inspection);
                self.names = Names::Refused(refusal);
            }
        }
    }

    fn log_names(&self) {
        let (pid, name) = self.jvm.as_ref().map_or((0, "?"), |jvm| (jvm.process.tgid, jvm.main.as_str()));
        match &self.names {
            Names::Attached(attached) => {
                log::info!("JVM {pid} ({name}): {:?} agent, in {:.0?}", attached.source, self.took);
            }
            Names::Opened(_) => log::info!("JVM {pid} ({name}): opened, in {:.0?}", self.took),
            Names::Refused(why) => {
                let detail = why.detail().map(|words| format!(" ({words})")).unwrap_or_default();
                log::info!("JVM {pid} ({name}): {why}{detail}, in {:.0?}", self.took);
            }
            Names::Attaching(_) | Names::Off | Names::Told(_) => {}
        }
    }

    /// Takes the result of the attach under way, if it is there, and names it; `wait`: when it is there. One that refused
    /// the agent and is read instead has two.
    pub(super) fn join(&mut self, wait: bool, symbolizer: &mut Symbolizer) -> Vec<String> {
        let mut results = Vec::new();
        let Names::Attaching(thread) = &self.names else { return results };
        if !wait && !thread.is_finished() {
            return results;
        }
        let Names::Attaching(thread) = std::mem::replace(&mut self.names, Names::Off) else { return results };
        // A thread that panics ends the profiler: a release is built so.
        if let Ok(AttachOutcome { jvm, undescribed, no_agent, names }) = thread.join() {
            if let (Some(jvm), Some(NoAgent { why, .. })) = (&jvm, &no_agent) {
                log::info!("JVM {} ({}): {why}; reading its memory instead", jvm.process.tgid, jvm.main);
            }
            results.extend(no_agent.as_ref().filter(|it| it.asked).map(|it| it.why.to_string()));
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
            Names::Attached(_) => Some("agent".to_owned()),
            Names::Opened(_) => Some("memory".to_owned()),
            Names::Refused(refusal) => Some(refusal.to_string()),
            Names::Attaching(_) | Names::Off | Names::Told(_) => None,
        });
        results
    }

    /// Learns the exact identity of the process, and has its log followed.
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
            Names::Attached(attached) => attached.log.try_clone().is_ok_and(|file| {
                let log = JvmLog {
                    file,
                    clock_offset_ns: attached.clock_offset,
                    consume: attached.source == LogSource::Late,
                    blobs: attached.blobs.clone(),
                };
                symbolizer.follow_jvm(process, log)
            }),
            Names::Opened(opened) => opened.memory.try_clone().is_ok_and(|file| {
                let coarse = opened.inspection.flags.debug_non_safepoints != Some(true);
                let layout = opened.layout.clone();
                symbolizer.watch_jvm(process, JvmMemory { file, layout, code: true, coarse })
            }),
            Names::Refused(_) | Names::Off | Names::Told(_) => {
                symbolizer.note_jvm(process);
                true
            }
            Names::Attaching(_) => true,
        };
        if !follows {
            self.unread = true;
            self.names = Names::Refused(Refusal::OutOfResources("it cannot be followed".into()));
            symbolizer.note_jvm(process);
        }
    }

    /// Has the methods named that its interpreter runs, unless all of its code is named out of its memory.
    fn name_methods(&mut self, symbolizer: &mut Symbolizer) {
        let (Some(process), Some((memory, layout))) = (self.bound, &self.memory) else { return };
        if self.is_opened() {
            return;
        }
        self.unread |= !memory.try_clone().is_ok_and(|file| {
            let layout = layout.clone();
            symbolizer.watch_jvm(process, JvmMemory { file, layout, code: false, coarse: true })
        });
    }

    pub(super) fn id(&self) -> EntryId {
        (self.tgid, self.began)
    }

    /// How its cgroup was throttled since it was measured the last time; none if it had no quota, or has ended.
    pub(super) fn measure(&mut self, hierarchies: &Hierarchies) -> Option<ThrottleTotals> {
        let now = hierarchies.snapshot(&Membership::of(self.tgid).ok()?);
        let spent = now.since(&self.cpu);
        self.cpu = now;
        let throttling = ThrottleTotals { times: spent.throttled_periods, usec: spent.throttled_usec() };
        spent.was_limited().then_some(throttling)
    }

    /// Its row of the report; `throttled`: how all were in this part.
    pub(super) fn report(&self, part: &PartEnd<'_>, throttled: &Throttled) -> Option<JvmReport> {
        let RuntimeTicks { all, managed, rootless } =
            self.bound.and_then(|process| part.ticks.get(&process)).copied().unwrap_or_default();
        let jvm = self.jvm.as_ref()?;
        let leaves = self.bound.and_then(|process| part.symbols.java_leaves.get(&process));
        #[allow(clippy::cast_precision_loss)]
        let compiled_before = leaves.filter(|l| l.all > 0).map(|l| l.before_attach as f64 / l.all as f64);
        let inspection = self.inspection.clone().unwrap_or_default();
        let undescribed = self.undescribed.as_ref().filter(|why| **why != Refusal::ZeroVm);
        Some(JvmReport {
            pid: jvm.process.tgid,
            name: inspection.main_or(&jvm.main),
            version: inspection.release,
            newer_than: inspection.version.and_then(JavaVersion::newer_than),
            names: self.source(),
            no_agent: self.no_agent.as_ref().map(refused),
            frame_pointers: inspection.flags.preserve_frame_pointer,
            // All frames of a Zero VM are native.
            undescribed: undescribed.map(ToString::to_string),
            compiled_before,
            ticks: all,
            java_ticks: managed,
            rootless_ticks: rootless,
            log_bytes: self.log.read_to,
            log_cut: self.log.cut,
            throttling: throttled.get(&self.id()).copied(),
        })
    }

    fn source(&self) -> NameSource {
        let ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        match &self.names {
            Names::Attached(attached) => match (attached.source, self.late) {
                (LogSource::AtStart, _) => NameSource::AgentAtStart,
                (LogSource::Late, true) => NameSource::AgentDuringRun { ms },
                (LogSource::Late, false) => NameSource::AgentLate { ms },
            },
            Names::Opened(_) => NameSource::Memory { ms },
            Names::Refused(refusal) => {
                let JvmRefusal { label, mut hint } = refused(refusal);
                if self.java == JavaNaming::Agent && self.memory.is_some() && refusal.leaves_memory() {
                    hint.push_str(" --java auto and --java vm read its names out of its memory.");
                }
                NameSource::Refused { label, hint }
            }
            Names::Told(source) => source.clone(),
            Names::Attaching(_) | Names::Off => NameSource::Off,
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
        let of = Membership::of(own).unwrap();
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
        let names = Err(Failed { refusal: Refusal::Exited, inspection: None });
        let answer = AttachOutcome { jvm: None, undescribed: None, no_agent: None, names };
        let thread = std::thread::spawn(move || answer);
        let mut entry = Entry::attaching(own, JavaNaming::Agent, thread, true, hierarchies.snapshot(&of));
        stat(3, 100);
        assert_eq!(entry.measure(&hierarchies), Some(ThrottleTotals { times: 2, usec: 30 }));
        stat(7, 120);
        assert_eq!(entry.measure(&hierarchies), Some(ThrottleTotals { times: 4, usec: 20 }));
        assert_eq!(entry.measure(&hierarchies), Some(ThrottleTotals::default()));
        stat(9, 150);
        limit("max 100000\n", "-1\n");
        assert_eq!(
            entry.measure(&hierarchies),
            Some(ThrottleTotals { times: 2, usec: 30 }),
            "until it was lifted"
        );
        assert_eq!(entry.measure(&hierarchies), None);
    }
}
