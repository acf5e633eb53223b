//! The first page of a log: its writer, its reader, and how far both are.
//!
//! Each block has one writer. The agent writes the constant fields once, the magic last. The profiler writes lease and
//! consumption by `pwrite` from outside the JVM. The agent writes the counters.

/// Size of the header. The first record has this offset.
pub const HEADER_LEN: u64 = 4096;
/// The first eight bytes of a log that is ready to be read.
pub const MAGIC: [u8; 8] = *b"jvm-syms";
/// Version of the format. Readers refuse all other versions.
pub const VERSION: u32 = 2;
/// Name of the memfd: `/proc/PID/fd/N` reads `/memfd:jvm-symbols (deleted)`.
pub const MEMFD_NAME: &str = "jvm-symbols";

/// Offsets within the header page.
pub mod at {
    /// 8 bytes, [`super::MAGIC`]; the agent writes them last, when the log is ready.
    pub const MAGIC: u64 = 0;
    /// u32, [`super::VERSION`]; readers refuse any other value.
    pub const VERSION: u64 = 8;
    /// u32, how the log was created: [`super::LogKind`].
    pub const KIND: u64 = 12;
    /// u32, the JVM's pid in its own pid namespace.
    pub const PID: u64 = 16;
    /// u32, length of the path.
    pub const PATH_LEN: u64 = 20;
    /// u64, when the log was created: `CLOCK_MONOTONIC` of the JVM, ns.
    pub const STARTED: u64 = 24;
    /// 16 bytes, the nonce of the options; zeros if the options have none.
    pub const NONCE: u64 = 32;
    /// u64, most bytes that may be written and not consumed.
    pub const CAP: u64 = 48;
    /// u64, when this agent first enabled the load event, ns. Code compiled later has all debug records.
    pub const ENABLED: u64 = 56;

    /// u64, written by the profiler: until when callbacks write, `CLOCK_MONOTONIC` of the JVM, ns.
    pub const LEASE_UNTIL: u64 = 128;
    /// u64, written by the profiler: the offset below which it needs nothing any more.
    pub const CONSUMED: u64 = 136;

    /// u64, written by the agent: end of the last reserved record.
    pub const WRITTEN: u64 = 192;
    /// u64, records that were dropped (cap reached, write failed, no scratch memory).
    pub const DROPPED: u64 = 200;
    /// u32, written by the agent: bits of [`super::flag`].
    pub const FLAGS: u64 = 208;
    /// u32, the enabled events, see [`super::event`].
    pub const EVENTS: u64 = 212;
    /// u64, when the replay began, ns; 0 before.
    pub const REPLAY_BEGUN: u64 = 216;
    /// u64, when the replay was complete, ns; 0 before.
    pub const REPLAY_DONE: u64 = 224;
    /// End of the agent's block.
    pub const COUNTERS_END: u64 = 232;

    /// The path from which the agent was loaded, as the options gave it.
    pub const PATH: u64 = 512;
}

/// Longest path that is kept, in bytes.
pub const MAX_PATH: usize = (HEADER_LEN - at::PATH) as usize;

/// Bits of the flags word.
pub mod flag {
    /// A write failed; no further records follow.
    pub const BROKEN: u32 = 1;
    /// The cap was reached at least once: records are missing.
    pub const FULL: u32 = 2;
    /// The lease ended and the agent closed the log; no further records follow.
    pub const CLOSED: u32 = 4;
    /// `GenerateEvents` failed: code compiled before is missing.
    pub const REPLAY_FAILED: u32 = 8;
}

/// Bits of the events word.
pub mod event {
    /// `CompiledMethodLoad` is enabled: the log gets load records.
    pub const LOAD: u32 = 1;
    /// `CompiledMethodUnload` is enabled: the log gets unload records.
    pub const UNLOAD: u32 = 2;
    /// `DynamicCodeGenerated` is enabled: the log gets stub records. The option `stubs=0` leaves the event off.
    pub const STUB: u32 = 4;
    /// `SampledObjectAlloc` is enabled for the profiler of this log, whose option `alloc` asked for it.
    pub const ALLOCATION: u32 = 8;
}

