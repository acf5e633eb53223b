//! Attaching, in the profiler's own process: what a helper is asked for, and what its reply means.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use jvm_symbols_log::log_file::write_lease;
use rustix::rand::{GetRandomFlags, getrandom};

use super::agent_file::name_for;
use super::allocation_samples::{AllocationSamples, NoAllocationSamples};
use super::attach_options::AttachOptions;
use super::code;
use super::discover::Jvm;
use super::helper_call::call_helper;
use super::inspection::Inspection;
use super::message::{AttachOrder, HelperReply, HelperTask};
use super::refusal::Refusal;
use super::vm::{StubBlobs, VmLayout};
use crate::process::channel::Received;
use crate::sample::MonoNs;
use crate::unwind::HotSpotUnwindInfo;

/// How long reading the tables may take.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long reading the tables of a JVM that is set up during the run may take: it may have started just now, and with
/// little CPU its tables are complete late.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentStart {
    /// The agent was loaded into the running JVM: a replay reports code that was compiled before.
    Late,
    /// The JVM was started with the agent (`-agentpath`).
    AtStart,
}

/// A JVM whose agent writes a log for the profiler.
#[derive(Debug)]
pub struct Attached {
    /// The log, open for reading, and for writing the lease and the consumed offset; it outlives the JVM.
    pub log: File,
    /// Where the log comes from.
    pub source: AgentStart,
    /// How far the JVM's `CLOCK_MONOTONIC`, the clock of the log, is ahead of the host's, nanoseconds.
    pub clock_offset: i64,
    /// When the log was begun, on the host's clock.
    pub started: MonoNs,
    /// Stubs and adapters, if the log does not contain them.
    pub blobs: StubBlobs,
    /// What the JVM's tables say.
    pub inspection: Inspection,
    /// The samples of allocations, if the options asked for them.
    pub allocations: Option<Result<AllocationSamples, NoAllocationSamples>>,
}

impl Attached {
    /// Lets the agent write until `lease_end`. A log from the start has no lease: nothing happens.
    ///
    /// # Errors
    /// As of writing to the log.
    pub fn renew_lease(&self, lease_end: MonoNs) -> io::Result<()> {
        match self.source {
            AgentStart::Late => write_lease(&self.log, lease_end.0.saturating_add_signed(self.clock_offset)),
            AgentStart::AtStart => Ok(()),
        }
    }

    /// Ends the lease: the log's memory is free now; at its next event the agent frees the other memory that it holds.
    ///
    /// # Errors
    /// As of writing to the log.
    pub fn end_lease(&self) -> io::Result<()> {
        match self.source {
            AgentStart::Late => code::end(&self.log),
            AgentStart::AtStart => Ok(()),
        }
    }

    /// Converts a time of the log to the host's clock. Only tests call this.
    #[must_use]
    pub fn host_time(&self, of_log: u64) -> MonoNs {
        MonoNs(of_log.saturating_add_signed(self.clock_offset.saturating_neg()))
    }
}

/// A failed attach, and what it learnt about the JVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachFailure {
    /// Why the attach failed.
    pub refusal: Refusal,
    /// What the JVM's tables say, if they were read.
    pub inspection: Option<Box<Inspection>>,
}

/// Reads version and flags from the JVM's own tables.
///
/// # Errors
/// The [`Refusal`] that kept the helper from reading the tables.
pub fn inspect(jvm: &Jvm, binary: &Path) -> Result<Inspection, Refusal> {
    survey(jvm, binary).map(|survey| survey.inspection)
}

/// What can be known of a JVM without attaching.
#[derive(Debug)]
pub(super) struct JvmSurvey {
    pub(super) inspection: Inspection,
    /// Why an attach would be refused.
    pub(super) refusal: Option<Refusal>,
    /// The JVM was started with the agent.
    pub(super) has_agent_at_start: bool,
    /// The JVM's memory says where its code is described.
    pub(super) is_readable: bool,
}

/// Inspects a JVM without attaching.
pub(super) fn survey(jvm: &Jvm, binary: &Path) -> Result<JvmSurvey, Refusal> {
    let options = AttachOptions::new(binary.to_owned());
    match call_helper(jvm, &options, INSPECT_TIMEOUT, HelperTask::Inspect)?.message {
        HelperReply { refusal: Some(refusal), .. } => Err(refusal),
        HelperReply { inspection: Some(inspection), foreseen, has_agent_at_start, layout, .. } => {
            Ok(JvmSurvey { inspection, refusal: foreseen, has_agent_at_start, is_readable: layout.is_some() })
        }
        _ => Err(Refusal::HelperFailed("an empty answer".into())),
    }
}

/// How to unwind the stacks of a JVM and name its interpreted methods.
#[derive(Debug)]
pub struct JvmDescription {
    /// What the BPF program's unwinder needs: spans of code, code heaps, fields of blocks.
    pub unwind_info: HotSpotUnwindInfo,
    /// `/proc/PID/mem`: bound to this program even if the pid is reused.
    pub memory: File,
    /// Where that memory describes methods.
    pub layout: VmLayout,
}

