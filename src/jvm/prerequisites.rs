//! Conditions for loading the agent into a JVM, and which refusals can be predicted without attaching.

use std::os::fd::OwnedFd;

use jvm_symbols_log::header::LogKind;

use super::agent_file::usable_tmp;
use super::deadline::Deadline;
use super::inspection::Inspection;
use super::listen::{ListenerBehaviour, check_listener};
use super::log_file::logs_of;
use super::policy::permitted;
use super::refusal::Refusal;
use super::target::AttachTarget;

/// A JVM that may be asked to load the agent.
#[derive(Debug)]
pub(super) struct AttachPreconditions {
    pub(super) tmp: OwnedFd,
    /// The agent may enable the event of stubs.
    pub(super) stubs: bool,
}

impl AttachPreconditions {
    /// Checks everything that is known without contacting the JVM; `force` permits builds that may crash.
    pub(super) fn check(
        target: &AttachTarget,
        inspection: &Inspection,
        force: bool,
    ) -> Result<AttachPreconditions, Refusal> {
        let flags = inspection.flags;
        if flags.disable_attach_mechanism == Some(true) {
            return Err(Refusal::AttachDisabled);
        }
        if flags.enable_dynamic_agent_loading == Some(false) {
            return Err(Refusal::AgentLoadingDisabled);
        }
        let stubs = permitted(inspection.version, force)?.stubs;
        if target.is_stopped()? {
            return Err(Refusal::Stopped);
        }
        if let Some(threads) = &inspection.threads {
            threads.check(target)?;
        }
        Ok(AttachPreconditions { tmp: usable_tmp(target)?, stubs })
    }
}

/// Whether the JVM was started with the agent (`-agentpath`).
pub(super) fn has_agent_at_start(target: &AttachTarget) -> Result<bool, Refusal> {
    Ok(logs_of(target)?.iter().any(|log| log.header.kind == LogKind::Start))
}

/// Predicts why an attach would be refused. The JVM is not asked to listen; a listening JVM gets no request.
pub(super) fn predict_refusal(
    target: &AttachTarget,
    parent: u32,
    inspection: &Inspection,
    deadline: Deadline,
) -> Result<(), Refusal> {
    if inspection.is_zero {
        return Err(Refusal::ZeroVm);
    }
    if has_agent_at_start(target)? {
        return Ok(());
    }
    let AttachPreconditions { tmp, .. } = AttachPreconditions::check(target, inspection, false)?;
    check_listener(target, &tmp, parent, ListenerBehaviour::of(inspection), deadline)
}
