//! Whose names come late.

use std::collections::HashMap;

/// How far a runtime is with the names of a process's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameDelay {
    /// It is not known yet whether there will be names.
    Undecided,
    /// They come while the code runs, up to a window late.
    Late,
}

/// The processes whose names come late. All others' are there at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(HashMap<u32, NameDelay>);

impl Readiness {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn set(&mut self, tgid: u32, delay: NameDelay) {
        self.0.insert(tgid, delay);
    }

    /// Whether stacks of the process are to wait, as both kinds do.
    pub(crate) fn waits(&self, tgid: u32) -> bool {
        self.0.contains_key(&tgid)
    }

    /// Whether they are to wait however long it takes, up to the end.
    pub(crate) fn is_undecided(&self, tgid: u32) -> bool {
        self.0.get(&tgid) == Some(&NameDelay::Undecided)
    }
}
