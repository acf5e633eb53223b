//! Limits and places of symbolization.

use std::path::PathBuf;
use std::time::Duration;

/// How symbols are found.
#[derive(Clone, Debug)]
pub struct SymbolConfig {
    /// The binary that becomes the worker: this one.
    pub binary: PathBuf,
    /// Leave names of generated code as their runtimes write them.
    pub raw_names: bool,
    /// How long the worker may take for one request.
    pub deadline: Duration,
    /// Resident memory above which the worker is replaced by a fresh one, bytes: not more often than every 5 s, and up to
    /// every 60 s if the next one grows to this as quickly. Above twice as much it is replaced at once.
    pub worker_memory: u64,
    /// Places in files whose frames are kept, and addresses of processes; up to twice as many of each.
    pub cached: usize,
    /// How often a perf map is looked for, or read on, at most.
    pub perf_map_interval: Duration,
    /// Where separate debug files lie under their build ids.
    pub debug_dir: PathBuf,
}

impl SymbolConfig {
    /// The usual limits, with `binary` as worker.
    #[must_use]
    pub fn new(binary: PathBuf) -> SymbolConfig {
        SymbolConfig {
            binary,
            raw_names: false,
            deadline: Duration::from_secs(5),
            worker_memory: 48 << 20,
            cached: 64 << 10,
            // Each window may have code that is younger than the one before, and windows are a second.
            perf_map_interval: Duration::from_millis(200),
            debug_dir: PathBuf::from("/usr/lib/debug"),
        }
    }
}
