//! The JVMs of a session: those that run, and those that exited and are not reported yet.

use std::collections::HashMap;

use super::jvm::JvmEntry;
use crate::sample::ProcessId;
use crate::symbolize::Symbolizer;
use crate::world::World;

/// A process that exited: its last stacks come with the window of the exit.
struct LeavingJvm {
    tgid: u32,
    /// The window of the exit.
    window: u64,
}

struct ExitedJvm {
    /// The window that showed the exit: the last one that may have the JVM's stacks.
    window: u64,
    entry: JvmEntry,
}

#[derive(Default)]
pub(super) struct JvmEntries {
    /// By pid.
    pub(super) running: HashMap<u32, JvmEntry>,
    leaving: Vec<LeavingJvm>,
    ended: Vec<ExitedJvm>,
    /// JVMs that were reported, and may have stacks that wait until the next part is reported.
    reported: Vec<ProcessId>,
}

impl JvmEntries {
    /// The JVMs that run, and those that exited.
    pub(super) fn all(&self) -> impl Iterator<Item = &JvmEntry> {
        self.running.values().chain(self.ended.iter().map(|exited| &exited.entry))
    }

    /// Like [`JvmEntries::all`].
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut JvmEntry> {
        self.running.values_mut().chain(self.ended.iter_mut().map(|exited| &mut exited.entry))
    }

    /// Ends the JVMs whose processes exited in a window before `window`.
    pub(super) fn end_leaving(&mut self, window: u64) {
        for LeavingJvm { tgid, .. } in self.leaving.extract_if(.., |leaving| leaving.window < window) {
            self.ended.extend(self.running.remove(&tgid).map(|entry| ExitedJvm { window, entry }));
        }
    }

    /// Records the JVMs whose processes have ended, as of `window`. Their stacks of this window are still to come.
    pub(super) fn mark_leaving(&mut self, window: u64, has_ended: impl Fn(u32) -> bool) {
        let is_new = |tgid: &u32| !self.leaving.iter().any(|leaving| leaving.tgid == *tgid);
        let ended = self.running.keys().copied().filter(|tgid| has_ended(*tgid));
        let leaving: Vec<LeavingJvm> = ended.filter(is_new).map(|tgid| LeavingJvm { tgid, window }).collect();
        self.leaving.extend(leaving);
    }

    /// Ends the JVM with this pid at once: another program has the pid now.
    pub(super) fn end_replaced(&mut self, window: u64, tgid: u32) {
        self.leaving.retain(|leaving| leaving.tgid != tgid);
        self.ended.extend(self.running.remove(&tgid).map(|entry| ExitedJvm { window, entry }));
    }

    /// Closes the symbol sources of JVMs that exited in earlier windows, unless their stacks still wait: a long run has
    /// thousands of such JVMs.
    pub(super) fn close_ended(&mut self, world: &mut World) {
        let ended = self.ended.iter_mut().filter(|exited| exited.window < world.window);
        for entry in ended.map(|exited| &mut exited.entry).filter(|entry| !entry.is_closed()) {
            if !entry.bound.is_some_and(|process| world.awaiting_names.contains(&process)) {
                entry.close(&mut world.symbolizer);
            }
        }
    }

    /// Forgets exited JVMs: those of the part before now, those of this part with the next call. `last_window` is the
    /// last one of this part: JVMs that exited in later windows are not reported yet.
    pub(super) fn forget_ended(&mut self, last_window: u64, symbolizer: &mut Symbolizer) {
        let mut left = Vec::new();
        for ExitedJvm { mut entry, .. } in self.ended.extract_if(.., |exited| exited.window <= last_window) {
            // No stack of these windows waits any more.
            if !entry.is_closed() {
                entry.close(symbolizer);
            }
            left.extend(entry.bound);
        }
        for process in std::mem::replace(&mut self.reported, left) {
            symbolizer.forget(process);
        }
    }
}
