//! Capture: loads the BPF programs, reads counted stacks and exact accounts from them, and reads process events from
//! the kernel's side-band.
//!
//! Depends on libbpf and perf events; knows neither symbols nor Java.

pub mod abi;
mod batch;
mod cgroups;
mod denied;
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
pub mod sideband;
mod skeleton;
pub mod source;
pub mod stats;
pub mod switches;
mod unwind;
mod waits;
pub mod window;

pub use cgroups::{CgroupMap, Cgroups, Member};
pub use denied::Denied;
pub use library::libbpf_version;
pub use numbers::EventNumbers;
pub use probe_place::FunctionPlace;
pub use probes::Probes;
pub use program::{Filter, Load};
pub use source::{Elapsed, EventSource};
pub use stats::RunStats;
pub use switches::{NoSwitchHook, SwitchHook};
pub use unwind::UnwindMemory;
pub use waits::WaitMap;
pub use window::{Capture, Counted, Window};
