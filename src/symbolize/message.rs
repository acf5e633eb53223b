//! What broker and worker say to each other.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::profile::{Kind, Why};

/// What the broker asks. Each request has one [`Response`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The descriptor with this message is the file of that number.
    Open { file: u64 },
    /// The descriptor is the separate debug file of `file`, or (`alternate`) the one that shares DWARF with it.
    Debug { file: u64, alternate: bool },
    /// The functions at these offsets of the file.
    Names { file: u64, offsets: Vec<u64> },
    /// The descriptor is the perf map of that number; without one, the map has grown and is read on.
    PerfMap { map: u64 },
    /// What the perf map says about these addresses; `raw`: as the runtime wrote it.
    Jit { map: u64, addresses: Vec<u64>, raw: bool },
    /// Read what the log of a JVM has now. With a descriptor it is a log that is new to this worker.
    ReadLog { jvm: u64, follow: Option<Follow> },
    /// What the JVM's code was at these addresses then; `raw`: with the numbers that differ from run to run.
    Java { jvm: u64, lookups: Vec<JavaPc>, raw: bool },
    /// The JVM is not asked about any more.
    Forget { jvm: u64 },
}

/// What the worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    /// To `Open` and `Debug`.
    File(Result<FileFacts, Why>),
    /// To `Names`, `Jit`, `Java`: an answer for each address, in order. There may be fewer than were asked for, to keep the
    /// message short; then the rest is asked again.
    Names(Names),
    /// To `PerfMap`.
    PerfMap(PerfMapFacts),
    /// To `ReadLog`.
    Log(LogStats),
    /// To `Forget`.
    Done,
    /// The request does not fit what went before it.
    Refused,
}

/// What a file says about itself, so that the broker can find the debug files that belong to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    pub(crate) build_id: Option<Vec<u8>>,
    /// Names, lines or both may be in a separate file.
    pub(crate) wants_debug_file: bool,
    /// Build id of the file that shares DWARF with it.
    pub(crate) alternate: Option<Vec<u8>>,
}

/// How a perf map was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfMapFacts {
    /// Lines that were understood.
    pub lines: u64,
    /// Lines that were not, skipped.
    pub rejected: u64,
    /// The file was longer than what is read of one.
    pub cut: bool,
}

/// How to read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Follow {
    /// Added to the log's times to make them the host's, nanoseconds.
    pub(crate) clock_offset_ns: i64,
    /// Where to begin: what lies before was given back to the kernel. 0 for the whole log.
    pub(crate) from: u64,
}

/// What was read of a JVM's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStats {
    /// Everything before this offset has been read, bytes.
    pub read_to: u64,
    /// Complete records.
    pub records: u64,
    /// Records that were passed over: of an unknown type, malformed, too long.
    pub rejected: u64,
    /// Methods and stubs that are known now.
    pub code: u64,
    /// Nothing more is read: garbage, or over quota.
    pub ended: bool,
    /// The replay of what was compiled before has been read to its end.
    pub replayed: bool,
    /// What was read before is lost: the worker died after it had been given back to the kernel.
    pub beginning_lost: bool,
}

/// An address in a JVM's code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JavaPc {
    pub(crate) pc: u64,
    /// An instruction that was about to run, not a return address.
    pub(crate) leaf: bool,
    /// When, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) at: u64,
}

/// Answers, with each text once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    pub(crate) texts: Vec<String>,
    pub(crate) answers: Vec<Result<Vec<Name>, Why>>,
    /// Places of answers that lie in Java code compiled before the agent came.
    pub(crate) before_attach: Vec<u32>,
}

/// One function; of several, the outermost comes first. Numbers are places in [`Names::texts`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) name: u32,
    pub(crate) file: Option<u32>,
    pub(crate) line: u32,
    pub(crate) bci: Option<u32>,
}

/// Collects [`Names`] up to a size.
#[derive(Debug, Default)]
pub(crate) struct NamesBuilder {
    names: Names,
    places: HashMap<String, u32>,
    bytes: usize,
}

/// Answers beyond this are left for the next request, bytes (estimated).
const MAX_ANSWER: usize = super::wire::MAX_MESSAGE / 4;

impl NamesBuilder {
    /// The place of `text`.
    pub(crate) fn text(&mut self, text: String) -> u32 {
        if let Some(&place) = self.places.get(&text) {
            return place;
        }
        let place = u32::try_from(self.names.texts.len()).unwrap_or(u32::MAX);
        self.bytes += text.len() + 5;
        self.names.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }

    /// Adds an answer; false if it was the last that fits.
    pub(crate) fn answer(&mut self, answer: Result<Vec<Name>, Why>) -> bool {
        self.bytes += 2 + answer.as_ref().map_or(0, |names| names.len() * size_of::<Name>());
        self.names.answers.push(answer);
        self.bytes < MAX_ANSWER
    }

    pub(crate) fn finish(self) -> Names {
        self.names
    }
}
