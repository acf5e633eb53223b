//! Settings of symbolization.

use std::path::PathBuf;
use std::time::Duration;

/// Sources and limits of symbols.
#[derive(Clone, Debug)]
pub struct SymbolConfig {
    /// The binary to start as the worker: this program's own.
    pub binary: PathBuf,
    /// Keep names of generated code as the runtime writes them.
    pub raw_names: bool,
    /// How long the worker may take for one request.
    pub timeout: Duration,
    /// Resident memory above which the worker is replaced, bytes. Replacements are 5 s apart at least, and up to 60 s
    /// if the next worker grows as large as quickly. Above twice this size, the worker is replaced at once.
    pub worker_memory: u64,
    /// Cached places in files, and cached addresses of processes; each cache holds up to twice as many.
    pub cached: usize,
    /// Shortest time between two attempts to open a perf map, or to read on in it.
    pub perf_map_interval: Duration,
    /// Directory of separate debug files, by build id.
    pub debug_dir: PathBuf,
}

impl SymbolConfig {
    /// The default limits, with `binary` as the worker.
    #[must_use]
    pub fn new(binary: PathBuf) -> SymbolConfig {
        SymbolConfig {
            binary,
            raw_names: false,
            timeout: Duration::from_secs(5),
            worker_memory: 48 << 20,
            cached: 64 << 10,
            // Each window of one second may have newer code than the previous one.
            perf_map_interval: Duration::from_millis(200),
            debug_dir: PathBuf::from("/usr/lib/debug"),
        }
    }
}
