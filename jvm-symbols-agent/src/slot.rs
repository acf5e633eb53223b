//! The log of one reader: its file, its lease, its end.
//!
//! A slot goes Free → Building → Live → Dying → Closing → Free. A counter holds the number of callbacks inside. The
//! callback that finds the lease over makes the slot Dying, and the last callback that leaves closes the file. No
//! callback waits.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use jvm_symbols_log::encode;
use jvm_symbols_log::header::{Counters, HEADER_LEN, HeaderFields, LogKind, MAGIC, Replay, at, flag};
use jvm_symbols_log::{Out, RecordHeader, RecordType, record};

use crate::dict::Dict;
use crate::sys::{self, Fd};

const FREE: u32 = 0;
const BUILDING: u32 = 1;
const LIVE: u32 = 2;
const DYING: u32 = 3;
const CLOSING: u32 = 4;

/// A place for a log.
#[derive(Debug)]
pub struct LogSlot {
    state: AtomicU32,
    inside: AtomicU32,
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    kind: AtomicU32,
    tail: AtomicU64,
    consumed: AtomicU64,
    cap: AtomicU64,
    limit: AtomicU64,
    dropped: AtomicU64,
    flags: AtomicU32,
    events: AtomicU32,
    replay_begun: AtomicU64,
    replay_done: AtomicU64,
    /// The log offset of each method.
    pub dict: Dict,
}

impl LogSlot {
    /// A slot without a log.
    #[must_use]
    pub const fn new() -> LogSlot {
        LogSlot {
            state: AtomicU32::new(FREE),
            inside: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            kind: AtomicU32::new(0),
            tail: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            cap: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            events: AtomicU32::new(0),
            replay_begun: AtomicU64::new(0),
            replay_done: AtomicU64::new(0),
            dict: Dict::new(),
        }
    }

    /// Creates a log here, if the slot is free.
    pub fn create(&self, fields: &HeaderFields<'_>) -> bool {
        let free = self.state.compare_exchange(FREE, BUILDING, Ordering::AcqRel, Ordering::Acquire);
        if free.is_err() {
            return false;
        }
        let made = self.build(fields);
        self.state.store(if made { LIVE } else { FREE }, Ordering::Release);
        made
    }

    fn build(&self, fields: &HeaderFields<'_>) -> bool {
        let Ok(fd) = sys::sealed_memfd(c"jvm-symbols") else { return false };
        let mut page = [0; HEADER_LEN as usize];
        fields.fill(&mut page);
        let written = sys::pwrite_all(fd, &page, 0).and_then(|()| sys::identity(fd));
        let Ok((device, inode)) = written else {
            sys::close(fd);
            return false;
        };
        for (field, value) in [
            (&self.device, device),
            (&self.inode, inode),
            (&self.tail, HEADER_LEN),
            (&self.consumed, HEADER_LEN),
            (&self.cap, fields.cap),
            (&self.limit, sys::file_size_limit()),
            (&self.dropped, 0),
            (&self.replay_begun, 0),
            (&self.replay_done, 0),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        self.kind.store(fields.kind as u32, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.events.store(0, Ordering::Relaxed);
        self.fd.store(fd.0, Ordering::Relaxed);
        self.publish(fd);
        if sys::pwrite_all(fd, &MAGIC, at::MAGIC).is_err() {
            sys::close(fd);
            return false;
        }
        true
    }

    /// Enters a live log to write. If the lease is over, ends the log and returns `None`.
    pub fn enter(&self, now: u64) -> Option<Entered<'_>> {
        // A slot that is not in use costs one load.
        if !matches!(self.state.load(Ordering::SeqCst), LIVE | DYING) {
            return None;
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        let entered = Entered { slot: self }; // dropping it closes a dying log
        (self.state.load(Ordering::SeqCst) == LIVE && entered.alive(now)).then_some(entered)
    }

    fn fd(&self) -> Fd {
        Fd(self.fd.load(Ordering::Relaxed))
    }

    fn publish(&self, fd: Fd) {
        let counters = Counters {
            written: self.tail.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            replay: Replay {
                begun: self.replay_begun.load(Ordering::Relaxed),
                done: self.replay_done.load(Ordering::Relaxed),
            },
        };
        let _ = sys::pwrite_all(fd, &counters.to_bytes(), at::WRITTEN);
    }

    /// Leaves the log; the last callback that leaves a dying log closes it.
    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) != 1 || self.state.load(Ordering::SeqCst) != DYING {
            return;
        }
        // Callbacks that enter from here on see that the log is not live and touch nothing.
        if self.state.compare_exchange(DYING, CLOSING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        if self.inside.load(Ordering::SeqCst) != 0 {
            // Another callback has entered to read the state and will leave: it, or the next event, closes the log.
            self.state.store(DYING, Ordering::SeqCst);
            return;
        }
        self.close();
    }

    fn close(&self) {
        let fd = self.fd();
        if self.owns(fd) {
            self.flags.fetch_or(flag::CLOSED, Ordering::Relaxed);
            self.publish(fd);
            sys::punch(fd, HEADER_LEN, i64::MAX as u64 - HEADER_LEN);
            sys::close(fd);
        }
        self.fd.store(-1, Ordering::Relaxed);
        // SAFETY: the state is Closing and no callback was inside: callbacks that enter now leave without using the
        // table.
        unsafe { self.dict.clear() };
        self.state.store(FREE, Ordering::SeqCst);
    }

    /// Whether the descriptor is still our memfd. A program that closes unknown descriptors may have reused its number.
    fn owns(&self, fd: Fd) -> bool {
        let ours = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        sys::identity(fd) == Ok(ours)
    }
}

impl Default for LogSlot {
    fn default() -> LogSlot {
        LogSlot::new()
    }
}

/// Permission to write into a live log; drop leaves the log.
#[derive(Debug)]
pub struct Entered<'s> {
    slot: &'s LogSlot,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.slot.leave();
    }
}

