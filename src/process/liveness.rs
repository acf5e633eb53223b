//! Which processes are known, which of them live, and who descends from whom.

use std::collections::BTreeSet;

use super::Processes;
use crate::sample::ProcessId;

/// Generations that are searched for an ancestor, since reused pids could lead in a circle. A living process has fewer
/// living ancestors.
const MAX_GENERATIONS: usize = 4096;

impl Processes {
    /// Processes that began, ended, or mapped something since the last call.
    pub fn take_changed_processes(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }

    /// What the next [`Processes::take_changed_processes`] returns.
    pub fn touched(&self) -> &BTreeSet<u32> {
        &self.touched
    }

    /// Whether a process is known and has not ended.
    #[must_use]
    pub fn is_alive(&self, tgid: u32) -> bool {
        self.timelines.get(&tgid).and_then(|line| line.last()).is_some_and(|program| program.is_alive())
    }

    /// Whether a process is known and all its threads have ended.
    #[must_use]
    pub fn has_ended(&self, tgid: u32) -> bool {
        self.timelines.get(&tgid).and_then(|line| line.last()).is_some_and(|program| !program.is_alive())
    }

    /// Whether a program is known, or one that may be it. Programs that have ended are known until they are retired.
    #[must_use]
    pub fn is_known(&self, id: ProcessId) -> bool {
        let line = self.timelines.get(&id.tgid);
        line.is_some_and(|line| line.iter().any(|program| program.id.is_none_or(|known| known == id)))
    }

    /// Whether a program is known to have been replaced by another one in an exec.
    #[must_use]
    pub fn is_former(&self, id: ProcessId) -> bool {
        let before =
            self.timelines.get(&id.tgid).and_then(|line| line.split_last()).map(|(_, before)| before);
        before.is_some_and(|before| before.iter().any(|program| program.id == Some(id)))
    }

    /// Whether a process is one of `roots` or descends from one, as far as its ancestors are known.
    #[must_use]
    pub fn descends(&self, tgid: u32, roots: &[u32]) -> bool {
        let mut at = tgid;
        for _ in 0..MAX_GENERATIONS {
            if roots.contains(&at) {
                return true;
            }
            let Some(program) = self.timelines.get(&at).and_then(|line| line.last()) else { return false };
            at = program.parent;
        }
        false
    }
}
