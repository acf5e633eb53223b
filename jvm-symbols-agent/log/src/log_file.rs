//! The profiler's view of a log: a descriptor of the JVM's memfd, which the profiler reads only by `pread`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::header::{self, Counters, LogKind, Replay, at};

/// Reads bytes at offsets. Readers never map the file, because its contents may change while they read.
pub trait ReadAt {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// When `pread` fails or is interrupted.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|o| self.get(o..)).unwrap_or_default();
        let len = from.len().min(buffer.len());
        buffer[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.as_slice().read_at(buffer, offset)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
}

/// Reads until the buffer is full or the file ends, also after interruptions.
///
/// # Errors
/// When `pread` fails for another reason than an interruption.
pub(crate) fn fill(source: &impl ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read_at(&mut buffer[got..], offset.saturating_add(got as u64)) {
            Ok(0) => break,
            Ok(n) => got += n.min(buffer.len() - got),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// Why a file is not a readable log.
#[derive(Debug)]
pub enum BadHeader {
    /// `pread` of the header page failed.
    Io(io::Error),
    /// The magic is missing: the file is not a log, or the agent still writes the header.
    NotALog,
    /// Another version of the format.
    Version(u32),
    /// A field is out of its range.
    Malformed,
}

impl std::fmt::Display for BadHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadHeader::Io(e) => write!(f, "the symbol log cannot be read: {e}"),
            BadHeader::NotALog => f.write_str("this is no symbol log"),
            BadHeader::Version(v) => {
                write!(f, "the symbol log has version {v}, this profiler reads {}", header::VERSION)
            }
            BadHeader::Malformed => f.write_str("the symbol log's header makes no sense"),
        }
    }
}

impl std::error::Error for BadHeader {}

impl From<io::Error> for BadHeader {
    fn from(error: io::Error) -> BadHeader {
        BadHeader::Io(error)
    }
}

/// The contents of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the log was created.
    pub kind: LogKind,
    /// The JVM's pid in its own pid namespace.
    pub pid: u32,
    /// When the log was created, ns on the JVM's `CLOCK_MONOTONIC`.
    pub started: u64,
    /// The nonce of the options.
    pub nonce: [u8; 16],
    /// Most bytes that may be written and not consumed.
    pub cap: u64,
    /// When the agent first enabled the load event, ns.
    pub enabled: u64,
    /// Until when the agent writes, ns.
    pub lease_until: u64,
    /// The offset below which the profiler needs nothing any more.
    pub consumed: u64,
    /// What the agent wrote last: end of the records, drops, flags, events, replay.
    pub counters: Counters,
    /// The agent's path as in the options: any bytes.
    pub path: Vec<u8>,
}

impl Header {
    /// Reads the header page.
    ///
    /// # Errors
    /// [`BadHeader`] if `pread` fails, or the page is short, lacks the magic, has another version or a field out of
    /// range.
    pub fn read(source: &impl ReadAt) -> Result<Header, BadHeader> {
        let mut page = [0u8; header::HEADER_LEN as usize];
        if fill(source, &mut page, 0)? < page.len() || page[..8] != header::MAGIC {
            return Err(BadHeader::NotALog);
        }
        let version = u32_at(&page, at::VERSION);
        if version != header::VERSION {
            return Err(BadHeader::Version(version));
        }
        let kind = match u32_at(&page, at::KIND) {
            1 => LogKind::Start,
            2 => LogKind::Attach,
            _ => return Err(BadHeader::Malformed),
        };
        let path = page[at::PATH as usize..]
            .get(..u32_at(&page, at::PATH_LEN) as usize)
            .ok_or(BadHeader::Malformed)?
            .to_vec();
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&page[at::NONCE as usize..][..16]);
        Ok(Header {
            kind,
            pid: u32_at(&page, at::PID),
            started: u64_at(&page, at::STARTED),
            nonce,
            cap: u64_at(&page, at::CAP),
            enabled: u64_at(&page, at::ENABLED),
            lease_until: u64_at(&page, at::LEASE_UNTIL),
            consumed: u64_at(&page, at::CONSUMED),
            counters: Counters {
                written: u64_at(&page, at::WRITTEN),
                dropped: u64_at(&page, at::DROPPED),
                flags: u32_at(&page, at::FLAGS),
                events: u32_at(&page, at::EVENTS),
                replay: Replay {
                    begun: u64_at(&page, at::REPLAY_BEGUN),
                    done: u64_at(&page, at::REPLAY_DONE),
                },
            },
            path,
        })
    }

    /// Whether one of [`header::flag`] is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.counters.flags & flag != 0
    }
}

/// Renews the lease: callbacks write until `until`, ns on the JVM's `CLOCK_MONOTONIC`. 0 ends the lease.
///
/// # Errors
/// When `pwrite` fails, for example because the descriptor is open for reading only.
pub fn write_lease(log: &File, until: u64) -> io::Result<()> {
    log.write_all_at(&until.to_le_bytes(), at::LEASE_UNTIL)
}

/// Notes that the profiler needs nothing below `offset` any more. The caller then punches the pages.
///
/// # Errors
/// When `pwrite` fails, for example because the descriptor is open for reading only.
pub fn write_consumed(log: &File, offset: u64) -> io::Result<()> {
    log.write_all_at(&offset.to_le_bytes(), at::CONSUMED)
}

fn u32_at(page: &[u8], offset: u64) -> u32 {
    u64_at(page, offset) as u32
}

fn u64_at(page: &[u8], offset: u64) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&page[offset as usize..][..8]);
    u64::from_le_bytes(word)
}
