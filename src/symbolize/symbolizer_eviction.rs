//! Eviction of data: of ended processes, of files that no process maps, and of unused names.

use std::time::Instant;

use super::Symbolizer;
use super::place::AddressSpaces;
use crate::sample::{MonoNs, ProcessId};

/// How long unused names are kept, ns, or up to twice as long. Programs that are copied before they run (runc from 1.0
/// on) are new files each time.
const KEPT_NS: u64 = 300_000_000_000;

impl Symbolizer {
    /// Closes the name sources of a JVM that has ended and whose stacks have all been symbolized.
    pub fn close_jvm(&mut self, process: ProcessId) {
        self.known.forget(process);
        self.jvms.forget(process);
        self.jvms_without_agent.remove(&process);
    }

    /// Forgets everything about a JVM that has ended, also its leaves for the report.
    pub fn forget(&mut self, process: ProcessId) {
        self.close_jvm(process);
        self.java_leaves.remove(&process);
    }

    /// Forgets the processes that are no longer known, and closes files that no process maps. Unused names are evicted
    /// some minutes later. Must be called for each window.
    pub fn evict_unused(&mut self, spaces: &impl AddressSpaces) {
        let is_known = |id| spaces.is_known(id);
        self.known.forget_ended(is_known);
        self.jit.forget_ended(&mut self.child, is_known);
        self.files.forget_unmapped(&mut self.child);
        if self.native.age(MonoNs::now(), KEPT_NS) {
            self.forget_names();
        }
    }

    fn forget_names(&mut self) {
        self.files.evict_unused();
        self.jit.evict_unused();
        self.jvms.evict_unused();
    }

    /// Frees memory whose content can be read again: cached frames, and the worker for files.
    pub fn release_memory(&mut self) {
        self.native.clear();
        self.known.clear();
        self.forget_names();
        self.child.restart();
    }

    /// Replaces the worker if it holds too much. The next one gets the files again that are looked up.
    pub(super) fn evict(&mut self) {
        let held = self.child.resident();
        if self.eviction.replaces(held, Instant::now()) {
            log::info!("symbols: replacing the worker, which uses {} KiB", held >> 10);
            self.child.restart();
        }
    }
}
