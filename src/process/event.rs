//! Parses one perf side-band record: the kernel's report of processes as they come and go.
//!
//! The layout of the records is that of `include/uapi/linux/perf_event.h` (enum `perf_event_type`, Linux 6.18), for an
//! event opened with `sample_id_all` and `sample_type` [`SAMPLE_TYPE`]. Processes choose the paths and names in the
//! records: any bytes.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::path::bytes_path;
use crate::sample::MonoNs;

/// `PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU`: the fields in the trailer of every record.
pub const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7;

/// Size of `struct perf_event_header`, bytes.
pub const HEADER_SIZE: usize = 8;
const TRAILER_SIZE: usize = 24;

const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;

const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
const PROT_EXEC: u32 = 4;

/// Something that happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// When the event happened, on the host's `CLOCK_MONOTONIC`.
    pub at: MonoNs,
    /// Thread group id in the initial pid namespace; for a fork, that of the new task.
    pub tgid: u32,
    /// Thread id in the initial pid namespace; for a fork, that of the new task.
    pub tid: u32,
    /// What happened, with the fields that only this kind of record has.
    pub kind: EventKind,
}

impl ProcessEvent {
    /// Whether the event is the group leader's. A leader's fork is a new process, any other fork a new thread.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.tgid == self.tid
    }
}

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A task was made: a process if it leads its group, else a thread.
    Fork {
        /// Thread group of the task that made it.
        parent: u32,
    },
    /// A task ended; a process ends with its last task.
    Exit,
    /// A task has a new name.
    Comm {
        /// The name, at most 15 bytes.
        name: Arc<[u8]>,
        /// Whether the task executed another program: all its mappings are gone.
        exec: bool,
    },
    /// Executable memory was mapped, or made executable.
    Mmap(MmapRecord),
    /// This many records had no room in the ring; their content is unknown.
    Lost(u64),
}

/// A mapping of executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmapRecord {
    /// First address of the mapping in the process.
    pub start: u64,
    /// Length of the mapping, bytes.
    pub len: u64,
    /// Offset of the first byte in the file, bytes.
    pub offset: u64,
    /// The file; all zero for anonymous memory.
    pub inode: Inode,
    /// The path as the process itself would name it (relative to its own root), or a name such as `//anon`, `[vdso]`.
    pub path: Arc<Path>,
}

/// An inode as the kernel's mappings name it. The device is that of the super block, and `stat` gives another one on
/// btrfs and overlayfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Inode {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Number of the inode on that device.
    pub ino: u64,
    /// Generation of the inode, which distinguishes inodes with the same number; 0 if unknown.
    pub generation: u64,
}

/// Why a record could not be parsed. Other records of the ring are not affected: the header has the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// The record is shorter than its kind needs, or its length is below that of a header.
    #[error("record is cut")]
    Cut,
    /// A name has no zero at its end.
    #[error("name without end")]
    NoEnd,
    /// The record names its file by build id, which was not asked for.
    #[error("mapping by build id")]
    BuildId,
}

/// Length and kind of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    kind: u32,
    misc: u16,
    /// Whole length including the header, bytes.
    pub size: usize,
}

impl RecordHeader {
    /// Reads `struct perf_event_header`.
    ///
    /// # Errors
    /// [`BadRecord::Cut`] if the bytes are too few or the length is below that of a header.
    pub fn parse(bytes: &[u8]) -> Result<RecordHeader, BadRecord> {
        let mut body = RecordFields(bytes);
        let kind = body.u32()?;
        let misc = body.u16()?;
        let size = usize::from(body.u16()?);
        if size < HEADER_SIZE { Err(BadRecord::Cut) } else { Ok(RecordHeader { kind, misc, size }) }
    }
}

/// Parses one record, header included. `None` for kinds that do not concern processes.
///
/// # Errors
/// [`BadRecord`] if the bytes are not a whole record.
pub fn parse(record: &[u8]) -> Result<Option<ProcessEvent>, BadRecord> {
    let header = RecordHeader::parse(record)?;
    let record = record.get(HEADER_SIZE..header.size).ok_or(BadRecord::Cut)?;
    let body_len = record.len().checked_sub(TRAILER_SIZE).ok_or(BadRecord::Cut)?;
    let (body, trailer) = record.split_at(body_len);
    let mut trailer = RecordFields(trailer);
    let (trailer_tgid, trailer_tid, at) = (trailer.u32()?, trailer.u32()?, MonoNs(trailer.u64()?));
    let mut body = RecordFields(body);
    let (tgid, tid, kind) = match header.kind {
        RECORD_FORK | RECORD_EXIT => {
            let (tgid, parent, tid) = (body.u32()?, body.u32()?, body.u32()?);
            let fork = header.kind == RECORD_FORK;
            (tgid, tid, if fork { EventKind::Fork { parent } } else { EventKind::Exit })
        }
        RECORD_COMM => {
            let (tgid, tid) = (body.u32()?, body.u32()?);
            let exec = header.misc & MISC_COMM_EXEC != 0;
            (tgid, tid, EventKind::Comm { name: body.name()?.into(), exec })
        }
        RECORD_MMAP2 => {
            let (tgid, tid) = (body.u32()?, body.u32()?);
            match mapped(&mut body, header.misc)? {
                Some(mapped) => (tgid, tid, EventKind::Mmap(mapped)),
                None => return Ok(None),
            }
        }
        RECORD_LOST => {
            body.u64()?;
            (trailer_tgid, trailer_tid, EventKind::Lost(body.u64()?))
        }
        _ => return Ok(None),
    };
    Ok(Some(ProcessEvent { at, tgid, tid, kind }))
}

