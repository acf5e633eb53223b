//! One JVM's code over time: follows the log and looks up addresses.

use std::ops::Range;
use std::{fmt, io};

use jvm_symbols_log::header::flag;
use jvm_symbols_log::{BadHeader, Counts, End, Header, LogKind, ReadAt, Reader};

use super::options::CodeOptions;
use super::owners::{CodeFound, CodeMiss, CodeTable, FrameReader, OwnerAtTime};
use crate::jvm::vm::StubBlobs;
use crate::sample::MonoNs;

/// How long a lookup's result is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Validity {
    /// Only for the requested time; later the result differs.
    Ends,
    /// Until [`CodeTimeline::take_changed`] returns the address.
    Lasts,
}

/// The code at an address, and how long the result is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedCode {
    /// Whether the result is valid at later times too.
    pub validity: Validity,
    /// A [`CodeMiss`] if the address has no name.
    pub found: Result<CodeFound, CodeMiss>,
}

/// The state of a log as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFacts {
    /// The header, as last read.
    pub header: Option<Header>,
    /// The replay of older code is complete.
    pub replayed: bool,
    /// Numbers of records that were read.
    pub counts: Counts,
    /// Why reading ended, if it did.
    pub end: Option<End>,
    /// The log's beginning was released before this reader started: complete names need a new attach.
    pub head_missing: bool,
    /// Methods kept, with their names and line tables.
    pub methods: usize,
    /// Compiled methods and stubs kept, including freed ones.
    pub code: usize,
    /// Records that were left out because of quotas.
    pub refused: u64,
    /// Approximate memory in use, bytes.
    pub bytes: usize,
}

impl CodeFacts {
    /// Whether records are missing that the JVM wrote or tried to write.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let header = self.header.as_ref();
        self.refused > 0
            || self.end.is_some()
            || self.head_missing
            || self.counts.malformed + self.counts.too_long > 0
            || header.is_some_and(|h| {
                h.counters.dropped > 0
                    || h.has(flag::FULL | flag::BROKEN | flag::CLOSED | flag::REPLAY_FAILED)
            })
    }
}

/// Why reading a log failed. Code that was read before can still be looked up.
#[derive(Debug)]
pub enum ReadFailure {
    /// The header cannot be read.
    Header(BadHeader),
    /// `pread` of records failed.
    Io(io::Error),
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadFailure::Header(bad) => bad.fmt(f),
            ReadFailure::Io(e) => write!(f, "records of the agent's log cannot be read: {e}"),
        }
    }
}

impl std::error::Error for ReadFailure {}

/// One JVM's code over time, according to one log.
#[derive(Debug)]
pub struct CodeTimeline {
    reader: Option<Reader>,
    owners: CodeTable,
    facts: CodeFacts,
}

impl CodeTimeline {
    /// A timeline without code.
    #[must_use]
    pub fn new(options: CodeOptions) -> CodeTimeline {
        CodeTimeline { reader: None, owners: CodeTable::new(options), facts: CodeFacts::default() }
    }

    /// Adds stubs and adapters that the log does not contain, as if they existed from the start.
    pub fn add(&mut self, blobs: &StubBlobs) {
        self.owners.add(blobs);
    }

    /// Reads what was added to the log since the last call; always the same log. Returns the number of new records.
    ///
    /// # Errors
    /// [`ReadFailure`]; a later call continues where this one stopped.
    pub fn read(&mut self, log: &impl ReadAt) -> Result<u64, ReadFailure> {
        let header = Header::read(log).map_err(ReadFailure::Header)?;
        let limits = self.owners.limits().log;
        let reader = self.reader.get_or_insert_with(|| {
            let start = Reader::new(limits);
            self.facts.head_missing = header.kind == LogKind::Attach && header.consumed > start.offset();
            if self.facts.head_missing { Reader::from_offset(header.consumed, limits) } else { start }
        });
        self.facts.header = Some(header);
        self.owners.begin_read();
        let read = reader.read(log, &mut self.owners).map_err(ReadFailure::Io);
        self.facts.counts = reader.counts();
        self.facts.end = reader.end();
        self.owners.prune();
        self.facts.replayed = self.owners.is_replayed();
        self.facts.methods = self.owners.methods();
        self.facts.code = self.owners.len();
        self.facts.refused = self.owners.refused();
        self.facts.bytes = self.owners.bytes();
        read
    }

    /// Offset up to which the log has been read and may be released.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::offset)
    }

    /// The state of the log as far as it was read.
    #[must_use]
    pub fn facts(&self) -> &CodeFacts {
        &self.facts
    }

    /// Ranges in which code came or went since the last call; results for other addresses stay valid.
    pub fn take_changed(&mut self) -> Vec<Range<u64>> {
        self.owners.take_changed()
    }

    /// Looks up one address, as [`CodeLookup::lookup`] does.
    ///
    /// # Errors
    /// [`CodeMiss`] if the address has no name.
    pub fn lookup(&self, pc: u64, is_leaf_pc: bool, at: MonoNs) -> Result<CodeFound, CodeMiss> {
        self.lookups().lookup(pc, is_leaf_pc, at)
    }

    /// A reader for many addresses: in ascending order, those of one method cost little more than the last of them.
    #[must_use]
    pub fn lookups(&self) -> CodeLookup<'_> {
        CodeLookup { timeline: self, frames: self.owners.frame_reader() }
    }
}

/// Looks up addresses one after the other.
#[derive(Debug)]
pub struct CodeLookup<'a> {
    timeline: &'a CodeTimeline,
    frames: FrameReader<'a>,
}

impl<'a> CodeLookup<'a> {
    /// The code at `pc` at time `at` of the host's clock. `is_leaf_pc`: the instruction at `pc` was about to run;
    /// otherwise `pc` is the return address of a call.
    ///
    /// # Errors
    /// [`CodeMiss`] if the address has no name.
    pub fn lookup(&mut self, pc: u64, is_leaf_pc: bool, at: MonoNs) -> Result<CodeFound, CodeMiss> {
        self.frames_of(pc, self.timeline.owners.at(pc, is_leaf_pc, at))
    }

    /// The code at `pc` at `from`. `None` if the result is not valid until `to`, which may equal `from`.
    pub fn lookup_until(&mut self, pc: u64, is_leaf_pc: bool, from: MonoNs, to: MonoNs) -> Option<TimedCode> {
        let owners = &self.timeline.owners;
        let first = owners.at(pc, is_leaf_pc, from);
        let last = (from != to).then(|| owners.at(pc, is_leaf_pc, to));
        let validity = match (&first, last.as_ref().unwrap_or(&first)) {
            (Ok(first), Ok(last)) if first.is_same(last) => {
                if last.is_alive() {
                    Validity::Lasts
                } else {
                    Validity::Ends
                }
            }
            (Err(CodeMiss::Never), Err(CodeMiss::Never)) => Validity::Lasts,
            _ if from == to => Validity::Ends,
            _ => return None,
        };
        Some(TimedCode { validity, found: self.frames_of(pc, first) })
    }

    fn frames_of(&mut self, pc: u64, held: Result<OwnerAtTime<'a>, CodeMiss>) -> Result<CodeFound, CodeMiss> {
        match held {
            Ok(held) => self.frames.frames_of(&held, pc),
            Err(CodeMiss::Never) if self.timeline.facts.is_cut() => Err(CodeMiss::Cut),
            Err(miss) => Err(miss),
        }
    }
}
