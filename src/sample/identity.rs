//! Identity of processes, and times. A pid alone does not identify a process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A time on the host's `CLOCK_MONOTONIC`, in nanoseconds, as `bpf_ktime_get_ns` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// The current time of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn now() -> MonoNs {
        MonoNs(nanoseconds(ClockId::Monotonic))
    }

    /// The time `pause` later.
    #[must_use]
    pub fn after(self, pause: Duration) -> MonoNs {
        MonoNs(self.0.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC` in nanoseconds: the time spent suspended. Process start times are on
    /// the former.
    pub(crate) fn boot_offset() -> u64 {
        nanoseconds(ClockId::Boottime).saturating_sub(nanoseconds(ClockId::Monotonic))
    }

    /// The same instant in nanoseconds since the epoch, by the current setting of the wall clock.
    pub(crate) fn wall(self) -> i128 {
        let ago = i128::from(nanoseconds(ClockId::Monotonic)) - i128::from(self.0);
        i128::from(nanoseconds(ClockId::Realtime)) - ago
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Identifies one program in one process, because pids are reused, and exec keeps the pid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Thread group id in the initial pid namespace.
    pub tgid: u32,
    /// `start_boottime` of the group leader: nanoseconds since boot, including time suspended.
    pub start: u64,
    /// Low 32 bits of the kernel's `self_exec_id`, which every exec changes.
    pub exec: u32,
}

impl ProcessId {
    /// Whether these are the idle tasks of all CPUs: pid 0.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.tgid == 0
    }
}

/// A process that ran in a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessInCgroup {
    pub(crate) process: ProcessId,
    /// kernfs id of the cgroup in the hierarchy that identifies containers; 0 if unknown.
    pub(crate) cgroup: u64,
}