/// Reads from a JVM's own tables how to unwind its stacks.
///
/// # Errors
/// The [`Refusal`], if the tables cannot be read or do not describe the stacks.
pub fn describe(jvm: &Jvm, options: &AttachOptions) -> Result<JvmDescription, Refusal> {
    let timeout = if jvm.mapped.is_some() { DESCRIBE_TIMEOUT } else { INSPECT_TIMEOUT };
    let Received { message, descriptors } = call_helper(jvm, options, timeout, HelperTask::Describe)?;
    match (message, descriptors.into_iter().next()) {
        (HelperReply { refusal: Some(refusal), .. }, _) => Err(refusal),
        (HelperReply { unwind_info: Some(unwind_info), layout: Some(layout), .. }, Some(memory)) => {
            Ok(JvmDescription { unwind_info, memory: memory.into(), layout })
        }
        (HelperReply { unwind_info: Some(_), .. }, None) => Err(no_descriptor()),
        _ => Err(Refusal::HelperFailed("an empty answer".into())),
    }
}

/// A JVM's open memory, and what its own tables say.
#[derive(Debug)]
pub struct OpenedMemory {
    /// `/proc/PID/mem`: bound to this program even if the pid is reused.
    pub memory: File,
    /// Where that memory describes code.
    pub layout: VmLayout,
    /// The unwind description, if the tables have one.
    pub unwind_info: Option<HotSpotUnwindInfo>,
    /// Version, vendor, main class and flags.
    pub inspection: Inspection,
}

impl OpenedMemory {
    /// The result that [`describe`] would give.
    ///
    /// # Errors
    /// If the stacks cannot be unwound, or there are too many open files.
    pub fn described(&self) -> Result<JvmDescription, Refusal> {
        let unwind_info = self.unwind_info.clone().ok_or(Refusal::LayoutUnknown)?;
        let memory = self.memory.try_clone().map_err(|e| Refusal::of_own("its memory", &e))?;
        Ok(JvmDescription { unwind_info, memory, layout: self.layout.clone() })
    }
}

/// Opens the memory of a JVM. The JVM gets no request and is not changed.
///
/// # Errors
/// The [`Refusal`], with the inspection if the tables were read.
pub fn open(jvm: &Jvm, options: &AttachOptions) -> Result<OpenedMemory, AttachFailure> {
    let unread = |refusal| AttachFailure { refusal, inspection: None };
    let Received { message, descriptors } =
        call_helper(jvm, options, options.timeout, HelperTask::Open).map_err(unread)?;
    match (message, descriptors.into_iter().next()) {
        (HelperReply { refusal: Some(refusal), inspection, .. }, _) => {
            Err(AttachFailure { refusal, inspection: inspection.map(Box::new) })
        }
        (
            HelperReply { inspection: Some(inspection), layout: Some(layout), unwind_info, .. },
            Some(memory),
        ) => Ok(OpenedMemory { memory: memory.into(), layout, unwind_info, inspection }),
        (HelperReply { layout: Some(_), .. }, None) => Err(unread(no_descriptor())),
        _ => Err(unread(Refusal::HelperFailed("an empty answer".into()))),
    }
}

/// Loads the agent into a JVM, or finds it loaded. No file stays in the JVM's file system.
///
/// # Errors
/// The [`Refusal`], with the inspection if the tables were read; the JVM is as before.
pub fn attach(jvm: &Jvm, options: &AttachOptions) -> Result<Attached, AttachFailure> {
    let unread = |refusal| AttachFailure { refusal, inspection: None };
    let mut random = [0; 20];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|e| unread(Refusal::HelperFailed(format!("random numbers: {e}"))))?;
    let (number, nonce) = random.split_at(4);
    let number = number.iter().fold(0_u32, |sum, &b| (sum << 8) | u32::from(b));
    let order = AttachOrder {
        file_name: name_for(std::process::id(), number),
        nonce: nonce.try_into().map_err(|_| unread(Refusal::HelperFailed("nonce".into())))?,
        lease_seconds: options.lease.as_secs().max(1),
        cap: options.log_cap,
        force: options.force,
        alloc_interval: options.alloc_interval,
    };
    let Received { message, descriptors } =
        call_helper(jvm, options, options.timeout, HelperTask::Attach(order)).map_err(unread)?;
    let HelperReply { inspection, refusal, log: facts, .. } = message;
    let failed = |refusal| AttachFailure { refusal, inspection: inspection.clone().map(Box::new) };
    if let Some(refusal) = refusal {
        return Err(failed(refusal));
    }
    let (Some(facts), Some(inspection)) = (facts, inspection.clone()) else {
        return Err(failed(Refusal::HelperFailed("an empty answer".into())));
    };
    let mut descriptors = descriptors.into_iter();
    let log = descriptors.next().ok_or_else(|| failed(no_descriptor()))?;
    let agent = descriptors.next();
    let allocations = facts.allocations.map(|granted| {
        granted.and_then(|()| agent.map(AllocationSamples::of).ok_or(NoAllocationSamples::Unopened))
    });
    Ok(Attached {
        log: File::from(log),
        source: if facts.at_start { AgentStart::AtStart } else { AgentStart::Late },
        clock_offset: facts.clock_offset,
        started: MonoNs(facts.started.saturating_add_signed(facts.clock_offset.saturating_neg())),
        blobs: facts.blobs,
        inspection,
        allocations,
    })
}

/// A helper sends a descriptor of everything it opened: a missing one means that this process had no room.
fn no_descriptor() -> Refusal {
    Refusal::of_own("a descriptor from the helper", &io::Error::from_raw_os_error(libc::EMFILE))
}
