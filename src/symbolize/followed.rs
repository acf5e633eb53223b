//! The sources of a JVM's names, its agent's log or its memory, as a worker gets them.

use std::fs::File;

use super::changes::CodeChanges;
use super::message::{Changed, LogReading, LogStats, MemoryReading, WorkerRequest};
use crate::jvm::code;
use crate::jvm::vm::{StubBlobs, VmLayout};
use crate::process::timed_calls::Tenant;
use crate::sample::{MonoNs, ProcessId};

/// Workers that reading one JVM's log or memory may cost before the source is left alone for a while (backoff).
const MAX_LOSSES: u32 = 2;
/// The first backoff, ns. Each further loss doubles it, six times at most. After twice the longest backoff, losses are
/// forgotten. A host that swaps for some seconds must not cost a JVM its names for the whole run.
const FIRST_BACKOFF_NS: u64 = 60_000_000_000;
const MAX_DOUBLINGS: u32 = 6;

/// How often the memory of a JVM that does not run is checked, ns, to the window. Answers about its code when it runs
/// again, or has ended, rely on the previous check.
const CHECK_INTERVAL_NS: u64 = 4_500_000_000;

/// The log of a JVM's agent, and how to read it.
#[derive(Debug)]
pub struct JvmLog {
    /// Open for reading and, if `consume` is set, for writing.
    pub file: File,
    /// How far the JVM's `CLOCK_MONOTONIC` is ahead of the host's, nanoseconds.
    pub clock_offset_ns: i64,
    /// Give the part of the log that was read back to the kernel; only for a log without other readers.
    pub consume: bool,
    /// Generated code that the log does not contain.
    pub blobs: StubBlobs,
}

/// The memory of a JVM, and how to read it.
#[derive(Debug)]
pub struct JvmMemory {
    /// `/proc/PID/mem`, open for reading.
    pub file: File,
    /// Addresses and offsets of the JVM's structures.
    pub layout: VmLayout,
    /// Compiled code is named from memory, too.
    pub code: bool,
    /// The compiled code has debug records at calls and safepoints only.
    pub coarse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JvmData {
    Log,
    Memory,
}

/// A JVM, and the data of it that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FollowedKey {
    pub(super) process: ProcessId,
    pub(super) data: JvmData,
}

impl FollowedKey {
    pub(super) fn log(process: ProcessId) -> FollowedKey {
        FollowedKey { process, data: JvmData::Log }
    }

    pub(super) fn memory(process: ProcessId) -> FollowedKey {
        FollowedKey { process, data: JvmData::Memory }
    }
}

#[derive(Debug)]
pub(super) enum FollowedSource {
    Log {
        log: JvmLog,
        /// The part of the log before this offset was given back to the kernel.
        released: u64,
    },
    Memory(Box<JvmMemory>),
}

/// The pause after workers that were lost over a log or a memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerBackoff {
    number: u32,
    last: MonoNs,
}

impl WorkerBackoff {
    fn note(&mut self, now: MonoNs) {
        let forgotten = now.0 > self.last.0.saturating_add(FIRST_BACKOFF_NS << (MAX_DOUBLINGS + 1));
        *self =
            WorkerBackoff { number: if forgotten { 1 } else { self.number.saturating_add(1) }, last: now };
    }

    /// Whether the backoff after these losses has not ended yet.
    fn is_backing_off(&self, now: MonoNs) -> bool {
        let beyond = self.number.checked_sub(MAX_LOSSES);
        beyond.is_some_and(|n| now.0 < self.last.0.saturating_add(FIRST_BACKOFF_NS << n.min(MAX_DOUBLINGS)))
    }
}

/// A followed log or memory, and how far it is read.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) number: u64,
    pub(super) source: FollowedSource,
    pub(super) tenant: Tenant,
    /// Generation of the worker that has this source.
    pub(super) generation: u64,
    /// Time of the last reading.
    pub(super) read: MonoNs,
    pub(super) stats: LogStats,
    pub(super) changes: CodeChanges,
    backoff: WorkerBackoff,
    /// The names took too much memory, and the source was dropped for good.
    dropped: bool,
}

impl Followed {
    /// A source of `tenant` that is not read yet.
    pub(super) fn new(number: u64, source: FollowedSource, tenant: Tenant) -> Followed {
        Followed {
            number,
            source,
            tenant,
            generation: 0,
            read: MonoNs::default(),
            stats: LogStats::default(),
            changes: CodeChanges::default(),
            backoff: WorkerBackoff::default(),
            dropped: false,
        }
    }

    /// Gives the part of the log that was read back to the kernel, and notifies the agent. The worker cannot: it may
    /// write no file.
    pub(super) fn release(&mut self) {
        if let FollowedSource::Log { log, released } = &mut self.source
            && log.consume
            && self.stats.read_to > *released
        {
            // Pages that cannot be given back stay. They only cost the JVM memory.
            let _ = code::release(&log.file, self.stats.read_to);
            *released = self.stats.read_to;
        }
    }

    pub(super) fn file(&self) -> &File {
        match &self.source {
            FollowedSource::Log { log, .. } => &log.file,
            FollowedSource::Memory(memory) => &memory.file,
        }
    }

