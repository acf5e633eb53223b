//! Hierarchies of cgroups, and the controllers that may have one of their own.

use std::fmt;

/// A controller that can have a hierarchy of its own in v1. In v2 all controllers share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Controller {
    /// `memory`: limits and counts memory.
    Memory,
    /// `pids`: limits the number of tasks.
    Pids,
    /// `cpu`: limits CPU time and counts throttled periods.
    Cpu,
    /// `cpuacct`: counts CPU time; usually mounted with `cpu`.
    Cpuacct,
    /// `cpuset`: selects CPUs and memory nodes.
    Cpuset,
    /// `devices`: restricts access to device files.
    Devices,
    /// `freezer`: stops and resumes all tasks.
    Freezer,
    /// `blkio`: limits block I/O; v2 calls it `io`.
    Blkio,
    /// `perf_event`: lets perf count a cgroup.
    PerfEvent,
    /// `hugetlb`: limits the use of huge pages.
    Hugetlb,
    /// `net_cls`: marks network packets with a class.
    NetCls,
    /// `net_prio`: sets priorities of network packets.
    NetPrio,
    /// `rdma`: limits handles and objects of RDMA devices.
    Rdma,
    /// `misc`: limits other countable resources of the host.
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
    /// The value of `enum jp_hierarchy` in `bpf/abi.h`; v2 is 0.
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
