//! The record of a process context (OTEP 4719) in the memory of a process: a header in a mapping with a known name, and a
//! payload anywhere. The process may write anything there, at any time.

use std::ops::Range;

use crate::process::memory::{LiveMemory, NamedMapping};

/// Names of the mapping, without what may follow: of shared memory with a name, of private memory with a name, and of
/// a file in memory where the kernel does not name mappings.
const NAMES: [&[u8]; 3] = [b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"];
/// Mappings with such a name that are looked at.
const MAX_MAPPINGS: usize = 8;
/// Readings of a record that the process changes meanwhile.
const ATTEMPTS: usize = 3;
/// Bytes of a payload that are read: some dozen attributes need 1 or 2 KiB.
const MAX_PAYLOAD: u32 = 16 << 10;

const SIGNATURE: &[u8] = b"OTEL_CTX";
const VERSION: u32 = 2;
const HEADER: u64 = 32;

/// The place of a record whose signature and version are known, and its time of publication in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublishedAt {
    pub(super) address: u64,
    /// Each publication of a process has a different value.
    pub(super) time: u64,
}

/// A record as it was at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContextRecord {
    pub(super) at: PublishedAt,
    /// The payload; `None` if it was read before.
    pub(super) payload: Option<Vec<u8>>,
}

/// Finds the record of a process and reads it, unless it is the one that is `known`.
pub(super) fn read_record(memory: &LiveMemory, known: Option<PublishedAt>) -> Option<ContextRecord> {
    let bytes = |range: &Range<u64>| memory.bytes(range);
    if let Some(record) = known.and_then(|known| read(known.address, Some(known), bytes)) {
        return Some(record);
    }
    let is_named = |mapping: &NamedMapping| NAMES.iter().any(|name| mapping.name.starts_with(name));
    let mut mappings = memory.mappings().filter(is_named).take(MAX_MAPPINGS);
    mappings.find_map(|mapping| read(mapping.range.start, known, bytes))
}

struct ContextHeader {
    time: u64,
    payload: Range<u64>,
}

impl ContextHeader {
    fn parse(bytes: &[u8]) -> Option<ContextHeader> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..8)? != SIGNATURE || half(8)? != VERSION {
            return None;
        }
        let size = half(12)?;
        let (time, start) = (word(16)?, word(24)?);
        let end = start.checked_add(u64::from(size))?;
        (size <= MAX_PAYLOAD).then_some(ContextHeader { time, payload: start..end })
    }
}

/// Reads the record at an address. `bytes` reads a range of the memory, as far as that is possible.
fn read(
    address: u64,
    known: Option<PublishedAt>,
    bytes: impl Fn(&Range<u64>) -> Vec<u8>,
) -> Option<ContextRecord> {
    let header = || ContextHeader::parse(&bytes(&(address..address.checked_add(HEADER)?)));
    for _ in 0..ATTEMPTS {
        let ContextHeader { time, payload: range } = header()?;
        let at = PublishedAt { address, time };
        if time == 0 {
            // The process is changing the record.
            continue;
        }
        if known == Some(at) {
            return Some(ContextRecord { at, payload: None });
        }
        let payload = bytes(&range);
        if header()?.time == time {
            let is_whole = payload.len() as u64 == range.end - range.start;
            return is_whole.then_some(ContextRecord { at, payload: Some(payload) });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const AT: u64 = 0x7000_0000;

    fn record(version: u32, size: u32, time: u64, payload: u64) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(version.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        bytes.extend(payload.to_ne_bytes());
        bytes.extend(b"payload");
        bytes
    }

    /// Reads `memory`, which lies at `AT`.
    fn within(memory: &[u8], range: &Range<u64>) -> Vec<u8> {
        let place = |address: u64| usize::try_from(address.saturating_sub(AT)).unwrap().min(memory.len());
        memory[place(range.start)..place(range.end)].to_vec()
    }

    fn payload_of(memory: &[u8]) -> Option<Vec<u8>> {
        read(AT, None, |range| within(memory, range))?.payload
    }

    #[test]
    fn a_record_is_read_once() {
        let memory = record(2, 7, 99, AT + HEADER);
        let at = PublishedAt { address: AT, time: 99 };
        let new = read(AT, None, |range| within(&memory, range));
        assert_eq!(new, Some(ContextRecord { at, payload: Some(b"payload".to_vec()) }));
        let again = read(AT, Some(at), |range| within(&memory, range));
        assert_eq!(again, Some(ContextRecord { at, payload: None }));
    }

    #[test]
    fn a_record_that_is_no_context_is_left_alone() {
        for (what, memory) in [
            ("another version", record(1, 7, 99, AT + HEADER)),
            ("it is being changed", record(2, 7, 0, AT + HEADER)),
            ("too large", record(2, u32::MAX, 99, AT + HEADER)),
            ("beyond the memory", record(2, 8, 99, AT + HEADER)),
            ("no such address", record(2, 7, 99, u64::MAX - 3)),
            ("another signature", record(2, 7, 99, AT + HEADER).split_off(1)),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(payload_of(&memory), None, "{what}");
        }
    }

    #[test]
    fn a_record_that_changes_meanwhile_is_read_again() {
        let reads = Cell::new(0);
        let changing = |changes: u64| {
            reads.set(0);
            let read = read(AT, None, |range: &Range<u64>| {
                reads.set(reads.get() + 1);
                within(&record(2, 7, 1 + reads.get().min(changes), AT + HEADER), range)
            });
            read.map(|record| record.at.time)
        };
        assert_eq!(changing(3), Some(4), "the second attempt finds the same time before and after");
        assert_eq!((changing(u64::MAX), reads.get()), (None, 3 * ATTEMPTS as u64));
    }
}
