//! A process whose allocations are sampled, or the reason why they are not, or not all of them.

use std::collections::BTreeMap;

use super::choice::ChosenFunction;
use crate::capture::AllocationLink;
use crate::process::Unopened;

/// Why allocations of a process are not sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum NoAllocator {
    #[error(
        "neither the program nor a library of it has the function malloc in its symbol tables (a static program without \
         symbols, or a runtime with an allocator of its own)"
    )]
    NoFunction,
    #[error("{path}: the file cannot be opened: {why}")]
    Unopened { path: String, why: String },
    #[error("{path}: the symbols cannot be read: {why}")]
    Unreadable { path: String, why: String },
    #[error("{0}: a program serves its file system, and the kernel places no uprobe in the profiler's copy")]
    Served(String),
    #[error("{0}: the file system did not answer in time")]
    TooSlow(String),
    #[error("the kernel refused a uprobe: {0}")]
    Refused(String),
    #[error("its mappings or its memory could not be read")]
    NotReadable,
    #[error("as many other processes are sampled already as there is room for ({0})")]
    TooMany(usize),
}

impl NoAllocator {
    pub(super) fn unopened(path: &str, why: Unopened) -> NoAllocator {
        NoAllocator::Unopened { path: path.to_owned(), why: why.to_string() }
    }
}

/// A process at which the stage has looked.
#[derive(Debug, Default)]
pub(super) struct ProbedProcess {
    /// The programs at its functions.
    pub(super) links: BTreeMap<ChosenFunction, AllocationLink>,
    /// Why nothing is sampled. No function has a program then.
    pub(super) refused: Option<NoAllocator>,
    /// Why functions may be in use that have no programs, beside those that have.
    pub(super) doubt: Option<NoAllocator>,
    /// The thread by which the programs are attached. The kernel runs them in all threads of the process, as long as this
    /// one lives. `None`: nothing was attached yet, or the process has ended.
    pub(super) thread: Option<u32>,
    pub(super) has_ended: bool,
}

impl ProbedProcess {
    /// Whether the functions of the process have programs.
    pub(super) fn is_sampled(&self) -> bool {
        !self.links.is_empty()
    }

    /// Notes why no more programs are attached. Those that are attached stay.
    pub(super) fn refuse(&mut self, why: NoAllocator) {
        let reason = if self.is_sampled() { &mut self.doubt } else { &mut self.refused };
        *reason = Some(why);
    }
}
