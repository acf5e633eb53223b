//! Which process, and when: never a pid alone.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A time on `CLOCK_MONOTONIC` of the host, in nanoseconds: what `bpf_ktime_get_ns` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Now.
    #[must_use]
    pub fn now() -> MonoNs {
        MonoNs(nanoseconds(ClockId::Monotonic))
    }

    /// So much later.
    #[must_use]
    pub fn after(self, pause: Duration) -> MonoNs {
        MonoNs(self.0.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How far `CLOCK_BOOTTIME`, in which processes' starts are given, is ahead: the time spent suspended.
    pub(crate) fn boot_offset() -> u64 {
        nanoseconds(ClockId::Boottime).saturating_sub(nanoseconds(ClockId::Monotonic))
    }

    /// The same instant in nanoseconds since the epoch, as the wall clock is set now.
    pub(crate) fn wall(self) -> i128 {
        let ago = i128::from(nanoseconds(ClockId::Monotonic)) - i128::from(self.0);
        i128::from(nanoseconds(ClockId::Realtime)) - ago
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

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
