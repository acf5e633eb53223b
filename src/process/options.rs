//! Limits on what is read and kept of processes.

use std::path::PathBuf;
use std::time::Duration;

use super::timed_calls::CALL_TIMEOUT;

/// Limits. The defaults fit a host with some thousand processes.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// This binary. It also runs as the process that opens files of untrusted file systems.
    pub binary: PathBuf,
    /// How long reading a `/proc` file or opening a mapped file may take.
    pub call_timeout: Duration,
    /// Files that are kept open at most; fewer if `RLIMIT_NOFILE` is low.
    pub max_open_files: usize,
    /// Executable mappings of one process at most, past ones included.
    pub max_mappings: usize,
    /// Executable mappings of all processes at most; about 80 bytes each.
    pub max_mappings_in_all: usize,
}

impl Default for ProcessOptions {
    fn default() -> ProcessOptions {
        ProcessOptions {
            binary: PathBuf::from("/proc/self/exe"),
            call_timeout: CALL_TIMEOUT,
            max_open_files: 512,
            max_mappings: 65_536,
            max_mappings_in_all: 1 << 19,
        }
    }
}
