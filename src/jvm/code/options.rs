//! How a log is read, and how much of it is kept.

use jvm_symbols_log::Quotas;

/// How to read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeOptions {
    /// Keep the numbers in names that differ from run to run.
    pub raw_names: bool,
    /// What the JVM's `CLOCK_MONOTONIC` shows more than the host's, ns (`/proc/PID/timens_offsets`).
    pub clock_offset: i64,
    /// The JVM tells late, by this at most, ns: before the logged end of code its successor may have run already.
    pub slack: u64,
    /// How long code that is gone can still be asked for, ns: stacks wait some seconds for their names, and a worker may be
    /// slow.
    pub keep: u64,
    /// Quotas.
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
    /// Of reading.
    pub log: Quotas,
    /// Methods.
    pub methods: usize,
    /// Bytes of names and line tables.
    pub name_bytes: usize,
    /// Compiled methods and stubs.
    pub code: usize,
    /// Bytes of compiled methods and stubs: debug records, and what it takes to find code by its address.
    pub code_bytes: usize,
    /// Longest code.
    pub code_size: u32,
    /// Pages, and code on them, that one reading looks at: millions in a moment, if a log lets long code lie on long code.
    pub looks: usize,
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
            looks: 32 << 20,
        }
    }
}
