//! All processes: who they were when, and what was mapped where.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::event::ProcessEvent;
use super::file::MappedFile;
use super::{MonoNs, ProcessId, TargetRoot};

/// Limits; the defaults fit a host with some thousand processes.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long reading a `/proc` file or opening a mapped file may take.
    pub patience: Duration,
    /// Files kept open at most.
    pub max_open_files: usize,
    /// Executable mappings of one process at most, past ones included.
    pub max_mappings: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { patience: Duration::from_millis(500), max_open_files: 512, max_mappings: 65_536 }
    }
}

/// Which processes to read at the start.
#[derive(Clone, Debug)]
pub enum Which<'a> {
    /// All that there are.
    All,
    /// These thread groups.
    Tgids(&'a [u32]),
}

/// Where an address of a process leads to.
#[derive(Clone, Debug)]
pub enum Location {
    /// Into a file. The file may be none that can be opened, or (a memfd: path `/memfd:…`) a JIT's memory.
    File {
        /// The file.
        file: Arc<MappedFile>,
        /// Offset in it, bytes.
        offset: u64,
    },
    /// Into anonymous memory: JIT code.
    Anonymous {
        /// First address of the mapping.
        start: u64,
        /// Address after its last.
        end: u64,
    },
    /// Into the kernel's vdso.
    Vdso {
        /// Offset in its ELF image, bytes.
        offset: u64,
    },
    /// Into the vsyscall page of x86-64.
    Vsyscall,
    /// Nowhere.
    Unknown(Unlocated),
}

/// Why an address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unlocated {
    /// No executable mapping covers it.
    NotMapped,
    /// The process had ended before its mappings could be read.
    ProcessGone,
    /// Its mappings could not be read in time.
    TooSlow,
    /// It has more mappings than are kept.
    TooManyMappings,
}

/// What is known of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Thread group id.
    pub tgid: u32,
    /// Thread group of its parent when it was made or first seen.
    pub parent: u32,
    /// Name of the group leader, at most 15 bytes of any kind.
    pub comm: Arc<[u8]>,
    /// When this program began (fork or exec); 0 if it was there before the profiler.
    pub from: MonoNs,
    /// When all its threads had ended.
    pub exited: Option<MonoNs>,
}

/// The table of processes.
#[derive(Debug)]
pub struct Processes {
    options: Options,
    infos: HashMap<u32, ProcessInfo>,
}

impl Processes {
    /// An empty table.
    #[must_use]
    pub fn new(options: Options) -> Processes {
        Processes { options, infos: HashMap::new() }
    }

    /// Notes the processes that are there. Call it after the side-band events have been enabled. Returns how many
    /// were found.
    pub fn scan(&mut self, which: &Which<'_>) -> usize {
        let _ = (which, &self.options);
        0
    }

    /// Takes in what happened to a process. Events must come in the order of their times.
    pub fn apply(&mut self, event: &ProcessEvent) {
        let _ = event;
    }

    /// Where `pc` led to in program `id` at the time `at`.
    pub fn locate(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> Location {
        let _ = (id, at, pc);
        Location::Unknown(Unlocated::ProcessGone)
    }

    /// What is known of a program; `None` if it was never seen. `at` is the time of any of its samples.
    pub fn info(&mut self, id: ProcessId, at: MonoNs) -> Option<&ProcessInfo> {
        let _ = at;
        self.infos.get(&id.tgid)
    }

    /// The root directory of a program, kept from its first sample on.
    pub fn root(&mut self, id: ProcessId, at: MonoNs) -> Option<Arc<TargetRoot>> {
        let _ = (id, at);
        None
    }

    /// These processes and all their descendants that are alive.
    #[must_use]
    pub fn descendants(&self, roots: &[u32]) -> Vec<u32> {
        roots.to_vec()
    }

    /// Forgets the programs that ended before `before`, and mappings that were replaced before it.
    pub fn retire(&mut self, before: MonoNs) {
        self.infos.retain(|_, info| info.exited.is_none_or(|at| at >= before));
    }
}
