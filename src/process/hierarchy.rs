//! Hierarchies of cgroups, and the controllers that may have one of their own.

use std::fmt;

/// A controller that can have a hierarchy of its own in v1. In v2 all controllers share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Controller {
    /// `memory`
    Memory,
    /// `pids`
    Pids,
    /// `cpu`
    Cpu,
    /// `cpuacct`
    Cpuacct,
    /// `cpuset`
    Cpuset,
    /// `devices`
    Devices,
    /// `freezer`
    Freezer,
    /// `blkio`
    Blkio,
    /// `perf_event`
    PerfEvent,
    /// `hugetlb`
    Hugetlb,
    /// `net_cls`
    NetCls,
    /// `net_prio`
    NetPrio,
    /// `rdma`
    Rdma,
    /// `misc`
    Misc,
}

impl Controller {
    /// All controllers, in the order of `JP_CONTROLLERS` in `bpf/abi.h`.
    pub const ALL: [Controller; 14] = [
        Controller::Memory,
        Controller::Pids,
        Controller::Cpu,
        Controller::Cpuacct,
        Controller::Cpuset,
        Controller::Devices,
        Controller::Freezer,
        Controller::Blkio,
        Controller::PerfEvent,
        Controller::Hugetlb,
        Controller::NetCls,
        Controller::NetPrio,
        Controller::Rdma,
        Controller::Misc,
    ];

    /// Name in mount options and in `/proc/PID/cgroup`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Cpuset => "cpuset",
            Controller::Devices => "devices",
            Controller::Freezer => "freezer",
            Controller::Blkio => "blkio",
            Controller::PerfEvent => "perf_event",
            Controller::Hugetlb => "hugetlb",
            Controller::NetCls => "net_cls",
            Controller::NetPrio => "net_prio",
            Controller::Rdma => "rdma",
            Controller::Misc => "misc",
        }
    }
}

/// A hierarchy of cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hierarchy {
    /// The hierarchy of v2.
    #[default]
    V2,
    /// The hierarchy of v1 that has this controller.
    V1(Controller),
}

impl Hierarchy {
    /// Number in `bpf/abi.h`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Hierarchy::V2 => 0,
            Hierarchy::V1(controller) => controller as u8 + 1,
        }
    }

    /// The hierarchy with this number in `bpf/abi.h`.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Hierarchy> {
        let Some(nth) = number.checked_sub(1) else { return Some(Hierarchy::V2) };
        Controller::ALL.get(nth as usize).copied().map(Hierarchy::V1)
    }
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hierarchy::V2 => f.write_str("v2"),
            Hierarchy::V1(controller) => write!(f, "v1 {}", controller.name()),
        }
    }
}
