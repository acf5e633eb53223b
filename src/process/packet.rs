//! Messages between us and our children of one question at a time: one packet each, descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors beside one message, at most.
pub const MAX_DESCRIPTORS: usize = 64;

/// Why a message did not get through.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The other side is gone.
    #[error("it ended without an answer")]
    Gone,
    /// It makes no sense.
    #[error(transparent)]
    Garbled(#[from] postcard::Error),
    /// More than [`MAX_DESCRIPTORS`], or only a part of the message was taken.
    #[error("no room for a message")]
    TooLong,
    /// What the kernel says.
    #[error(transparent)]
    Socket(#[from] Errno),
}

/// A socket for packets; the other end is for a child.
///
/// # Errors
/// When there is no descriptor left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Starts this binary as a child that talks over its standard input: what it does goes by its hidden first argument. It
/// has no environment, and nothing open that it was not given. The terminal's Ctrl-C, which goes to all of a process group,
/// is for us: children that it ended could not finish what we still want of them.
///
/// # Errors
/// When no process can be made.
pub fn start(binary: &Path, argument: &str, socket: OwnedFd) -> io::Result<Child> {
    Command::new(binary)
        .arg(argument)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Kills a child and waits for its end, no longer than `limit`: given back if it hangs in the kernel.
#[must_use]
pub fn end(mut child: Child, limit: Duration) -> Option<Child> {
    let _ = child.kill();
    let until = Instant::now() + limit;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return None,
            Ok(None) => thread::sleep(Duration::from_millis(1)),
        }
    }
    Some(child)
}

/// Sends one message with its descriptors.
///
/// # Errors
/// Why it did not get through.
pub fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), PacketError> {
    let bytes = postcard::to_stdvec(message)?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(PacketError::TooLong);
    }
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(PacketError::TooLong) }
}

/// Receives one message of at most `most` bytes and its descriptors; waits until it comes.
///
/// # Errors
/// Why there is none.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    most: usize,
) -> Result<(T, Vec<OwnedFd>), PacketError> {
    let mut bytes = vec![0; most];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let body = bytes.get(..got).filter(|body| !body.is_empty()).ok_or(PacketError::Gone)?;
    Ok((postcard::from_bytes(body)?, descriptors))
}

/// Whether there is something to receive, within `limit`: a message, or the other side's end.
pub fn is_readable(socket: impl AsFd, limit: Duration) -> bool {
    first_readable(&[socket.as_fd()], limit).is_some()
}

/// The first of these, by their order, in which there is something to receive within `limit`.
pub fn first_readable(sockets: &[BorrowedFd<'_>], limit: Duration) -> Option<usize> {
    let until = Instant::now() + limit;
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|&socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => return polled.iter().position(|socket| !socket.revents().is_empty()),
        }
    }
}
