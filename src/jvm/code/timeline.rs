//! One JVM's code over time: its log is read on, addresses are looked up.

use std::ops::Range;
use std::{fmt, io};

use jvm_symbols_log::header::flag;
use jvm_symbols_log::{BadHeader, Counts, End, Header, LogKind, ReadAt, Reader};

use super::options::CodeOptions;
use super::owners::{Answers, CodeFound, Held, Miss, Owners};
use crate::jvm::vm::StubBlobs;
use crate::sample::MonoNs;

/// How long an answer is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// As long as was asked; later it is another.
    Ends,
    /// Until [`CodeTimeline::take_changed`] names the address.
    Lasts,
}

/// What a log has told so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFacts {
    /// The header, as last read.
    pub header: Option<Header>,
    /// The replay of older code is complete.
    pub replayed: bool,
    /// What was read.
    pub counts: Counts,
    /// Why reading ended, if it did.
    pub end: Option<End>,
    /// The beginning had been released before this reader came: a new attach is needed for the whole.
    pub head_missing: bool,
    /// Methods kept.
    pub methods: usize,
    /// Compiled methods and stubs kept, those that are gone included.
    pub code: usize,
    /// Records that quotas kept out.
    pub refused: u64,
    /// Memory in use, about.
    pub bytes: usize,
}

impl CodeFacts {
    /// Something is missing that the JVM did once tell, or tried to.
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

/// Why a log could not be read on. What was read before still answers.
#[derive(Debug)]
pub enum ReadFailure {
    /// The header.
    Header(BadHeader),
    /// `pread` of records.
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

/// One JVM's code over time, as one log tells it.
#[derive(Debug)]
pub struct CodeTimeline {
    reader: Option<Reader>,
    owners: Owners,
    facts: CodeFacts,
}

impl CodeTimeline {
    /// Empty.
    #[must_use]
    pub fn new(options: CodeOptions) -> CodeTimeline {
        CodeTimeline { reader: None, owners: Owners::new(options), facts: CodeFacts::default() }
    }

    /// Takes generated code that the log does not tell of, as of from the start.
    pub fn add(&mut self, blobs: &StubBlobs) {
        self.owners.add(blobs);
    }

    /// Reads what the log has got since the last call; always the same log. Returns the number of new records.
    ///
    /// # Errors
    /// [`ReadFailure`]; a later call goes on where this one stopped.
    pub fn read(&mut self, log: &impl ReadAt) -> Result<u64, ReadFailure> {
        let header = Header::read(log).map_err(ReadFailure::Header)?;
        let limits = self.owners.limits().log;
        let reader = self.reader.get_or_insert_with(|| {
            let start = Reader::new(limits);
            self.facts.head_missing = header.kind == LogKind::Attach && header.consumed > start.offset();
            if self.facts.head_missing { Reader::from_offset(header.consumed, limits) } else { start }
        });
        self.facts.header = Some(header);
        self.owners.begin();
        let read = reader.read(log, &mut self.owners).map_err(ReadFailure::Io);
        self.facts.counts = reader.counts();
        self.facts.end = reader.end();
        self.owners.prune();
        self.facts.replayed = self.owners.replayed();
        self.facts.methods = self.owners.methods();
        self.facts.code = self.owners.len();
        self.facts.refused = self.owners.refused();
        self.facts.bytes = self.owners.bytes();
        read
    }

    /// Offset up to which the log has been read: what may be released.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::offset)
    }

    /// What the log has told so far.
    #[must_use]
    pub fn facts(&self) -> &CodeFacts {
        &self.facts
    }

    /// Where code came or went since the last call: answers about other addresses stay what they were.
    pub fn take_changed(&mut self) -> Vec<Range<u64>> {
        self.owners.take_changed()
    }

    /// Looks up one address, as [`Lookups::lookup`] does.
    ///
    /// # Errors
    /// [`Miss`] says why there is no answer.
    pub fn lookup(&self, pc: u64, is_leaf_pc: bool, at: MonoNs) -> Result<CodeFound, Miss> {
        self.lookups().lookup(pc, is_leaf_pc, at)
    }

    /// To look up addresses: in ascending order, those of one method cost little more than the last of them.
    #[must_use]
    pub fn lookups(&self) -> Lookups<'_> {
        Lookups { timeline: self, answers: self.owners.answers() }
    }
}

/// Addresses that are looked up one after the other.
#[derive(Debug)]
pub struct Lookups<'a> {
    timeline: &'a CodeTimeline,
    answers: Answers<'a>,
}

impl<'a> Lookups<'a> {
    /// What `pc` stood for at `at` on the host's clock. `is_leaf_pc`: the instruction at `pc` was about to run;
    /// otherwise `pc` is the return address of a call.
    ///
    /// # Errors
    /// [`Miss`] says why there is no answer.
    pub fn lookup(&mut self, pc: u64, is_leaf_pc: bool, at: MonoNs) -> Result<CodeFound, Miss> {
        self.found(pc, self.timeline.owners.at(pc, is_leaf_pc, at))
    }

    /// The same at `from`, and how long it is the same; none if not until `to`, which may be the same time.
    ///
    /// # Errors
    /// [`Miss`] says why there is no answer.
    pub fn lookup_until(
        &mut self,
        pc: u64,
        is_leaf_pc: bool,
        from: MonoNs,
        to: MonoNs,
    ) -> Option<(Hold, Result<CodeFound, Miss>)> {
        let owners = &self.timeline.owners;
        let first = owners.at(pc, is_leaf_pc, from);
        let last = (from != to).then(|| owners.at(pc, is_leaf_pc, to));
        let hold = match (&first, last.as_ref().unwrap_or(&first)) {
            (Ok(first), Ok(last)) if first.is_same(last) => {
                if last.is_alive() {
                    Hold::Lasts
                } else {
                    Hold::Ends
                }
            }
            (Err(Miss::Never), Err(Miss::Never)) => Hold::Lasts,
            _ if from == to => Hold::Ends,
            _ => return None,
        };
        Some((hold, self.found(pc, first)))
    }

    fn found(&mut self, pc: u64, held: Result<Held<'a>, Miss>) -> Result<CodeFound, Miss> {
        match held {
            Ok(held) => self.answers.of(&held, pc),
            Err(Miss::Never) if self.timeline.facts.is_cut() => Err(Miss::Cut),
            Err(miss) => Err(miss),
        }
    }
}
