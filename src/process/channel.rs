//! Messages between the profiler and its child processes: length-prefixed postcard over a socket, descriptors beside
//! them.
//!
//! Both sides bound what they receive. The profiler gives each answer a deadline; the child waits without one.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors beside one message, at most.
pub const MAX_DESCRIPTORS: usize = 64;

/// Why an exchange failed. After any of these errors the child is given up.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side has ended.
    #[error("the process ended without an answer")]
    Closed,
    /// No answer came before the deadline.
    #[error("no answer in time")]
    TimedOut,
    /// The message has more descriptors than allowed.
    #[error("{0} descriptors are too many for a message")]
    TooManyDescriptors(usize),
    /// The message has more bytes than allowed.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// The message cannot be decoded.
    #[error("a message that cannot be read: {0}")]
    Undecodable(#[from] postcard::Error),
    /// Another error of the socket.
    #[error("socket: {0}")]
    Socket(Errno),
}

/// A message with the descriptors that came beside it.
#[derive(Debug)]
pub struct Received<T> {
    /// The decoded message.
    pub message: T,
    /// Its descriptors, at most [`MAX_DESCRIPTORS`], in the sender's order.
    pub descriptors: Vec<OwnedFd>,
}

/// One end of a socket pair.
#[derive(Debug)]
pub struct Channel<S>(pub(crate) S);

impl<S: AsFd> Channel<S> {
    /// Sends `message` with `descriptors`. `deadline` bounds the wait for a reader that is stuck; `None`
    /// waits for ever.
    ///
    /// # Errors
    /// Why the message was not sent.
    pub fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let body = postcard::to_stdvec(message)?;
        let length = u32::try_from(body.len()).map_err(|_| ChannelError::TooLong(body.len()))?;
        let header = length.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ChannelError::TooManyDescriptors(descriptors.len()));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // Header and body go in one call, because each call wakes the other side.
        let sent = self.retry_when_ready(PollFlags::OUT, deadline, || {
            sendmsg(&self.0, &[IoSlice::new(&header), IoSlice::new(&body)], &mut control, flags)
        })?;
        self.send_all(header.get(sent..).unwrap_or_default(), deadline)?;
        self.send_all(&body[sent.saturating_sub(header.len())..], deadline)
    }

    /// Receives a message of at most `max_bytes` bytes and its descriptors.
    ///
    /// # Errors
    /// Why no message was received.
    pub fn receive<T: DeserializeOwned>(
        &self,
        max_bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Received<T>, ChannelError> {
        let mut header = [0_u8; 4];
        let mut descriptors = Vec::new();
        let received = self.receive_header(&mut header, &mut descriptors, deadline)?;
        self.receive_all(&mut header[received..], deadline)?;
        let length = u32::from_le_bytes(header) as usize;
        if length > max_bytes {
            return Err(ChannelError::TooLong(length));
        }
        let mut body = vec![0; length];
        self.receive_all(&mut body, deadline)?;
        Ok(Received { message: postcard::from_bytes(&body)?, descriptors })
    }

    fn receive_header(
        &self,
        header: &mut [u8; 4],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Option<Instant>,
    ) -> Result<usize, ChannelError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = self.retry_when_ready(PollFlags::IN, deadline, || {
            recvmsg(&self.0, &mut [IoSliceMut::new(header)], &mut control, flags).map(|m| m.bytes)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received == 0 { Err(ChannelError::Closed) } else { Ok(received) }
    }

    fn send_all(&self, mut bytes: &[u8], deadline: Option<Instant>) -> Result<(), ChannelError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !bytes.is_empty() {
            let sent = self.retry_when_ready(PollFlags::OUT, deadline, || send(&self.0, bytes, flags))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    fn receive_all(&self, bytes: &mut [u8], deadline: Option<Instant>) -> Result<(), ChannelError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let received = self.retry_when_ready(PollFlags::IN, deadline, || {
                recv(&self.0, &mut bytes[filled..], RecvFlags::DONTWAIT).map(|(_, received)| received)
            })?;
            if received == 0 {
                return Err(ChannelError::Closed);
            }
            filled += received;
        }
        Ok(())
    }

    /// Tries `transfer` until it succeeds, and waits for the socket whenever it is not ready.
    fn retry_when_ready(
        &self,
        flags: PollFlags,
        deadline: Option<Instant>,
        mut transfer: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<usize, ChannelError> {
        loop {
            match transfer() {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => continue,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ChannelError::Closed),
                Err(Errno::AGAIN) => {}
                Err(other) => return Err(ChannelError::Socket(other)),
            }
            let timeout = match deadline {
                None => None,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if left > Duration::ZERO => Timespec::try_from(left).ok(),
                    _ => return Err(ChannelError::TimedOut),
                },
            };
            match poll(&mut [PollFd::new(&self.0, flags)], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(other) => return Err(ChannelError::Socket(other)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const MAX_BYTES: usize = 1 << 20;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (ours, theirs) = (Channel(ours), Channel(theirs));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        ours.send(&("hello", 7_u64), &[file.as_fd()], None).unwrap();
        ours.send(&vec![1_u8; 100_000], &[], Some(Instant::now())).unwrap();
        let Received { message: (text, number), mut descriptors } =
            theirs.receive::<(String, u64)>(MAX_BYTES, None).unwrap();
        assert_eq!((text.as_str(), number, descriptors.len()), ("hello", 7, 1));
        let mut copy = std::fs::File::from(descriptors.remove(0));
        copy.rewind().unwrap();
        let mut read = String::new();
        copy.read_to_string(&mut read).unwrap();
        assert_eq!(read, "inside");
        let Received { message: bytes, descriptors } = theirs.receive::<Vec<u8>>(MAX_BYTES, None).unwrap();
        assert_eq!((bytes.len(), descriptors.len()), (100_000, 0));
    }

    #[test]
    fn silence_garbage_and_length_are_errors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut raw, theirs) = (ours, Channel(theirs));
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(theirs.receive::<u64>(MAX_BYTES, soon), Err(ChannelError::TimedOut)));
        raw.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(theirs.receive::<u64>(MAX_BYTES, None), Err(ChannelError::TooLong(_))));
        raw.write_all(&[3, 0, 0, 0, 0xff, 0xff, 0xff]).unwrap();
        assert!(matches!(theirs.receive::<u64>(MAX_BYTES, None), Err(ChannelError::Undecodable(_))));
        raw.write_all(&[9, 0]).unwrap();
        drop(raw);
        assert!(matches!(theirs.receive::<u64>(MAX_BYTES, None), Err(ChannelError::Closed)));
    }
}
