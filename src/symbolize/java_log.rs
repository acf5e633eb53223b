//! The worker's part of Java names: one JVM's log, and the names that it gives to addresses.

use std::fs::File;
use std::ops::Range;

use super::message::{
    Changed, InterpretedFrameRequest, JavaClassAt, JavaLookup, LogReading, LogStats, WorkerResponse,
};
use super::name_answers::{AnswerMark, FunctionLabel, Name, NameAnswersBuilder};
use crate::jvm::code::{CodeMiss, CodeOptions, CodeTimeline, FrameKind, JavaFrame, TimedCode, Validity};
use crate::profile::{Kind, UnknownReason};
use crate::sample::MonoNs;

/// Changed ranges that are reported one by one.
const MAX_RANGES: usize = 16 << 10;

/// A source of names for a JVM's code: its agent's log, or its memory.
pub(super) trait JavaSource {
    /// Reads new data, and reports which code has changed.
    fn read(&mut self) -> WorkerResponse;

    /// Names addresses of JIT code and stubs.
    fn names(&mut self, lookups: &[JavaLookup]) -> WorkerResponse;

    /// Names frames of the interpreter.
    fn methods(&mut self, lookups: &[InterpretedFrameRequest]) -> WorkerResponse;

    /// Names Java threads by their ids in the JVM's own pid namespace.
    fn threads(&mut self, numbers: &[u32]) -> WorkerResponse;

    /// Finds the threads that have the monitors that these threads enter.
    fn owners(&mut self, waiters: &[u32]) -> WorkerResponse;

    /// Names the classes of locks.
    fn classes(&mut self, lookups: &[JavaClassAt]) -> WorkerResponse;
}

/// The log of an agent, and the code that it describes.
pub(crate) struct JavaLog {
    file: File,
    timeline: CodeTimeline,
}

impl JavaLog {
    pub(crate) fn new(file: File, follow: LogReading) -> JavaLog {
        let LogReading { clock_offset_ns, raw, blobs } = follow;
        let options = CodeOptions { raw_names: raw, clock_offset: clock_offset_ns, ..CodeOptions::default() };
        let mut timeline = CodeTimeline::new(options);
        timeline.add(&blobs);
        JavaLog { file, timeline }
    }
}

impl JavaSource for JavaLog {
    fn read(&mut self) -> WorkerResponse {
        // If reading fails, earlier data still answers, and the next reading continues from there.
        let readable = self.timeline.read(&self.file).is_ok();
        let facts = self.timeline.facts();
        let counts = facts.counts;
        let stats = LogStats {
            readable,
            read_to: self.timeline.read_to(),
            records: counts.records,
            rejected: counts.unknown + counts.malformed + counts.too_long + facts.refused,
            methods: facts.methods as u64,
            code: facts.code as u64,
            memory: facts.bytes as u64,
            replayed: facts.replayed,
            cut: facts.is_cut(),
            given_up: false,
        };
        WorkerResponse::Log(stats, changed(self.timeline.take_changed()))
    }

    fn names(&mut self, lookups: &[JavaLookup]) -> WorkerResponse {
        let mut names = NameAnswersBuilder::default();
        let mut code = self.timeline.lookups();
        for lookup in lookups {
            let (from, to) = (MonoNs(lookup.from), MonoNs(lookup.to));
            let Some(TimedCode { validity, found }) = code.lookup_until(lookup.pc, lookup.leaf, from, to)
            else {
                names.add_mark(AnswerMark::Split);
                if names.answer(Err(UnknownReason::CodeMoved)) {
                    continue;
                }
                break;
            };
            if validity == Validity::Ends {
                names.add_mark(AnswerMark::Passing);
            }
            if lookup.leaf && found.as_ref().is_ok_and(|found| found.before_attach) {
                names.add_mark(AnswerMark::BeforeAttach);
            }
            let answer = match found {
                // Outermost first.
                Ok(found) => Ok(found.frames.iter().rev().map(|frame| name(frame, &mut names)).collect()),
                Err(CodeMiss::Never) => Err(UnknownReason::NotLogged),
                Err(CodeMiss::Moved) => Err(UnknownReason::CodeMoved),
                Err(CodeMiss::Cut) => Err(UnknownReason::LogCut),
            };
            if !names.answer(answer) {
                break;
            }
        }
        WorkerResponse::Names(names.finish())
    }

    /// A log describes compiled code only.
    fn methods(&mut self, _: &[InterpretedFrameRequest]) -> WorkerResponse {
        WorkerResponse::Refused
    }

    /// A log does not describe threads.
    fn threads(&mut self, _: &[u32]) -> WorkerResponse {
        WorkerResponse::Refused
    }

    /// A log does not describe monitors.
    fn owners(&mut self, _: &[u32]) -> WorkerResponse {
        WorkerResponse::Refused
    }

    /// A log does not have the addresses of classes.
    fn classes(&mut self, _: &[JavaClassAt]) -> WorkerResponse {
        WorkerResponse::Refused
    }
}

/// The ranges of changed code, as they are reported.
pub(super) fn changed(ranges: Vec<Range<u64>>) -> Changed {
    if ranges.len() > MAX_RANGES { Changed::Everywhere } else { Changed::Ranges(ranges) }
}

pub(super) fn name(frame: &JavaFrame, names: &mut NameAnswersBuilder) -> Name {
    let kind = match frame.kind {
        FrameKind::Compiled => Kind::Java,
        FrameKind::Inlined => Kind::JavaInlined,
        FrameKind::Interpreted => Kind::JavaInterpreted,
        // HotSpot's name of the blob in which it interprets all bytecode.
        FrameKind::Stub if &*frame.name == "Interpreter" => Kind::JavaInterpreted,
        FrameKind::Stub => Kind::JvmStub,
        FrameKind::Unnamed => Kind::Unknown,
    };
    let file = frame.method.as_ref().and_then(|m| m.file.as_ref()).map(|f| names.text(f));
    Name { kind, label: FunctionLabel::Text(names.text(&frame.name)), file, line: frame.line, bci: frame.bci }
}
