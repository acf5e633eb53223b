//! The worker's part of Java names without an agent: one JVM's memory, and the names that it gives to addresses.

use std::fs::File;

use super::java_log::{JavaSource, changed, name};
use super::message::{
    InterpretedFrameRequest, JavaClassAt, JavaLookup, LogStats, MemoryReading, WorkerResponse,
};
use super::name_answers::{AnswerMark, NameAnswersBuilder};
use crate::jvm::vm::{AddressQuery, ClassQuery, MethodQuery, ProcessMemory, VmCode, VmMiss};
use crate::profile::UnknownReason;
use crate::sample::MonoNs;

/// The memory of a JVM, and the code that was found there.
pub(crate) struct JavaMemory {
    code: VmCode<ProcessMemory>,
    coarse: bool,
}

impl JavaMemory {
    pub(crate) fn new(memory: File, watch: MemoryReading) -> JavaMemory {
        let MemoryReading { layout, coarse, raw } = watch;
        JavaMemory { code: VmCode::new(ProcessMemory::new(memory.into()), layout, raw), coarse }
    }
}

impl JavaSource for JavaMemory {
    fn read(&mut self) -> WorkerResponse {
        let gone = self.code.check(MonoNs::now());
        let stats = self.code.stats();
        let code = stats.known as u64;
        let stats = LogStats { readable: stats.readable, code, replayed: true, ..LogStats::default() };
        WorkerResponse::Log(stats, changed(gone))
    }

    fn names(&mut self, lookups: &[JavaLookup]) -> WorkerResponse {
        let asked = lookups.iter().map(|l| AddressQuery { pc: l.pc, leaf: l.leaf, at: MonoNs(l.from) });
        let answers = self.code.lookup(&asked.collect::<Vec<_>>());
        let mut names = NameAnswersBuilder::default();
        for (lookup, answer) in lookups.iter().zip(answers) {
            if self.code.changes(lookup.pc, lookup.leaf, MonoNs(lookup.from), MonoNs(lookup.to)) {
                names.add_mark(AnswerMark::Split);
            } else if !answer.lasting {
                names.add_mark(AnswerMark::Passing);
            }
            if lookup.leaf && self.coarse {
                names.add_mark(AnswerMark::BeforeAttach);
            }
            let answer = match answer.frames {
                // Outermost first.
                Ok(frames) => Ok(frames.iter().rev().map(|frame| name(frame, &mut names)).collect()),
                Err(miss) => Err(why(miss)),
            };
            if !names.answer(answer) {
                break;
            }
        }
        WorkerResponse::Names(names.finish())
    }

    fn methods(&mut self, lookups: &[InterpretedFrameRequest]) -> WorkerResponse {
        let asked = lookups.iter().map(|l| MethodQuery { method: l.method, bcp: l.bcp, at: MonoNs(l.from) });
        let mut names = NameAnswersBuilder::default();
        for answer in self.code.interpreted(&asked.collect::<Vec<_>>()) {
            let answer = answer.map(|frame| vec![name(&frame, &mut names)]).map_err(why);
            if !names.answer(answer) {
                break;
            }
        }
        WorkerResponse::Names(names.finish())
    }

    fn threads(&mut self, numbers: &[u32]) -> WorkerResponse {
        WorkerResponse::Texts(self.code.thread_names(numbers))
    }

    fn owners(&mut self, waiters: &[u32]) -> WorkerResponse {
        WorkerResponse::Owners(self.code.owners_of(waiters))
    }

    fn classes(&mut self, lookups: &[JavaClassAt]) -> WorkerResponse {
        let asked = lookups.iter().map(|l| ClassQuery { class: l.class, at: MonoNs(l.from) });
        WorkerResponse::Texts(self.code.class_names(&asked.collect::<Vec<_>>()))
    }
}

fn why(miss: VmMiss) -> UnknownReason {
    match miss {
        VmMiss::NoCode => UnknownReason::NoCode,
        VmMiss::CodeMoved => UnknownReason::CodeMoved,
        VmMiss::MethodGone => UnknownReason::MethodGone,
        VmMiss::ProcessGone => UnknownReason::ProcessGone,
        VmMiss::BadMemory => UnknownReason::BadMemory,
    }
}
