//! How a log is read, and how much of it is kept.

use jvm_symbols_log::Quotas;

/// How to read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeOptions {
    /// Keep the numbers in names that differ from run to run.
    pub raw_names: bool,
    /// How far the JVM's `CLOCK_MONOTONIC` is ahead of the host's, ns (`/proc/PID/timens_offsets`).
    pub clock_offset: i64,
    /// Maximum delay of the JVM's records, ns: code may have run before the logged end of the code that it replaced.
    pub slack: u64,
    /// How long freed code can still be looked up, ns: stacks wait some seconds for their names, and a worker may be
    /// slow.
    pub keep: u64,
    /// How much of one JVM may be read and kept.
    pub limits: CodeLimits,
}

impl Default for CodeOptions {
    fn default() -> CodeOptions {
        CodeOptions {
            raw_names: false,
            clock_offset: 0,
            slack: 500_000_000,
            keep: 30_000_000_000,
            limits: CodeLimits::default(),
        }
    }
}

/// How much of one JVM is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLimits {
    /// Quotas for reading records.
    pub log: Quotas,
    /// Most methods that are kept; later ones are refused.
    pub methods: usize,
    /// Bytes of names and line tables.
    pub name_bytes: usize,
    /// Number of compiled methods and stubs.
    pub code: usize,
    /// Bytes of compiled methods and stubs: debug records, and the index by address.
    pub code_bytes: usize,
    /// Longest code of one method or stub, bytes; longer code is refused.
    pub code_size: u32,
    /// Most pages, and code on them, that one read visits: a log of long, overlapping code would cause millions.
    pub visits: usize,
}

impl Default for CodeLimits {
    fn default() -> CodeLimits {
        CodeLimits {
            log: Quotas::default(),
            methods: 1 << 20,
            name_bytes: 128 << 20,
            code: 1 << 20,
            code_bytes: 128 << 20,
            code_size: 16 << 20,
            visits: 32 << 20,
        }
    }
}
