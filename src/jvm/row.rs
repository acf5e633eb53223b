//! A line of `jbpf-prof jvms`.

use std::path::Path;

use super::attach::{JvmSurvey, survey};
use super::discover::Jvm;
use super::inspection::Inspection;
use super::refusal::Refusal;
use super::version::JavaVersion;

/// The symbol source of a JVM in a run without an explicit choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedNameSource {
    /// The agent's log: a run would attach the agent.
    Agent,
    /// The agent with which the JVM was started.
    AgentAtStart,
    /// The JVM's memory, since attaching would be refused.
    Memory,
    /// Neither: the JVM's code gets no names.
    Nothing,
}

/// A JVM as `jbpf-prof jvms` shows it. All text is fit to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JvmRow {
    /// Pid in the profiler's pid namespace.
    pub pid: u32,
    /// Container id, as a guess.
    pub container: Option<String>,
    /// Effective user id, in the profiler's user namespace.
    pub uid: u32,
    /// Version as the JVM writes it; empty if its tables could not be read.
    pub version: String,
    /// The vendor; empty if unknown.
    pub vendor: String,
    /// Main class, module or jar.
    pub main: String,
    /// Compiled code keeps frame pointers; `None` if unknown.
    pub frame_pointers: Option<bool>,
    /// For a JVM newer than the tested ones: the newest feature release that jbpf-prof is tested with.
    pub newer_than: Option<u32>,
    /// Why attaching would be refused, as far as that is known without trying.
    pub refusal: Option<Refusal>,
    /// Where the JVM's names would come from.
    pub names: ExpectedNameSource,
}

impl JvmRow {
    /// Inspects a JVM without attaching.
    #[must_use]
    pub fn of(jvm: &Jvm, binary: &Path) -> JvmRow {
        let unseen = |refusal| JvmSurvey {
            inspection: Inspection::default(),
            refusal: Some(refusal),
            has_agent_at_start: false,
            is_readable: false,
        };
        let JvmSurvey { inspection, refusal, has_agent_at_start, is_readable } =
            survey(jvm, binary).unwrap_or_else(unseen);
        JvmRow {
            pid: jvm.process.tgid,
            container: jvm.container.clone(),
            uid: jvm.uid,
            main: inspection.main_or_command_line(&jvm.main),
            frame_pointers: inspection.flags.preserve_frame_pointer,
            newer_than: inspection.version.and_then(JavaVersion::newer_than),
            version: inspection.release,
            vendor: inspection.vendor,
            names: match &refusal {
                None if has_agent_at_start => ExpectedNameSource::AgentAtStart,
                None => ExpectedNameSource::Agent,
                Some(refusal) if is_readable && refusal.allows_memory_reading() => ExpectedNameSource::Memory,
                Some(_) => ExpectedNameSource::Nothing,
            },
            refusal,
        }
    }
}
