//! What is given back: by processes that have ended, by files that nobody maps, by names that nobody uses.

use std::time::Instant;

use super::Symbolizer;
use super::place::AddressSpaces;
use crate::sample::{MonoNs, ProcessId};

/// Names that nobody asks for are kept for so long, ns, or for up to twice as long: programs that are copied before they
/// run (runc from 1.0 on) are new files each time.
const KEPT: u64 = 300_000_000_000;

impl Symbolizer {
    /// Closes what the code of a JVM is named by that has ended and whose stacks have all been symbolized.
    pub fn close_jvm(&mut self, process: ProcessId) {
        self.known.forget(process);
        self.jvms.forget(process);
        self.silent_jvms.remove(&process);
    }

    /// Forgets all of such a one.
    pub fn forget(&mut self, process: ProcessId) {
        self.close_jvm(process);
        self.java_leaves.remove(&process);
    }

    /// Forgets the processes that are not known any more, and has files closed that none maps; names that nobody uses go
    /// some minutes later. To be called each window.
    pub fn evict_unused(&mut self, spaces: &impl AddressSpaces) {
        let is_known = |id| spaces.is_known(id);
        self.known.forget_ended(is_known);
        self.jit.forget_ended(&mut self.child, is_known);
        self.files.forget_unmapped(&mut self.child);
        if self.native.age(MonoNs::now(), KEPT) {
            self.forget_names();
        }
    }

    fn forget_names(&mut self) {
        self.files.evict_unused();
        self.jit.evict_unused();
        self.jvms.evict_unused();
    }

    /// Gives back the memory of what can be learnt again: cached frames, and the worker for files.
    pub fn release_memory(&mut self) {
        self.native.clear();
        self.known.clear();
        self.forget_names();
        self.child.restart();
    }

    /// Replaces the worker if it holds too much. It is given again what it is asked about.
    pub(super) fn evict(&mut self) {
        let held = self.child.resident();
        if self.eviction.replaces(held, Instant::now()) {
            log::info!("symbols: replacing the worker, which uses {} KiB", held >> 10);
            self.child.restart();
        }
    }
}
