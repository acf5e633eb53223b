//! What names the code of a JVM: its agent's log or its memory, as a worker is given it.

use std::fs::File;

use super::changes::Changes;
use super::message::{Changed, Follow, LogStats, Watch, WorkerRequest};
use crate::jvm::code;
use crate::jvm::vm::{StubBlobs, VmLayout};
use crate::process::patience::Tenant;
use crate::sample::{MonoNs, ProcessId};

/// How often reading one JVM's log or memory may cost the worker its life before that is left alone for a while.
const MOST_LOSSES: u32 = 2;
/// That while, ns: twice as long after each further loss, six times at most. After twice the longest losses are forgotten.
/// A host that swaps for some seconds must not cost a JVM its names for as long as we are on.
const REST: u64 = 60_000_000_000;
const MOST_DOUBLED: u32 = 6;

/// So often the memory of a JVM is looked at that does not run, ns, to the window: what is said of its code when it runs
/// again, or has ended, goes by the look before.
const LOOK: u64 = 4_500_000_000;

/// The log of a JVM's agent, and what is needed to read it.
#[derive(Debug)]
pub struct JvmLog {
    /// Open for reading and (to consume) writing.
    pub file: File,
    /// What the JVM's `CLOCK_MONOTONIC` shows more than the host's, nanoseconds.
    pub clock_offset_ns: i64,
    /// What was read is given back to the kernel: only for a log that nobody else reads.
    pub consume: bool,
    /// Generated code that the log does not tell of.
    pub blobs: StubBlobs,
}

/// The memory of a JVM, and what is needed to read it.
#[derive(Debug)]
pub struct JvmMemory {
    /// `/proc/PID/mem`, open for reading.
    pub file: File,
    /// Where things are in it.
    pub layout: VmLayout,
    /// Compiled code is named out of it, too.
    pub code: bool,
    /// That code has debug records at calls and safepoints only.
    pub coarse: bool,
}

/// What of a JVM is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JvmData {
    Log,
    Memory,
}

/// What of which JVM.
pub(super) type FollowedKey = (ProcessId, JvmData);

/// Where names of a JVM come from.
#[derive(Debug)]
pub(super) enum FollowedSource {
    Log {
        log: JvmLog,
        /// What lies before this was given back to the kernel.
        released: u64,
    },
    Memory(Box<JvmMemory>),
}

/// Workers that were lost over a log or a memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    number: u32,
    last: MonoNs,
}

impl Losses {
    fn note(&mut self, now: MonoNs) {
        let forgotten = now.0 > self.last.0.saturating_add(REST << (MOST_DOUBLED + 1));
        *self = Losses { number: if forgotten { 1 } else { self.number.saturating_add(1) }, last: now };
    }

    /// Whether they are too many for another just now.
    fn are_too_many(&self, now: MonoNs) -> bool {
        let beyond = self.number.checked_sub(MOST_LOSSES);
        beyond.is_some_and(|n| now.0 < self.last.0.saturating_add(REST << n.min(MOST_DOUBLED)))
    }
}

/// A log or a memory, and how far it is read.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) number: u64,
    pub(super) source: FollowedSource,
    /// Whose it is.
    pub(super) tenant: Tenant,
    /// The worker that has it.
    pub(super) generation: u64,
    /// When it was read the last time.
    pub(super) read: MonoNs,
    pub(super) stats: LogStats,
    pub(super) changes: Changes,
    losses: Losses,
    /// What it has said took too much memory, and was forgotten.
    dropped: bool,
}

impl Followed {
    /// Nothing is read yet. `tenant`: whose it is.
    pub(super) fn new(number: u64, source: FollowedSource, tenant: Tenant) -> Followed {
        Followed {
            number,
            source,
            tenant,
            generation: 0,
            read: MonoNs::default(),
            stats: LogStats::default(),
            changes: Changes::default(),
            losses: Losses::default(),
            dropped: false,
        }
    }

