//! The messages between broker and worker.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::frame_rules::NoTable;
use super::name_answers::{MAX_ANSWERS, NameAnswers};
use super::thread_local::ThreadLocal;
use crate::jvm::vm::StubBlobs;
use crate::jvm::vm::VmLayout;
use crate::outside::OutsideStack;
use crate::profile::UnknownReason;
use crate::profile::file_trait::FileTraits;
use crate::profile::resource::ResourceAttributes;
use crate::sample::{Leaf, ProcessId, StillWaiting};

/// Longest message that either side receives, bytes.
pub(crate) const MAX_MESSAGE: usize = 4 * MAX_ANSWERS;

/// A request of the broker. Each request has one [`WorkerResponse`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerRequest {
    /// The descriptor with this message is the file with the number `file`.
    Open { file: u64 },
    /// The descriptor is a debug file of `file`.
    Debug { file: u64, kind: DebugKind },
    /// The functions at these offsets of the file; without `lines` its DWARF is not read.
    Names { file: u64, offsets: Vec<u64>, lines: bool },
    /// The descriptor is the perf map with the number `map`. Without a descriptor, the worker reads on in that map.
    PerfMap { map: u64 },
    /// The perf map's names for these addresses; `raw`: as the runtime wrote them.
    Jit { map: u64, addresses: Vec<JitLookup>, raw: bool },
    /// Read the new records of a JVM's log. A descriptor comes with a log that is new to this worker.
    ReadLog { jvm: u64, follow: Option<LogReading> },
    /// Check the known code of a JVM again. A descriptor comes with the memory of a JVM that is new to this worker. The
    /// response is that of `ReadLog`.
    ReadMemory { jvm: u64, watch: Option<Box<MemoryReading>> },
    /// The JVM's code at these addresses, at the given times.
    Java { jvm: u64, lookups: Vec<JavaLookup> },
    /// The methods that the JVM's interpreter was running.
    Methods { jvm: u64, lookups: Vec<InterpretedFrameRequest> },
    /// The JVM's names of its threads with these numbers, which are those of its own PID namespace.
    Threads { jvm: u64, numbers: Vec<u32> },
    /// The owners of the monitors that these threads of a JVM enter; numbers as in `Threads`.
    Owners { jvm: u64, waiters: Vec<u32> },
    /// The names of the classes of a JVM's locks.
    Classes { jvm: u64, lookups: Vec<JavaClassAt> },
    /// Drop an object that later requests do not need.
    Forget(WorkerObject),
    /// Unwind threads of a process. The descriptors are its memory, and a file of the pages with its unwind tables and
    /// its address space, which begins at page `space`.
    Unwind { space: u32, threads: Vec<ThreadToUnwind> },
    /// The unwind table of the file whose descriptor is with this message, or of a part of the file around an offset.
    UnwindTable { around: Option<u64> },
    /// The exported thread-local variable of the file whose descriptor is with this message.
    ThreadLocal { name: String },
    /// The attributes in this payload of a process context.
    ProcessContext { payload: Vec<u8> },
}

/// An object that a worker keeps for later requests, with the descriptors that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerObject {
    /// A file and its debug files.
    File(u64),
    PerfMap(u64),
    Jvm(u64),
}

/// A response of the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerResponse {
    /// To `Open` and `Debug`.
    File(Result<FileFacts, UnknownReason>),
    /// To `Names`, `Jit`, `Java`, `Methods`: an answer for each address, in order. The answers may end early, to keep
    /// the message short. The broker then sends the other addresses again.
    Names(NameAnswers),
    /// To `PerfMap`, with the state of that map after the reading.
    PerfMap(PerfMapFacts),
    /// To `ReadLog` and `ReadMemory`, with the changes of the code since the last time.
    Log(LogStats, Changed),
    /// To `Threads`: the name of each thread that is a Java thread and could be read, raw text. To `Classes`: the name
    /// of each class that was there at its time.
    Texts(Vec<Option<String>>),
    /// To `Owners`: the number of each thread that has such a monitor still.
    Owners(Vec<Option<u32>>),
    /// To `Unwind`: the stack of each thread; `None` if the unwinder's words made no sense.
    Unwound(Vec<Option<OutsideStack>>),
    /// To `Forget`; the object is dropped.
    Done,
    /// To `UnwindTable`; the file may have no usable rules.
    UnwindTable(Result<TableBytes, NoTable>),
    /// To `ThreadLocal`; the file may define no such variable.
    ThreadLocal(Option<ThreadLocal>),
    /// Response to [`WorkerRequest::ProcessContext`].
    ProcessContext(ResourceAttributes),
    /// The request does not fit the requests before it.
    Refused,
}

