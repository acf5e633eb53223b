//! The worker's side of Java: one JVM's log, and what it says about addresses.

use std::fs::File;

use super::message::{Changed, Follow, JavaPc, Label, LogStats, Mark, Name, NamesBuilder, Response};
use crate::jvm::code::{CodeTimeline, FrameKind, Hold, JavaFrame, Miss, Options};
use crate::process::MonoNs;
use crate::profile::{Kind, Why};

/// Changed ranges that are told one by one.
const MAX_RANGES: usize = 16 << 10;

/// A log that is followed.
pub(crate) struct JavaLog {
    file: File,
    timeline: CodeTimeline,
}

impl JavaLog {
    pub(crate) fn new(file: File, follow: Follow) -> JavaLog {
        let Follow { clock_offset_ns, raw, blobs } = follow;
        let options = Options { raw_names: raw, clock_offset: clock_offset_ns, ..Options::default() };
        let mut timeline = CodeTimeline::new(options);
        timeline.add(&blobs);
        JavaLog { file, timeline }
    }

    /// Reads what there is now.
    pub(crate) fn read(&mut self) -> Response {
        // What was read before still answers, and the next reading goes on from there.
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
        };
        let ranges: Vec<(u64, u64)> =
            self.timeline.take_changed().into_iter().map(|range| (range.start, range.end)).collect();
        let few = ranges.len() <= MAX_RANGES;
        Response::Log(stats, if few { Changed::Ranges(ranges) } else { Changed::Everywhere })
    }

    pub(crate) fn names(&mut self, lookups: &[JavaPc]) -> Response {
        let mut names = NamesBuilder::default();
        for lookup in lookups {
            let (from, to) = (MonoNs(lookup.from), MonoNs(lookup.to));
            match self.timeline.hold(lookup.pc, lookup.leaf, from, to) {
                Hold::Changes if from != to => {
                    names.mark(Mark::Split);
                    if names.answer(Err(Why::CodeMoved)) {
                        continue;
                    }
                    break;
                }
                Hold::Changes | Hold::Ends => names.mark(Mark::Passing),
                Hold::Lasts => {}
            }
            let found = self.timeline.lookup(lookup.pc, lookup.leaf, from);
            if lookup.leaf && found.as_ref().is_ok_and(|found| found.before_attach) {
                names.mark(Mark::BeforeAttach);
            }
            let answer = match found {
                // Outermost first.
                Ok(found) => Ok(found.frames.iter().rev().map(|frame| name(frame, &mut names)).collect()),
                Err(Miss::Never) => Err(Why::NotLogged),
                Err(Miss::Moved) => Err(Why::CodeMoved),
                Err(Miss::Cut) => Err(Why::LogCut),
            };
            if !names.answer(answer) {
                break;
            }
        }
        Response::Names(names.finish())
    }
}

fn name(frame: &JavaFrame, names: &mut NamesBuilder) -> Name {
    let kind = match frame.kind {
        FrameKind::Compiled => Kind::Java,
        FrameKind::Inlined => Kind::JavaInlined,
        // HotSpot's name of the one blob that all bytecode interpretation happens in.
        FrameKind::Stub if &*frame.name == "Interpreter" => Kind::JavaInterpreted,
        FrameKind::Stub => Kind::JvmStub,
        FrameKind::Unnamed => Kind::Unknown,
    };
    let file = frame.method.as_ref().and_then(|m| m.file.as_ref()).map(|f| names.text(f));
    Name { kind, label: Label::Text(names.text(&frame.name)), file, line: frame.line, bci: frame.bci }
}
