//! Full names of threads whose names the kernel cuts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sample::{ProcessId, Stack};

/// A thread under one of its kernel names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadKey {
    process: ProcessId,
    tid: u32,
    /// Hash of the kernel's name.
    comm: u64,
}

impl ThreadKey {
    pub(crate) fn of(stack: &Stack) -> ThreadKey {
        ThreadKey { process: stack.key.process, tid: stack.key.tid, comm: stack.key.comm }
    }
}

/// Full names, by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct FullThreadNames(HashMap<ThreadKey, Arc<str>>);

impl FullThreadNames {
    /// The full name of the thread of this stack.
    pub(crate) fn of(&self, stack: &Stack) -> Option<&Arc<str>> {
        self.0.get(&ThreadKey::of(stack))
    }

    pub(crate) fn set(&mut self, thread: ThreadKey, name: Arc<str>) {
        self.0.insert(thread, name);
    }

    pub(crate) fn remove(&mut self, thread: &ThreadKey) {
        self.0.remove(thread);
    }
}
