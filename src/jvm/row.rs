//! A line of `jbpf-prof jvms`.

use std::path::Path;

use super::attach::inspect;
use super::discover::Jvm;
use super::inspection::{Flags, Inspection};
use super::policy::permitted;
use super::refusal::Refusal;

/// A JVM as people are shown it. All text is fit to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JvmRow {
    /// Pid, as we see it.
    pub pid: u32,
    /// Container id, as a guess.
    pub container: Option<String>,
    /// Effective user id.
    pub uid: u32,
    /// Version as the JVM writes it; empty if its tables could not be read.
    pub version: String,
    /// Who made it; empty if unknown.
    pub vendor: String,
    /// Main class, module or jar.
    pub main: String,
    /// Compiled code keeps frame pointers; `None` if unknown.
    pub frame_pointers: Option<bool>,
    /// Why attaching would be refused, as far as can be told without trying.
    pub refusal: Option<Refusal>,
}

impl JvmRow {
    /// Looks at a JVM without attaching.
    #[must_use]
    pub fn of(jvm: &Jvm, binary: &Path) -> JvmRow {
        match inspect(jvm, binary) {
            Ok(inspection) => JvmRow::from_inspection(jvm, &inspection),
            Err(refusal) => {
                JvmRow { refusal: Some(refusal), ..JvmRow::from_inspection(jvm, &Inspection::default()) }
            }
        }
    }

    fn from_inspection(jvm: &Jvm, inspection: &Inspection) -> JvmRow {
        let Inspection { version, release, vendor, flags } = inspection;
        JvmRow {
            pid: jvm.process.tgid,
            container: jvm.container.clone(),
            uid: jvm.uid,
            version: release.clone(),
            vendor: vendor.clone(),
            main: jvm.main.clone(),
            frame_pointers: flags.preserve_frame_pointer,
            refusal: flags_refuse(*flags).or_else(|| permitted(*version, false).err()),
        }
    }
}

fn flags_refuse(flags: Flags) -> Option<Refusal> {
    if flags.disable_attach_mechanism == Some(true) {
        Some(Refusal::AttachDisabled)
    } else if flags.enable_dynamic_agent_loading == Some(false) {
        Some(Refusal::AgentLoadingDisabled)
    } else {
        None
    }
}