/// Parses an MMAP2 record after pid and tid; `None` if the memory is not executable.
fn mapped(body: &mut RecordFields<'_>, misc: u16) -> Result<Option<MmapRecord>, BadRecord> {
    if misc & MISC_MMAP_BUILD_ID != 0 {
        return Err(BadRecord::BuildId);
    }
    let (start, len, offset) = (body.u64()?, body.u64()?, body.u64()?);
    let mut object = RecordFields(body.take(24)?);
    let protection = body.u32()?;
    body.u32()?;
    let path = Arc::from(bytes_path(body.name()?));
    if protection & PROT_EXEC == 0 {
        return Ok(None);
    }
    let inode =
        Inode { major: object.u32()?, minor: object.u32()?, ino: object.u64()?, generation: object.u64()? };
    Ok(Some(MmapRecord { start, len, offset, inode, path }))
}

/// The part of a record that was not parsed yet.
struct RecordFields<'a>(&'a [u8]);

impl<'a> RecordFields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(BadRecord::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        self.take(N)?.try_into().map_err(|_| BadRecord::Cut)
    }

    fn u16(&mut self) -> Result<u16, BadRecord> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, BadRecord> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, BadRecord> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Bytes up to the first zero.
    fn name(&mut self) -> Result<&'a [u8], BadRecord> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(BadRecord::NoEnd)?;
        self.take(end)
    }
}

/// Whether a mapping with this inode and name belongs to no file.
pub(super) fn is_of_no_file(inode: Inode, path: &Path) -> bool {
    // Shared anonymous memory has an inode, and a name that no path can open.
    let anonymous: [&[u8]; 4] = [b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"anon_inode:"];
    let name = path.as_os_str().as_encoded_bytes();
    inode.ino == 0 || anonymous.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as the kernel writes it.
    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER_SIZE + body.len() + TRAILER_SIZE).unwrap();
        let mut out = [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat();
        out.extend([7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
        out.extend(99u64.to_ne_bytes());
        out.extend(0u64.to_ne_bytes());
        out
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn mmap2(protection: u32, name: &[u8]) -> Vec<u8> {
        let mut body = words(&[7, 8]);
        body.extend([0x1000u64, 0x2000, 0x300].iter().flat_map(|n| n.to_ne_bytes()));
        body.extend(words(&[253, 1]));
        body.extend([42u64, 5].iter().flat_map(|n| n.to_ne_bytes()));
        body.extend(words(&[protection, 2]));
        body.extend(name);
        body
    }

    #[test]
    fn every_kind() {
        let kinds = [
            (record(RECORD_FORK, 0, &words(&[20, 10, 21, 11, 0, 0])), 20, 21, EventKind::Fork { parent: 10 }),
            (record(RECORD_EXIT, 0, &words(&[20, 10, 21, 11, 0, 0])), 20, 21, EventKind::Exit),
            (
                record(RECORD_COMM, MISC_COMM_EXEC, &[&words(&[7, 8])[..], b"sh\0\0\0\0\0\0"].concat()),
                7,
                8,
                EventKind::Comm { name: b"sh"[..].into(), exec: true },
            ),
            (record(RECORD_LOST, 0, &words(&[1, 0, 3, 0])), 7, 8, EventKind::Lost(3)),
        ];
        for (bytes, tgid, tid, kind) in kinds {
            let event = ProcessEvent { at: MonoNs(99), tgid, tid, kind };
            assert_eq!(parse(&bytes), Ok(Some(event)));
        }
        let inode = Inode { major: 253, minor: 1, ino: 42, generation: 5 };
        let path = Arc::from(bytes_path(b"/a\xff\n/b.so"));
        let mapped = MmapRecord { start: 0x1000, len: 0x2000, offset: 0x300, inode, path };
        let event = parse(&record(RECORD_MMAP2, 0, &mmap2(5, b"/a\xff\n/b.so\0\0\0\0\0\0")));
        assert_eq!(event.unwrap().unwrap().kind, EventKind::Mmap(mapped));
    }

    #[test]
    fn what_says_nothing_of_code_is_left_out() {
        assert_eq!(parse(&record(RECORD_MMAP2, 0, &mmap2(1, b"/etc/x\0\0"))), Ok(None));
        assert_eq!(parse(&record(77, 0, &[])), Ok(None));
    }

    #[test]
    fn cut_and_false_records_are_errors() {
        let whole = record(RECORD_MMAP2, 0, &mmap2(5, b"/lib/x\0\0"));
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), Err(BadRecord::Cut), "{len}");
        }
        // The error is the same if the header has the short length.
        for body in 0..mmap2(5, b"").len() {
            let cut = parse(&record(RECORD_MMAP2, 0, &mmap2(5, b"")[..body]));
            assert_eq!(cut, Err(BadRecord::Cut), "{body}");
        }
        assert_eq!(parse(&record(RECORD_MMAP2, 0, &mmap2(5, b"/no/end"))), Err(BadRecord::NoEnd));
        let by_build_id = record(RECORD_MMAP2, MISC_MMAP_BUILD_ID, &mmap2(5, b"/lib/x\0\0"));
        assert_eq!(parse(&by_build_id), Err(BadRecord::BuildId));
        assert_eq!(parse(&[0; 8]), Err(BadRecord::Cut), "of length 0");
    }
}