    /// Gives back to the kernel what has been read, and tells the agent. The worker cannot: it may write no file.
    pub(super) fn release(&mut self) {
        if let FollowedSource::Log { log, released } = &mut self.source
            && log.consume
            && self.stats.read_to > *released
        {
            // What cannot be given back stays: it costs the JVM memory, no more.
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

    /// The request to read what there is now, for a worker that has it (`given`) or gets it with the request.
    pub(super) fn reading(&self, given: bool, raw: bool) -> WorkerRequest {
        let jvm = self.number;
        match &self.source {
            FollowedSource::Log { log: JvmLog { clock_offset_ns, blobs, .. }, .. } => {
                let follow = || Follow { clock_offset_ns: *clock_offset_ns, raw, blobs: blobs.clone() };
                WorkerRequest::ReadLog { jvm, follow: (!given).then(follow) }
            }
            FollowedSource::Memory(memory) => {
                let JvmMemory { layout, coarse, .. } = &**memory;
                let watch = || Box::new(Watch { layout: layout.clone(), coarse: *coarse, raw });
                WorkerRequest::ReadMemory { jvm, watch: (!given).then(watch) }
            }
        }
    }

    /// Counts a worker that was lost over it.
    pub(super) fn note_loss(&mut self, now: MonoNs) {
        self.losses.note(now);
    }

    /// Nothing of it is kept, now or later: of a log that was given back, no worker could be told again.
    pub(super) fn drop_for_good(&mut self) {
        self.dropped = true;
        self.stats = LogStats { memory: 0, cut: true, given_up: true, ..self.stats };
        self.changes.note(&Changed::Everywhere);
    }

    /// Whether there may be something to read. `ran`: since the last time.
    pub(super) fn is_due(&self, ran: bool, now: MonoNs) -> bool {
        match &self.source {
            FollowedSource::Log { .. } => true,
            // Memory that nobody has asked about has nothing to tell.
            FollowedSource::Memory(memory) => {
                (memory.code || self.generation > 0) && (ran || now.0 >= self.read.0.saturating_add(LOOK))
            }
        }
    }

    /// Whether it names compiled code.
    pub(super) fn names_code(&self) -> bool {
        match &self.source {
            FollowedSource::Log { .. } => true,
            FollowedSource::Memory(memory) => memory.code,
        }
    }

    /// Whether it has cost too many workers to be given to another now, or too much memory.
    pub(super) fn is_given_up(&self, now: MonoNs) -> bool {
        self.dropped || self.losses.are_too_many(now)
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
    fn what_costs_workers_is_given_up_be_it_log_or_memory() {
        for mut followed in [log(), memory(true, 1)] {
            for given_up in [false, true] {
                followed.note_loss(MonoNs(REST));
                assert_eq!(followed.is_given_up(MonoNs(REST)), given_up);
            }
            assert!(!followed.is_given_up(MonoNs(2 * REST)));
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
    fn a_memory_that_cost_workers_is_left_alone_ever_longer_but_not_for_ever() {
        let mut losses = Losses::default();
        let mut now = REST;
        losses.note(MonoNs(now));
        assert!(!losses.are_too_many(MonoNs(now)), "once is no habit");
        for rest in [1, 2, 4, 8, 16, 32, 64, 64] {
            losses.note(MonoNs(now));
            assert!(losses.are_too_many(MonoNs(now + rest * REST - 1)), "{rest}");
            now += rest * REST + 1;
            assert!(!losses.are_too_many(MonoNs(now)), "{rest}");
        }
        now += 64 * REST;
        losses.note(MonoNs(now));
        assert!(!losses.are_too_many(MonoNs(now)), "what was so long ago is forgotten");
    }

    #[test]
    fn memory_is_looked_at_when_its_jvm_ran_and_now_and_then() {
        for (code, generation, looked_at) in
            [(true, 1, true), (true, 0, true), (false, 1, true), (false, 0, false)]
        {
            let memory = memory(code, generation);
            assert!(!memory.is_due(false, MonoNs(100 + LOOK - 1)));
            assert_eq!(memory.is_due(true, MonoNs(101)), looked_at);
            assert_eq!(memory.is_due(false, MonoNs(100 + LOOK)), looked_at, "it may have ended");
        }
    }
}
