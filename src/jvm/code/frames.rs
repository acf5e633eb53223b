//! From a PC within compiled code to Java frames.

use std::sync::Arc;

use jvm_symbols_log::{PcDecoder, PcFrame};

use super::methods::{JavaMethod, LoggedMethods, MethodId};

/// How the code of a Java frame is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The method that was compiled: it has a stack frame.
    Compiled,
    /// A method inlined into it.
    Inlined,
    /// A method that the interpreter runs.
    Interpreted,
    /// Generated code that is no method: an adapter, the interpreter, a runtime stub.
    Stub,
    /// A method that the log does not describe (quota, dropped record): its name is unknown.
    Unnamed,
}

/// A frame of the chain at an address: a Java method or a stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaFrame {
    /// How the code is run.
    pub kind: FrameKind,
    /// `package.Class.method`, or HotSpot's name of a stub; empty for [`FrameKind::Unnamed`].
    pub name: Arc<str>,
    /// Names and source file apart; `None` for stubs and unnamed methods.
    pub method: Option<Arc<JavaMethod>>,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Bytecode index, if known.
    pub bci: Option<u32>,
}

impl JavaFrame {
    pub(in crate::jvm) fn stub(name: &Arc<str>) -> JavaFrame {
        JavaFrame { kind: FrameKind::Stub, name: Arc::clone(name), method: None, line: 0, bci: None }
    }

    pub(in crate::jvm) fn of(
        kind: FrameKind,
        method: Option<&Arc<JavaMethod>>,
        bci: Option<u32>,
    ) -> JavaFrame {
        match method {
            Some(method) => JavaFrame {
                kind,
                name: Arc::clone(&method.name),
                line: method.line(bci),
                method: Some(Arc::clone(method)),
                bci,
            },
            None => JavaFrame { kind: FrameKind::Unnamed, name: "".into(), method: None, line: 0, bci },
        }
    }

    /// Removes line and bytecode index where `other` differs; `false` if even the methods' names differ.
    pub(super) fn keep_common(&mut self, other: &JavaFrame) -> bool {
        if self.line != other.line {
            self.line = 0;
        }
        if self.bci != other.bci {
            self.bci = None;
        }
        let file = |frame: &JavaFrame| frame.method.as_ref().and_then(|method| method.file.clone());
        self.kind == other.kind && self.name == other.name && file(self) == file(other)
    }
}

#[derive(Debug)]
pub(super) struct Compiled {
    /// The compiled method first.
    pub(super) methods: Box<[MethodId]>,
    /// The debug records in the log's encoding.
    pub(super) debug: Box<[u8]>,
}

impl Compiled {
    /// A reader at the start of the debug records; `methods` are the log's.
    pub(super) fn records<'a>(&'a self, methods: &'a LoggedMethods) -> Records<'a> {
        let decoder = PcDecoder::new(&self.debug, self.methods.len());
        Records { compiled: self, methods, decoder, read: Read::Nothing, asked: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.methods) + self.debug.len()
    }
}

/// A reader of debug records that continues where it stopped: questions in ascending order cost one pass.
#[derive(Debug)]
pub(super) struct Records<'a> {
    compiled: &'a Compiled,
    methods: &'a LoggedMethods,
    decoder: PcDecoder<'a>,
    read: Read,
    asked: u32,
}

/// How far records were read.
#[derive(Clone, Copy, Debug)]
enum Read {
    Nothing,
    /// Up to the record at this pc, which is the decoder's last.
    To(u32),
    /// All records, or all before the first malformed one.
    All,
}

impl<'a> Records<'a> {
    /// The frames at `pc` bytes from the code's start, innermost first.
    ///
    /// A debug record describes the code that *ends* at its pc (`NonSafepointEmitter` in HotSpot's opto/output.cpp).
    /// `match_desc` in `nmethod.cpp` takes the first record at or above a pc. So a call that returns to `pc` belongs to
    /// the record at `pc`. A leaf belongs to that record too: the clock's interrupt waits for the slow instruction,
    /// often a load from memory, and reports the instruction after it. Where that begins a region, the time was spent
    /// in the region before. (HotSpot's own AsyncGetCallTrace looks above `pc` and names the next region's method.)
    ///
    /// Above the last record only the compiled method itself is known.
    pub(super) fn frames(&mut self, pc: u32) -> Vec<JavaFrame> {
        if pc < self.asked {
            *self = self.compiled.records(self.methods);
        }
        self.asked = pc;
        loop {
            match self.read {
                Read::To(record) if record >= pc => return self.chain(&self.decoder.chain()),
                Read::All => break,
                Read::Nothing | Read::To(_) => match self.decoder.step() {
                    Ok(Some(record)) => self.read = Read::To(record.pc),
                    Ok(None) | Err(_) => self.read = Read::All,
                },
            }
        }
        let mut frame = JavaFrame::of(FrameKind::Compiled, self.method(0), None);
        frame.line = 0;
        vec![frame]
    }

    /// A method of the code's own table.
    fn method(&self, place: usize) -> Option<&'a Arc<JavaMethod>> {
        self.methods.get(*self.compiled.methods.get(place)?)
    }

    fn chain(&self, outermost_first: &[PcFrame]) -> Vec<JavaFrame> {
        let frames = outermost_first.iter().enumerate().map(|(depth, frame)| {
            let kind = if depth == 0 { FrameKind::Compiled } else { FrameKind::Inlined };
            let method = self.method(frame.method as usize);
            JavaFrame::of(kind, method, u32::try_from(frame.bci).ok())
        });
        frames.rev().collect()
    }
}