impl Entered<'_> {
    /// The log offset of each method.
    #[must_use]
    pub fn dict(&self) -> &Dict {
        &self.slot.dict
    }

    /// Checks the lease. A log of `-agentpath` has none and lives as long as its JVM.
    fn alive(&self, now: u64) -> bool {
        let slot = self.slot;
        let fd = slot.fd();
        if !slot.owns(fd) {
            slot.end();
            return false;
        }
        if slot.flags.load(Ordering::Relaxed) & flag::BROKEN != 0 {
            slot.end();
            return false;
        }
        if slot.kind.load(Ordering::Relaxed) == LogKind::Start as u32 {
            return true;
        }
        let mut fields = [0u8; 16];
        if sys::pread(fd, &mut fields, at::LEASE_UNTIL) != Ok(fields.len()) {
            slot.end();
            return false;
        }
        let (lease, consumed) = two_words(&fields);
        if now >= lease {
            slot.end();
            return false;
        }
        slot.consumed.fetch_max(consumed, Ordering::Relaxed);
        true
    }

    /// Appends a record whose body has two pieces. Returns its offset, or `None` if it was dropped (and counted).
    pub fn append(&self, kind: RecordType, first: &[u8], second: &[u8]) -> Option<u64> {
        let slot = self.slot;
        let body = first.len().checked_add(second.len()).and_then(|n| u32::try_from(n).ok());
        let offset =
            body.filter(|&n| n <= record::MAX_BODY).and_then(|n| slot.reserve(record::record_len(n)));
        let (Some(body), Some(offset)) = (body, offset) else {
            slot.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let fd = slot.fd();
        let written = sys::pwrite_both(fd, first, second, offset.wrapping_add(RecordHeader::LEN)).is_ok();
        // The word comes last: until then readers see no record.
        let word = RecordHeader::new(if written { kind } else { RecordType::Skip }, body);
        let closed = sys::pwrite_all(fd, &word.to_bytes(), offset).is_ok();
        if !written || !closed {
            slot.flags.fetch_or(flag::BROKEN, Ordering::Relaxed);
            slot.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(offset)
    }

    /// Counts an event that could not be logged.
    pub fn drop_event(&self) {
        self.slot.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the counters to the header.
    pub fn publish(&self) {
        self.slot.publish(self.slot.fd());
    }

    /// Notes that the replay begins.
    pub fn replay_begins(&self, now: u64) {
        self.slot.replay_begun.store(now, Ordering::Relaxed);
        self.publish();
    }

    /// Notes that the replay has ended. `ok`: it was complete.
    pub fn replay_ends(&self, now: u64, sequence: u64, ok: bool) {
        let mut body = [0; 24];
        let mut out = Out::new(&mut body);
        encode::replay_end(&mut out, now, sequence);
        let _ = self.append(RecordType::ReplayEnd, out.written(), &[]);
        if !ok {
            self.slot.flags.fetch_or(flag::REPLAY_FAILED, Ordering::Relaxed);
        }
        self.slot.replay_done.store(now, Ordering::Relaxed);
        self.publish();
    }

    /// Notes which events are enabled.
    pub fn set_events(&self, events: u32) {
        self.slot.events.store(events, Ordering::Relaxed);
        self.publish();
    }
}

impl LogSlot {
    fn end(&self) {
        let _ = self.state.compare_exchange(LIVE, DYING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Reserves `len` bytes at the end, within the cap and the file size limits.
    fn reserve(&self, len: u64) -> Option<u64> {
        let end = |tail: u64| {
            let end = tail.checked_add(len)?;
            let unconsumed = end.saturating_sub(self.consumed.load(Ordering::Relaxed));
            let fits = unconsumed <= self.cap.load(Ordering::Relaxed)
                && end <= self.limit.load(Ordering::Relaxed)
                && end <= i64::MAX as u64;
            fits.then_some(end)
        };
        let reserved = self.tail.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
        if reserved.is_err() {
            self.flags.fetch_or(flag::FULL, Ordering::Relaxed);
        }
        reserved.ok()
    }
}

fn two_words(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}
