//! Full names of threads whose names the kernel cuts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sample::{ProcessId, Stack};

/// A thread under one of its kernel names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    process: ProcessId,
    tid: u32,
    /// Hash of the kernel's name.
    comm: u64,
}

impl Thread {
    pub(crate) fn of(stack: &Stack) -> Thread {
        Thread { process: stack.key.process, tid: stack.key.tid, comm: stack.key.comm }
    }
}

/// Full names, by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct WholeNames(HashMap<Thread, Arc<str>>);

impl WholeNames {
    /// The full name of the thread of this stack.
    pub(crate) fn of(&self, stack: &Stack) -> Option<&Arc<str>> {
        self.0.get(&Thread::of(stack))
    }

    pub(crate) fn set(&mut self, thread: Thread, name: Arc<str>) {
        self.0.insert(thread, name);
    }

    pub(crate) fn remove(&mut self, thread: &Thread) {
        self.0.remove(thread);
    }
}
