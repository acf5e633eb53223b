//! Processes whose code gets its names late.

use std::collections::HashMap;

/// How late a runtime gives the names of a process's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameDelay {
    /// It is not known yet whether the runtime will give names.
    Undecided,
    /// Names come while the code runs, up to a window late.
    Late,
}

/// The processes whose names come late. The names of all other processes are there at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(HashMap<u32, NameDelay>);

impl Readiness {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn set(&mut self, tgid: u32, delay: NameDelay) {
        self.0.insert(tgid, delay);
    }

    /// Whether stacks of the process must wait for their names.
    pub(crate) fn is_late(&self, tgid: u32) -> bool {
        self.0.contains_key(&tgid)
    }

    /// Whether they must wait until the runtime has decided, or until the end of the session.
    pub(crate) fn is_undecided(&self, tgid: u32) -> bool {
        self.0.get(&tgid) == Some(&NameDelay::Undecided)
    }
}
