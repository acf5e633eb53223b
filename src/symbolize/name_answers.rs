//! The names that a worker sends: for each address an answer, with each text once.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::profile::{Kind, UnknownReason};

/// A remark on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AnswerMark {
    /// The code has debug records at calls and safepoints only: compiled before the agent came, or without agent.
    BeforeAttach,
    /// The answer is known to change later.
    Passing,
    /// There is no single answer: the code changed between the first and the last time of the lookup.
    Split,
}

/// Answers; each text is contained once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NameAnswers {
    pub(crate) texts: Vec<String>,
    pub(crate) answers: Vec<Result<Vec<Name>, UnknownReason>>,
    /// Remarks on some answers, by index. Java only.
    pub(crate) marks: Vec<(u32, AnswerMark)>,
}

/// The name of a function, or its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FunctionLabel {
    /// An index in [`NameAnswers::texts`].
    Text(u32),
    /// The function has no name; it begins at this virtual address of the file.
    Start(u64),
    /// Neither name nor start are known; the code is at this virtual address of the file.
    At(u64),
}

/// One function; of several, the outermost comes first. Numbers are indexes in [`NameAnswers::texts`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) label: FunctionLabel,
    pub(crate) file: Option<u32>,
    pub(crate) line: u32,
    pub(crate) bci: Option<u32>,
}

impl Name {
    /// Code that no symbol covers, at this virtual address of the file.
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

/// Estimated size at which further answers are left for the next request, bytes.
pub(super) const MAX_ANSWERS: usize = 8 << 20;

impl NameAnswersBuilder {
    /// The index of `text`, which is added if it is new.
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

    /// Adds an answer. Returns false if no further one fits.
    pub(crate) fn answer(&mut self, answer: Result<Vec<Name>, UnknownReason>) -> bool {
        self.bytes += 2 + answer.as_ref().map_or(0, |names| names.len() * size_of::<Name>());
        self.names.answers.push(answer);
        self.bytes < MAX_ANSWERS
    }

    /// Adds a remark on the next answer.
    pub(crate) fn add_mark(&mut self, mark: AnswerMark) {
        let next = u32::try_from(self.names.answers.len()).unwrap_or(u32::MAX);
        self.names.marks.push((next, mark));
    }

    pub(crate) fn finish(self) -> NameAnswers {
        self.names
    }
}
