//! Names from the worker made into frames, each text held once.

use std::collections::HashSet;
use std::sync::Arc;

use super::message::{Label, Names};
use crate::profile::frame::Module;
use crate::profile::stripped::by_start;
use crate::profile::{Frame, Kind, Why};

/// The frames of one address, outermost first: a function and what was inlined into it.
pub(crate) type Frames = Arc<[Arc<Frame>]>;

/// Distinct texts that are shared; then sharing starts anew.
const MAX_TEXTS: usize = 128 << 10;

/// Shares equal texts.
#[derive(Debug, Default)]
pub(crate) struct Texts(HashSet<Arc<str>>);

impl Texts {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return Arc::clone(shared);
        }
        if self.0.len() >= MAX_TEXTS {
            self.0.clear();
        }
        let shared: Arc<str> = text.into();
        self.0.insert(Arc::clone(&shared));
        shared
    }

    /// The frames of `addresses`, as far as `names` has answers.
    pub(crate) fn frames(
        &mut self,
        names: &Names,
        addresses: &[u64],
        module: Option<&Arc<Module>>,
    ) -> Vec<Result<Frames, Why>> {
        let texts: Vec<Arc<str>> = names.texts.iter().map(|t| self.share(t)).collect();
        let text = |place: u32| texts.get(place as usize).cloned();
        let frames = names.answers.iter().zip(addresses).map(|(answer, &address)| {
            let names = answer.as_ref().map_err(|&why| why)?;
            // The worker is not believed: an answer without names, or with places that are none, is none.
            let frames: Option<Frames> = names
                .iter()
                .map(|name| {
                    if name.kind == Kind::Unknown {
                        // A method of which the log does not say the name.
                        return Some(Arc::new(Frame::unknown(Why::LogCut, module.cloned(), address)));
                    }
                    let called = match (name.label, module) {
                        (Label::Text(place), _) => text(place)?,
                        (Label::Start(start), Some(module)) => self.share(&by_start(module, start)),
                        (Label::Start(_), None) => return None,
                    };
                    Some(Arc::new(Frame {
                        file: name.file.and_then(text),
                        line: name.line,
                        bci: name.bci,
                        module: module.cloned(),
                        address,
                        ..Frame::named(name.kind, called)
                    }))
                })
                .collect();
            frames.filter(|f| !f.is_empty()).ok_or(Why::WorkerFailed)
        });
        frames.collect()
    }
}

/// One frame whose name is not known.
pub(crate) fn unknown(why: Why, module: Option<&Arc<Module>>, address: u64) -> Frames {
    Arc::from([Arc::new(Frame::unknown(why, module.cloned(), address))])
}

/// One frame that stands for something else than code.
pub(crate) fn single(kind: Kind, name: &str, module: Option<Arc<Module>>, address: u64) -> Frames {
    Arc::from([Arc::new(Frame { module, address, ..Frame::named(kind, name) })])
}
