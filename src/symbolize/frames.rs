//! Turns names from the worker into frames. Each text is held once.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::RandomState;

use super::name_answers::{FunctionLabel, NameAnswers};
use crate::profile::frame::Module;
use crate::profile::stripped::{by_block, by_start};
use crate::profile::{Frame, Kind, UnknownReason};

/// The frames of one address, outermost first: a function and the functions inlined into it.
pub(crate) type FrameChain = Arc<[Arc<Frame>]>;

/// Distinct texts, and frames, that are shared. Beyond this number, sharing starts anew.
const MAX_SHARED: usize = 128 << 10;

/// Shares equal texts, and equal frames of generated code.
#[derive(Debug, Default)]
pub(crate) struct FrameInterner {
    texts: HashSet<Arc<str>, RandomState>,
    frames: HashSet<Arc<Frame>, RandomState>,
}

impl FrameInterner {
    /// Evicts texts and frames that have no other holder.
    pub(crate) fn evict_unused(&mut self) {
        self.frames.retain(|frame| Arc::strong_count(frame) > 1);
        self.frames.shrink_to_fit();
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.texts.shrink_to_fit();
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return Arc::clone(shared);
        }
        if self.texts.len() >= MAX_SHARED {
            self.texts.clear();
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&shared));
        shared
    }

    /// One method has hundreds of addresses, compiled here and inlined there.
    fn frame(&mut self, frame: Frame) -> Arc<Frame> {
        if let Some(shared) = self.frames.get(&frame) {
            return Arc::clone(shared);
        }
        if self.frames.len() >= MAX_SHARED {
            self.frames.clear();
        }
        let shared = Arc::new(frame);
        self.frames.insert(Arc::clone(&shared));
        shared
    }

    /// The frames of `addresses`, as far as `names` has answers.
    pub(crate) fn frames(
        &mut self,
        names: &NameAnswers,
        addresses: &[u64],
        module: Option<&Arc<Module>>,
    ) -> Vec<Result<FrameChain, UnknownReason>> {
        let texts: Vec<Arc<str>> = names.texts.iter().map(|t| self.text(t)).collect();
        let text = |place: u32| texts.get(place as usize).cloned();
        let frames = names.answers.iter().zip(addresses).map(|(answer, &address)| {
            let names = answer.as_ref().map_err(|&why| why)?;
            // The worker is not trusted: an answer without names, or with invalid places, is rejected.
            let frames: Option<FrameChain> = names
                .iter()
                .map(|name| {
                    if let (FunctionLabel::At(place), Some(module)) = (name.label, module) {
                        let block = self.text(&by_block(module, place));
                        let unknown =
                            Frame::unknown(UnknownReason::NoSymbol, Some(Arc::clone(module)), address);
                        return Some(Arc::new(Frame { name: block, ..unknown }));
                    }
                    if name.kind == Kind::Unknown {
                        // The log does not contain the method's name.
                        return Some(Arc::new(Frame::unknown(
                            UnknownReason::LogCut,
                            module.cloned(),
                            address,
                        )));
                    }
                    let called = match (name.label, module) {
                        (FunctionLabel::Text(place), _) => text(place)?,
                        (FunctionLabel::Start(start), Some(module)) => self.text(&by_start(module, start)),
                        (FunctionLabel::Start(_) | FunctionLabel::At(_), _) => return None,
                    };
                    let frame = Frame {
                        file: name.file.and_then(text),
                        line: name.line,
                        bci: name.bci,
                        module: module.cloned(),
                        address: if module.is_some() { address } else { 0 },
                        ..Frame::named(name.kind, called)
                    };
                    Some(if module.is_some() { Arc::new(frame) } else { self.frame(frame) })
                })
                .collect();
            frames.filter(|f| !f.is_empty()).ok_or(UnknownReason::WorkerFailed)
        });
        frames.collect()
    }
}

/// One frame without a name.
pub(crate) fn unknown(why: UnknownReason, module: Option<&Arc<Module>>, address: u64) -> FrameChain {
    Arc::from([Arc::new(Frame::unknown(why, module.cloned(), address))])
}

/// One frame with a fixed name.
pub(crate) fn single(kind: Kind, name: &str, module: Option<Arc<Module>>, address: u64) -> FrameChain {
    Arc::from([Arc::new(Frame { module, address, ..Frame::named(kind, name) })])
}

/// The frame of the interpreter when it is not in a method.
pub(crate) fn interpreter() -> FrameChain {
    single(Kind::JavaInterpreted, "Interpreter", None, 0)
}

/// The frame of x86-64's vsyscall page, which is not a mapping.
pub(crate) fn vsyscall(pc: u64) -> FrameChain {
    let module = Module::at("[vsyscall]");
    single(Kind::Native, "[vsyscall]", Some(Arc::new(module)), pc)
}

/// Whether the answer is final. A file that was unavailable may be available the next time.
pub(crate) fn is_lasting(frames: &FrameChain) -> bool {
    !frames
        .iter()
        .any(|f| matches!(f.unknown, Some(UnknownReason::FileUnavailable | UnknownReason::ProcessGone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_names_are_evicted() {
        let mut shared = FrameInterner::default();
        let kept = shared.text("kept");
        let frame = Frame::named(Kind::Java, Arc::clone(&kept));
        let held = shared.frame(frame.clone());
        let gone = shared.text("gone");
        shared.frame(Frame::named(Kind::Java, gone));
        shared.evict_unused();
        assert_eq!((shared.frames.len(), shared.texts.len()), (1, 1));
        assert!(Arc::ptr_eq(&held, &shared.frame(frame)) && Arc::ptr_eq(&kept, &shared.text("kept")));
    }
}