/// How a log was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LogKind {
    /// By `-agentpath`: for any number of readers, without lease. Readers never punch its pages.
    Start = 1,
    /// By one late attach, for the profiler that holds the lease.
    Attach = 2,
}

/// The fields that the agent writes once, when it creates the log.
#[derive(Clone, Copy, Debug)]
pub struct HeaderFields<'a> {
    /// How the log was created.
    pub kind: LogKind,
    /// The JVM's pid in its own pid namespace.
    pub pid: u32,
    /// When the log was created, ns.
    pub started: u64,
    /// The nonce of the options.
    pub nonce: [u8; 16],
    /// Most bytes that may be written and not consumed.
    pub cap: u64,
    /// When the load event was first enabled, ns.
    pub enabled: u64,
    /// The first lease, ns.
    pub lease_until: u64,
    /// The path of the options; cut at [`MAX_PATH`].
    pub path: &'a [u8],
}

impl HeaderFields<'_> {
    /// Fills a page of zeros, except the magic, which the agent writes when the log is ready.
    pub fn fill(&self, page: &mut [u8; HEADER_LEN as usize]) {
        let path_len = self.path.len().min(MAX_PATH);
        put(page, at::VERSION, &VERSION.to_le_bytes());
        put(page, at::KIND, &(self.kind as u32).to_le_bytes());
        put(page, at::PID, &self.pid.to_le_bytes());
        put(page, at::PATH_LEN, &(path_len as u32).to_le_bytes());
        put(page, at::STARTED, &self.started.to_le_bytes());
        put(page, at::NONCE, &self.nonce);
        put(page, at::CAP, &self.cap.to_le_bytes());
        put(page, at::ENABLED, &self.enabled.to_le_bytes());
        put(page, at::LEASE_UNTIL, &self.lease_until.to_le_bytes());
        put(page, at::CONSUMED, &HEADER_LEN.to_le_bytes());
        put(page, at::WRITTEN, &HEADER_LEN.to_le_bytes());
        put(page, at::PATH, self.path);
    }
}

/// Copies `bytes` to `offset`, as far as there is room. Indexing could panic.
fn put(page: &mut [u8], offset: u64, bytes: &[u8]) {
    for (to, from) in page.iter_mut().skip(offset as usize).zip(bytes) {
        *to = *from;
    }
}

/// Progress of a replay of older code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// When the replay began, ns; 0 before.
    pub begun: u64,
    /// When the replay was complete, ns; 0 before.
    pub done: u64,
}

/// The agent's counters, which one write stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// End of the last reserved record.
    pub written: u64,
    /// Records that were dropped.
    pub dropped: u64,
    /// Bits of [`flag`]: why records are missing or no more will follow.
    pub flags: u32,
    /// Bits of [`event`]: the JVMTI events that the agent has enabled.
    pub events: u32,
    /// Progress of the replay.
    pub replay: Replay,
}

/// Length of the agent's counters in bytes.
pub const COUNTERS_LEN: usize = (at::COUNTERS_END - at::WRITTEN) as usize;

impl Counters {
    /// The bytes to write at [`at::WRITTEN`].
    #[must_use]
    pub fn to_bytes(&self) -> [u8; COUNTERS_LEN] {
        let mut block = [0; COUNTERS_LEN];
        let base = at::WRITTEN;
        put(&mut block, at::WRITTEN - base, &self.written.to_le_bytes());
        put(&mut block, at::DROPPED - base, &self.dropped.to_le_bytes());
        put(&mut block, at::FLAGS - base, &self.flags.to_le_bytes());
        put(&mut block, at::EVENTS - base, &self.events.to_le_bytes());
        put(&mut block, at::REPLAY_BEGUN - base, &self.replay.begun.to_le_bytes());
        put(&mut block, at::REPLAY_DONE - base, &self.replay.done.to_le_bytes());
        block
    }
}