    /// The request to read new data. `given`: the worker has this source already; otherwise it gets it with the
    /// request.
    pub(super) fn reading(&self, given: bool, raw: bool) -> WorkerRequest {
        let jvm = self.number;
        match &self.source {
            FollowedSource::Log { log: JvmLog { clock_offset_ns, blobs, .. }, .. } => {
                let follow = || LogReading { clock_offset_ns: *clock_offset_ns, raw, blobs: blobs.clone() };
                WorkerRequest::ReadLog { jvm, follow: (!given).then(follow) }
            }
            FollowedSource::Memory(memory) => {
                let JvmMemory { layout, coarse, .. } = &**memory;
                let watch = || Box::new(MemoryReading { layout: layout.clone(), coarse: *coarse, raw });
                WorkerRequest::ReadMemory { jvm, watch: (!given).then(watch) }
            }
        }
    }

    /// Counts a worker that was lost over this source.
    pub(super) fn note_loss(&mut self, now: MonoNs) {
        self.backoff.note(now);
    }

    /// Drops everything known of this source for good: a log that was given back cannot be read again by any worker.
    pub(super) fn drop_for_good(&mut self) {
        self.dropped = true;
        self.stats = LogStats { memory: 0, cut: true, given_up: true, ..self.stats };
        self.changes.note(&Changed::Everywhere);
    }

    /// Whether there may be something to read. `ran`: the JVM ran since the last reading.
    pub(super) fn is_due(&self, ran: bool, now: MonoNs) -> bool {
        match &self.source {
            FollowedSource::Log { .. } => true,
            // Without an earlier lookup in the memory, no answers depend on a check of it.
            FollowedSource::Memory(memory) => {
                (memory.code || self.generation > 0)
                    && (ran || now.0 >= self.read.0.saturating_add(CHECK_INTERVAL_NS))
            }
        }
    }

    /// Whether this source names compiled code.
    pub(super) fn names_code(&self) -> bool {
        match &self.source {
            FollowedSource::Log { .. } => true,
            FollowedSource::Memory(memory) => memory.code,
        }
    }

    /// Whether this source has cost too many workers to be given to another now, or too much memory.
    pub(super) fn is_given_up(&self, now: MonoNs) -> bool {
        self.dropped || self.backoff.is_backing_off(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jvm::vm::made;

    fn memory(code: bool, generation: u64) -> Followed {
        let file = File::open("/dev/null").unwrap();
        let memory = JvmMemory { file, layout: made::layout(), code, coarse: false };
        let new = Followed::new(1, FollowedSource::Memory(Box::new(memory)), Tenant::unknown());
        Followed { generation, read: MonoNs(100), ..new }
    }

    fn log() -> Followed {
        let file = File::open("/dev/null").unwrap();
        let log = JvmLog { file, clock_offset_ns: 0, consume: true, blobs: StubBlobs::default() };
        Followed::new(1, FollowedSource::Log { log, released: 0 }, Tenant::unknown())
    }

    #[test]
    fn logs_and_memory_are_given_up_after_two_losses() {
        for mut followed in [log(), memory(true, 1)] {
            for given_up in [false, true] {
                followed.note_loss(MonoNs(FIRST_BACKOFF_NS));
                assert_eq!(followed.is_given_up(MonoNs(FIRST_BACKOFF_NS)), given_up);
            }
            assert!(!followed.is_given_up(MonoNs(2 * FIRST_BACKOFF_NS)));
        }
    }

    #[test]
    fn what_took_too_much_memory_is_given_up_for_good() {
        let mut log = log();
        log.stats.memory = 1 << 30;
        log.drop_for_good();
        assert!(
            log.is_given_up(MonoNs(u64::MAX)) && log.stats.cut && log.stats.given_up && log.stats.memory == 0
        );
    }

    #[test]
    fn losses_back_off_exponentially_up_to_a_limit() {
        let mut backoff = WorkerBackoff::default();
        let mut now = FIRST_BACKOFF_NS;
        backoff.note(MonoNs(now));
        assert!(!backoff.is_backing_off(MonoNs(now)), "once is no habit");
        for backoffs in [1, 2, 4, 8, 16, 32, 64, 64] {
            backoff.note(MonoNs(now));
            assert!(backoff.is_backing_off(MonoNs(now + backoffs * FIRST_BACKOFF_NS - 1)), "{backoffs}");
            now += backoffs * FIRST_BACKOFF_NS + 1;
            assert!(!backoff.is_backing_off(MonoNs(now)), "{backoffs}");
        }
        now += 64 * FIRST_BACKOFF_NS;
        backoff.note(MonoNs(now));
        assert!(!backoff.is_backing_off(MonoNs(now)), "what was so long ago is forgotten");
    }

    #[test]
    fn memory_is_looked_at_when_its_jvm_ran_and_now_and_then() {
        for (code, generation, looked_at) in
            [(true, 1, true), (true, 0, true), (false, 1, true), (false, 0, false)]
        {
            let memory = memory(code, generation);
            assert!(!memory.is_due(false, MonoNs(100 + CHECK_INTERVAL_NS - 1)));
            assert_eq!(memory.is_due(true, MonoNs(101)), looked_at);
            assert_eq!(memory.is_due(false, MonoNs(100 + CHECK_INTERVAL_NS)), looked_at, "it may have ended");
        }
    }
}
