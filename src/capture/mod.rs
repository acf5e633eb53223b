//! Capture: loads the BPF programs, reads counted stacks and exact accounts from them, and reads process events from
//! the kernel's side-band.
//!
//! Depends on libbpf and perf events; knows neither symbols nor Java.

pub mod abi;
mod allocations;
mod arrivals;
mod batch;
mod cgroups;
mod contexts;
mod controls;
mod denied_syscall;
mod filter;
mod idle_addresses;
mod kernel_support;
mod library;
mod map;
mod numbers;
pub mod online;
pub mod perf_event;
pub mod perf_ring;
pub mod perf_source;
mod probe_place;
mod probes;
pub mod program;
mod programs;
mod rss_source;
mod run_meter;
pub mod sideband;
mod skeleton;
pub mod source;
pub mod stats;
mod unwind;
pub mod wait_source;
pub mod window;

pub use allocations::{
    AllocationArguments, AllocationLink, AllocationProbes, AllocationSource, MAX_INTERVAL,
};
pub use cgroups::{CgroupMap, CgroupMember, Cgroups};
pub use contexts::{BlockTable, ContextMap, ProgramAddresses, ThreadVariable};
pub use denied_syscall::DeniedSyscall;
pub use filter::Filter;
pub use idle_addresses::IdleAddressMap;
pub use library::libbpf_version;
pub use numbers::EventNumbers;
pub use probe_place::FunctionPlace;
pub use probes::ProbeSource;
pub use program::ExpectedLoad;
pub use source::{EventSource, ExpectedSamples};
pub use stats::RunStats;
pub use unwind::UnwindMemory;
pub use wait_source::{NoSwitchHook, SwitchHook};
pub use window::{Capture, Window, WindowCounts};
