//! Capture: loads the BPF programs, reads counted stacks and exact accounts from them, and reads process events from
//! the kernel's side-band.
//!
//! Depends on libbpf and perf events; knows neither symbols nor Java.

pub mod abi;
mod allocations;
mod available;
mod batch;
mod cgroups;
mod contexts;
mod controls;
mod denied;
mod filter;
mod idle_addresses;
mod library;
mod map;
mod numbers;
pub mod online;
pub mod overflow;
pub mod perf_event;
pub mod perf_ring;
mod probe_place;
mod probes;
pub mod program;
mod programs;
mod residents;
pub mod sideband;
mod skeleton;
pub mod source;
pub mod stats;
pub mod switches;
mod unwind;
pub mod window;

pub use allocations::{
    AllocationArguments, AllocationLink, AllocationProbes, AllocationSource, MAX_INTERVAL,
};
pub use cgroups::{CgroupMap, Cgroups, Member};
pub use contexts::{BlockTable, ContextMap, ProgramAddresses, ThreadVariable};
pub use denied::Denied;
pub use filter::Filter;
pub use idle_addresses::IdleAddressMap;
pub use library::libbpf_version;
pub use numbers::EventNumbers;
pub use probe_place::FunctionPlace;
pub use probes::ProbeSource;
pub use program::Load;
pub use source::{EventSource, ExpectedSamples};
pub use stats::RunStats;
pub use switches::{NoSwitchHook, SwitchHook};
pub use unwind::UnwindMemory;
pub use window::{Capture, Counted, Window};
