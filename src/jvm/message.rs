//! What the profiler asks of a helper, and what it hears. One message is one packet.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::code_cache::Blobs;
use super::inspection::Inspection;
use super::refusal::Refusal;
use super::vm::Layout;

/// Longest message, bytes.
const MAX_MESSAGE: usize = 128 << 10;

/// What to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) tgid: u32,
    pub(super) start_ticks: u64,
    /// Where `libjvm.so` begins in its memory.
    pub(super) base: u64,
    /// Its path as the maps have it.
    pub(super) libjvm: String,
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
    Attach(Order),
    /// Read where its code is described, and hand out its memory, readable.
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
pub(super) struct Answer {
    /// What the JVM's tables say, if they were read.
    pub(super) inspection: Option<Inspection>,
    /// Why it went no further.
    pub(super) refusal: Option<Refusal>,
    /// Of an attach that succeeded; the log's descriptor comes beside it.
    pub(super) log: Option<LogFacts>,
    /// Of memory that was opened; its descriptor comes beside it.
    pub(super) layout: Option<Layout>,
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
    pub(super) blobs: Blobs,
}

/// Sends one message, with a descriptor if there is one.
pub(super) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Refusal> {
    let failed = |why: String| Refusal::HelperFailed(why);
    let bytes = postcard::to_stdvec(message).map_err(|e| failed(e.to_string()))?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !rights.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(failed("no room for a descriptor".into()));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
        .map_err(|e| failed(e.to_string()))?;
    Ok(())
}

/// Receives one message and its descriptor; waits until it comes.
pub(super) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<(T, Option<OwnedFd>), Refusal> {
    let failed = |why: &str| Refusal::HelperFailed(why.into());
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|e| failed(&e.to_string()))?
        .bytes;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    if got == 0 {
        return Err(failed("it ended without an answer"));
    }
    let message =
        postcard::from_bytes(bytes.get(..got).unwrap_or_default()).map_err(|e| failed(&e.to_string()))?;
    Ok((message, descriptor))
}
