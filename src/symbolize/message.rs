//! What broker and worker say to each other.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::frame_rules::NoTable;
use crate::jvm::vm::StubBlobs;
use crate::jvm::vm::VmLayout;
use crate::profile::file_trait::FileTraits;
use crate::profile::{Kind, UnknownReason};

/// What the broker asks. Each request has one [`WorkerResponse`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerRequest {
    /// The descriptor with this message is the file of that number.
    Open { file: u64 },
    /// The descriptor is a debug file of `file`.
    Debug { file: u64, kind: DebugKind },
    /// The functions at these offsets of the file; without `lines` its DWARF is left alone.
    Names { file: u64, offsets: Vec<u64>, lines: bool },
    /// The descriptor is the perf map of that number; without one, the map is read on.
    PerfMap { map: u64 },
    /// What the perf map says about these addresses; `raw`: as the runtime wrote it.
    Jit { map: u64, addresses: Vec<JitPc>, raw: bool },
    /// Read what the log of a JVM has now. With a descriptor it is a log that is new to this worker.
    ReadLog { jvm: u64, follow: Option<Follow> },
    /// Look again at what is known of a JVM's code. With a descriptor it is the memory of a JVM that is new to this
    /// worker. Answered like `ReadLog`.
    ReadMemory { jvm: u64, watch: Option<Box<Watch>> },
    /// What the JVM's code was at these addresses then.
    Java { jvm: u64, lookups: Vec<JavaPc> },
    /// Which methods the JVM's interpreter was in.
    Methods { jvm: u64, lookups: Vec<JavaMethodAt> },
    /// What the JVM calls its threads with these numbers, which are those of its own PID namespace.
    Threads { jvm: u64, numbers: Vec<u32> },
    /// This is not asked about any more.
    Forget(WorkerObject),
    /// The unwind table of the file whose descriptor is with this message, or of a part of it around an offset.
    UnwindTable { around: Option<u64> },
}

/// What a worker keeps for later questions, with the descriptors that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerObject {
    /// A file, and its debug files.
    File(u64),
    PerfMap(u64),
    Jvm(u64),
}

/// What the worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerResponse {
    /// To `Open` and `Debug`.
    File(Result<FileFacts, UnknownReason>),
    /// To `Names`, `Jit`, `Java`, `Methods`: an answer for each address, in order. There may be fewer than were asked for, to keep the
    /// message short; then the rest is asked again.
    Names(NameAnswers),
    /// To `PerfMap`.
    PerfMap(PerfMapFacts),
    /// To `ReadLog` and `ReadMemory`, with what has changed in the code since the last time.
    Log(LogStats, Changed),
    /// To `Threads`: a name for each that is a Java thread and could be read, raw text.
    Threads(Vec<Option<String>>),
    /// To `Forget`.
    Done,
    /// To `UnwindTable`.
    UnwindTable(Result<TableBytes, NoTable>),
    /// The request does not fit what went before it.
    Refused,
}

/// A [`crate::unwind::TablePart`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableBytes {
    pub(crate) bytes: Vec<u8>,
    /// Offsets in the file.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What a debug file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DebugKind {
    /// The symbols and DWARF that were stripped off.
    Stripped,
    /// DWARF that other files have as well (`dwz`).
    Shared,
    /// The DWARF of a program that was compiled with `-gsplit-dwarf` (`dwp`).
    Package,
}

/// What a file says of its debug file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DebugLink {
    pub(crate) name: String,
    pub(crate) crc: u32,
}

/// What a file says about itself, so that the broker can find the debug files that belong to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    pub(crate) build_id: Option<Vec<u8>>,
    /// Names, lines or both may be in a separate file.
    pub(crate) wants_debug_file: bool,
    /// What that file is called.
    pub(crate) debug_link: Option<DebugLink>,
    /// Its DWARF may be in a package.
    pub(crate) wants_package: bool,
    /// Build id of the file that shares DWARF with it.
    pub(crate) alternate: Option<Vec<u8>>,
    /// What explains why it has no names.
    pub(crate) traits: FileTraits,
}

/// How a perf map was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfMapFacts {
    /// Lines that were understood.
    pub lines: u64,
    /// Lines that were not, skipped.
    pub rejected: u64,
    /// What is not known of it, bytes: the beginning of a file that is too long, and lines of too many functions.
    pub left_out: u64,
    /// How often the file had become shorter, or had got too much at once, so that all that is known of it was forgotten.
    pub begun_anew: u64,
    /// Bytes of whole lines that were read, over all readings.
    pub read: u64,
    /// The end of the file was not reached: it is to be read on, and names nothing until then.
    pub more: bool,
}

/// An address in code that a runtime has generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JitPc {
    pub(crate) pc: u64,
    /// It was seen before the map was last read on, so that other code may have been there.
    pub(crate) earlier: bool,
}

