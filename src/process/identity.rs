//! Which process: never a pid alone.

/// A time on `CLOCK_MONOTONIC` of the host, in nanoseconds: what `bpf_ktime_get_ns` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoNs(pub u64);

/// One program in one process: pids are reused, and exec keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Thread group id in the initial pid namespace.
    pub tgid: u32,
    /// `start_boottime` of the group leader, nanoseconds since boot, suspend included.
    pub start: u64,
    /// Low 32 bits of the kernel's `self_exec_id`: changes with every exec.
    pub exec: u32,
}

impl ProcessId {
    /// The idle tasks of all CPUs: pid 0.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.tgid == 0
    }
}
