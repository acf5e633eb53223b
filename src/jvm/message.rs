//! The messages between the profiler and a helper.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::allocation_samples::NoAllocationSamples;
use super::inspection::Inspection;
use super::refusal::Refusal;
use super::vm::{StubBlobs, VmLayout};
use crate::process::channel::{Channel, ChannelError, Received};
use crate::sample::MonoNs;
use crate::unwind::HotSpotUnwindInfo;

/// Longest message that either side receives, bytes.
const MAX_MESSAGE: usize = 128 << 10;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HelperRequest {
    pub(super) tgid: u32,
    pub(super) start_ticks: u64,
    /// When `libjvm.so` was mapped, if that is known.
    pub(super) mapped: Option<MonoNs>,
    /// Where `libjvm.so` begins in the process's memory.
    pub(super) base: u64,
    /// The path of `libjvm.so` as the maps have it.
    pub(super) libjvm: Vec<u8>,
    /// Pid of the profiler.
    pub(super) parent: u32,
    /// How long the helper may take.
    pub(super) timeout: Duration,
    pub(super) task: HelperTask,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HelperTask {
    Inspect,
    /// Read how to unwind the JVM's stacks, as soon as its code heaps exist, and send the descriptor of its memory.
    Describe,
    Attach(AttachOrder),
    /// Read where the JVM describes its code and how to unwind its stacks, and send the descriptor of its memory.
    Open,
    /// Remove what a killed helper may have left: the trigger and the agent's file of this name.
    Clean(String),
}

/// Parameters of an attach: the agent's file and options, and whether builds with known crashes are allowed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AttachOrder {
    pub(super) file_name: String,
    pub(super) nonce: [u8; 16],
    pub(super) lease_seconds: u64,
    pub(super) cap: u64,
    pub(super) force: bool,
    /// Mean number of bytes between two samples of allocations that the JVM chooses; `None`: it is not asked for any.
    pub(super) alloc_interval: Option<u64>,
}

/// The result of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HelperReply {
    /// What the JVM's tables say, if they were read.
    pub(super) inspection: Option<Inspection>,
    /// Why an attach would be refused, if the task checked that.
    pub(super) foreseen: Option<Refusal>,
    /// Whether the JVM was started with the agent, if the task checked that.
    pub(super) has_agent_at_start: bool,
    /// Why the helper stopped early.
    pub(super) refusal: Option<Refusal>,
    /// Of a successful attach; the log's descriptor comes beside it, and behind that the descriptor of the agent's file if the
    /// agent samples allocations.
    pub(super) log: Option<LogFacts>,
    /// Of opened memory; the memory's descriptor comes beside it.
    pub(super) layout: Option<VmLayout>,
    /// How to unwind the JVM's stacks.
    pub(super) unwind_info: Option<HotSpotUnwindInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LogFacts {
    pub(super) at_start: bool,
    /// The JVM's `CLOCK_MONOTONIC`, ns.
    pub(super) started: u64,
    /// How far that clock is ahead of the host's, ns.
    pub(super) clock_offset: i64,
    /// Stubs and adapters that the log does not contain.
    pub(super) blobs: StubBlobs,
    /// Whether the agent samples allocations, if it was asked.
    pub(super) allocations: Option<Result<(), NoAllocationSamples>>,
}

/// Sends one message with its descriptors.
pub(super) fn send<T: Serialize>(
    channel: &Channel<impl AsFd>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Refusal> {
    Ok(channel.send(message, descriptors, None)?)
}

/// Receives one message and its descriptors; waits at most until `deadline`.
pub(super) fn receive<T: DeserializeOwned>(
    channel: &Channel<impl AsFd>,
    deadline: Option<Instant>,
) -> Result<Received<T>, Refusal> {
    Ok(channel.receive(MAX_MESSAGE, deadline)?)
}

impl From<ChannelError> for Refusal {
    fn from(error: ChannelError) -> Refusal {
        match error {
            ChannelError::TimedOut => Refusal::TimedOut,
            ChannelError::Socket(errno) => Refusal::of_own("socket", &errno.into()),
            other => Refusal::HelperFailed(other.to_string()),
        }
    }
}