/// How to read a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Follow {
    /// What the JVM's `CLOCK_MONOTONIC` shows more than the host's, nanoseconds.
    pub(crate) clock_offset_ns: i64,
    /// Names keep the numbers that differ from run to run.
    pub(crate) raw: bool,
    /// Generated code that the log does not tell of.
    pub(crate) blobs: StubBlobs,
}

/// How to read a JVM's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    pub(crate) layout: VmLayout,
    /// Its code has debug records at calls and safepoints only.
    pub(crate) coarse: bool,
    /// Names keep the numbers that differ from run to run.
    pub(crate) raw: bool,
}

/// Where code came or went: addresses `start..end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Changed {
    Ranges(Vec<(u64, u64)>),
    /// More than are worth telling.
    Everywhere,
}

/// What was read of a JVM's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStats {
    /// The last reading went well.
    pub readable: bool,
    /// Everything before this offset has been read, bytes.
    pub read_to: u64,
    /// Complete records.
    pub records: u64,
    /// Records that were passed over: of an unknown type, malformed, too long, over quota.
    pub rejected: u64,
    /// Methods that are known.
    pub methods: u64,
    /// Compiled methods and stubs that are known, those that are gone included.
    pub code: u64,
    /// Memory that this JVM's names and debug records take, bytes, about.
    pub memory: u64,
    /// The replay of what was compiled before has been read to its end.
    pub replayed: bool,
    /// Something is missing that the JVM did tell, or tried to: a quota, dropped records, a part that was given back to
    /// the kernel before it was read.
    pub cut: bool,
    /// Nobody reads it any more.
    pub given_up: bool,
}

/// An address in a JVM's code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JavaPc {
    pub(crate) pc: u64,
    /// An instruction that was about to run, not a return address.
    pub(crate) leaf: bool,
    /// The first and the last time it was seen, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A frame of a JVM's interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct JavaMethodAt {
    /// The `Method*`.
    pub(crate) method: u64,
    /// The address of the bytecode; 0 if it is not known.
    pub(crate) bcp: u64,
    /// The first time it was seen of which is asked, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) from: u64,
}

/// What is to be said about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// It lies in code that has debug records at calls and safepoints only: compiled before the agent came, or none came.
    BeforeAttach,
    /// It is known to be another one later.
    Passing,
    /// There is no one answer: the code changed between the first and the last time that was asked about.
    Split,
}

/// Answers, with each text once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NameAnswers {
    pub(crate) texts: Vec<String>,
    pub(crate) answers: Vec<Result<Vec<Name>, UnknownReason>>,
    /// What is to be said about some answers, by their places. Java only.
    pub(crate) marks: Vec<(u32, Mark)>,
}

/// What a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FunctionLabel {
    /// A place in [`NameAnswers::texts`].
    Text(u32),
    /// Nothing names it; it begins at this address, as the file counts them.
    Start(u64),
    /// Not even that is known; it is at this address, as the file counts them.
    At(u64),
}

/// One function; of several, the outermost comes first. Numbers are places in [`NameAnswers::texts`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) label: FunctionLabel,
    pub(crate) file: Option<u32>,
    pub(crate) line: u32,
    pub(crate) bci: Option<u32>,
}

impl Name {
    /// Code that no symbol covers, at this address as the file counts them.
    pub(crate) fn nameless(address: u64) -> Name {
        Name { kind: Kind::Unknown, label: FunctionLabel::At(address), file: None, line: 0, bci: None }
    }
}

/// Collects [`NameAnswers`] up to a size.
#[derive(Debug, Default)]
pub(crate) struct NameAnswersBuilder {
    names: NameAnswers,
    places: HashMap<String, u32>,
    bytes: usize,
}

/// Longest message, bytes.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;
/// Answers beyond this are left for the next request, bytes (estimated).
const MAX_ANSWER: usize = MAX_MESSAGE / 4;

impl NameAnswersBuilder {
    /// The place of `text`.
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = u32::try_from(self.names.texts.len()).unwrap_or(u32::MAX);
        self.bytes += text.len() + 5;
        self.names.texts.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

    /// Adds an answer; false if it was the last that fits.
    pub(crate) fn answer(&mut self, answer: Result<Vec<Name>, UnknownReason>) -> bool {
        self.bytes += 2 + answer.as_ref().map_or(0, |names| names.len() * size_of::<Name>());
        self.names.answers.push(answer);
        self.bytes < MAX_ANSWER
    }

    /// Says something about the next answer.
    pub(crate) fn mark(&mut self, mark: Mark) {
        let next = u32::try_from(self.names.answers.len()).unwrap_or(u32::MAX);
        self.names.marks.push((next, mark));
    }

    pub(crate) fn finish(self) -> NameAnswers {
        self.names
    }
}
