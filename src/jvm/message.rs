//! What the profiler asks of a helper, and what it hears.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::inspection::Inspection;
use super::refusal::Refusal;
use super::vm::{StubBlobs, VmLayout};
use crate::process::channel::{Channel, ChannelError};
use crate::sample::MonoNs;
use crate::unwind::HotSpot;

/// Longest message, bytes.
const MAX_MESSAGE: usize = 128 << 10;

/// What to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HelperRequest {
    pub(super) tgid: u32,
    pub(super) start_ticks: u64,
    /// When `libjvm.so` was mapped, if that is known.
    pub(super) mapped: Option<MonoNs>,
    /// Where `libjvm.so` begins in its memory.
    pub(super) base: u64,
    /// Its path as the maps have it.
    pub(super) libjvm: Vec<u8>,
    /// Pid of the profiler.
    pub(super) parent: u32,
    /// How long it may take.
    pub(super) limit: Duration,
    pub(super) task: Task,
}

/// What to do with the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    Inspect,
    /// Read what its stacks are walked by, once it has got so far that there are some, and hand out its memory.
    Describe,
    Attach(Order),
    /// Read where its code is described, and by what its stacks are walked, and hand out its memory, readable.
    Open,
    /// Remove what a killed helper may have left: the trigger and the agent's file of this name.
    Clean(String),
}

/// How to attach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) file_name: String,
    pub(super) nonce: [u8; 16],
    pub(super) lease_seconds: u64,
    pub(super) cap: u64,
    pub(super) force: bool,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HelperReply {
    /// What the JVM's tables say, if they were read.
    pub(super) inspection: Option<Inspection>,
    /// Why an attach would be refused, if that was looked at.
    pub(super) foreseen: Option<Refusal>,
    /// Why it went no further.
    pub(super) refusal: Option<Refusal>,
    /// Of an attach that succeeded; the log's descriptor comes beside it.
    pub(super) log: Option<LogFacts>,
    /// Of memory that was opened; its descriptor comes beside it.
    pub(super) layout: Option<VmLayout>,
    /// What its stacks are walked by.
    pub(super) hotspot: Option<HotSpot>,
}

/// Of a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LogFacts {
    pub(super) at_start: bool,
    /// The JVM's `CLOCK_MONOTONIC`, ns.
    pub(super) started: u64,
    /// How far that clock is ahead of the host's, ns.
    pub(super) clock_offset: i64,
    /// Generated code that the log does not tell of.
    pub(super) blobs: StubBlobs,
}

/// Sends one message, with a descriptor if there is one.
pub(super) fn send<T: Serialize>(
    channel: &Channel<impl AsFd>,
    message: &T,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Refusal> {
    Ok(channel.send(message, descriptor.as_slice(), None)?)
}

/// Receives one message and its descriptor; waits until it comes, or until then.
pub(super) fn receive<T: DeserializeOwned>(
    channel: &Channel<impl AsFd>,
    until: Option<Instant>,
) -> Result<(T, Option<OwnedFd>), Refusal> {
    let (message, descriptors) = channel.receive(MAX_MESSAGE, until)?;
    Ok((message, descriptors.into_iter().next()))
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