/// A thread that is still waiting, whose stack is to be unwound from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadToUnwind {
    /// The thread and its registers.
    pub waiting: StillWaiting,
    /// How the thread left user mode.
    pub leaf: Leaf,
}

/// A [`crate::unwind::TablePart`], as the channel carries it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableBytes {
    pub(crate) bytes: Vec<u8>,
    /// Offsets in the file.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What a debug file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DebugKind {
    /// The symbols and DWARF that were stripped off the file.
    Stripped,
    /// DWARF that other files share (`dwz`).
    Shared,
    /// The DWARF of a program that was compiled with `-gsplit-dwarf` (`dwp`).
    Package,
}

/// A file's link to its debug file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DebugLink {
    pub(crate) name: String,
    pub(crate) crc: u32,
}

/// Facts about a file by which the broker finds its debug files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    pub(crate) build_id: Option<Vec<u8>>,
    /// OpenTelemetry's hash of the file.
    pub(crate) htlhash: Option<[u8; 16]>,
    /// Names, lines or both may be in a separate file.
    pub(crate) wants_debug_file: bool,
    /// Name and checksum of that file.
    pub(crate) debug_link: Option<DebugLink>,
    /// The file's DWARF may be in a package.
    pub(crate) wants_package: bool,
    /// Build id of the file that shares DWARF with this one.
    pub(crate) alternate: Option<Vec<u8>>,
    /// Traits that explain why the file has no names.
    pub(crate) traits: FileTraits,
}

/// What was read of a perf map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfMapFacts {
    /// Lines that were parsed.
    pub lines: u64,
    /// Lines that were rejected and skipped.
    pub rejected: u64,
    /// Bytes left out: the beginning of a file that is too long, and lines of too many functions.
    pub left_out: u64,
    /// How often all lines were forgotten, because the file had become shorter, or had grown too much at once.
    pub begun_anew: u64,
    /// Bytes of whole lines that were read, over all readings.
    pub read: u64,
    /// The end of the file was not reached: the map must be read on, and names nothing until then.
    pub more: bool,
}

/// An address in code that a runtime has generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JitLookup {
    pub(crate) pc: u64,
    /// The address was seen before the map was last read on, so other code may have been there.
    pub(crate) earlier: bool,
}

/// How to read a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogReading {
    /// How far the JVM's `CLOCK_MONOTONIC` is ahead of the host's, nanoseconds.
    pub(crate) clock_offset_ns: i64,
    /// Keep the numbers in names that differ from run to run.
    pub(crate) raw: bool,
    /// Generated code that the log does not contain.
    pub(crate) blobs: StubBlobs,
}

/// How to read a JVM's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryReading {
    pub(crate) layout: VmLayout,
    /// The JVM's code has debug records at calls and safepoints only.
    pub(crate) coarse: bool,
    /// Keep the numbers in names that differ from run to run.
    pub(crate) raw: bool,
}

/// Addresses at which code came or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Changed {
    Ranges(Vec<Range<u64>>),
    /// Too many ranges to list.
    Everywhere,
}

/// The state of the log of one JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLogStats {
    /// The JVM.
    pub process: ProcessId,
    /// How far its log was read, and what the log contains.
    pub stats: LogStats,
}

/// The state of a JVM's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStats {
    /// The last reading succeeded.
    pub readable: bool,
    /// All data before this offset has been read, bytes.
    pub read_to: u64,
    /// Complete records that were read so far, of any type.
    pub records: u64,
    /// Records that were skipped: of an unknown type, malformed, too long, over quota.
    pub rejected: u64,
    /// Methods whose names are kept; 0 when a JVM's memory is the source.
    pub methods: u64,
    /// Known compiled methods and stubs, including those that are gone.
    pub code: u64,
    /// Approximate memory of this JVM's names and debug records, bytes.
    pub memory: u64,
    /// The replay of earlier compilations has been read to its end.
    pub replayed: bool,
    /// Data is missing that the JVM wrote or tried to write: because of a quota, dropped records, or a part that was
    /// given back to the kernel before it was read.
    pub cut: bool,
    /// The log is no longer read.
    pub given_up: bool,
}

/// An address in a JVM's code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JavaLookup {
    pub(crate) pc: u64,
    /// An instruction that was about to run, not a return address.
    pub(crate) leaf: bool,
    /// The first and the last time at which the address was seen, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A frame of a JVM's interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct InterpretedFrameRequest {
    /// Address of the method in the JVM: its `Method*`.
    pub(crate) method: u64,
    /// The address of the bytecode; 0 if it is not known.
    pub(crate) bcp: u64,
    /// The first time at which the frame was seen in this lookup, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) from: u64,
}

/// A class in a JVM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JavaClassAt {
    /// Address of the class in the JVM.
    pub(crate) class: u64,
    /// The first time at which the class was seen in this lookup, on the host's `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) from: u64,
}
