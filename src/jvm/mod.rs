//! JVMs: discovery, flags, attaching, and the names of their code.
//!
//! [`discover()`] finds JVMs in `/proc`. A [`helper`], a child process with a deadline, touches everything that a JVM
//! controls: its memory, its files, its attach socket. [`inspect`] and [`attach()`] start such a helper. This module
//! does not depend on BPF or on output formats.

mod agent_file;
mod allocation_samples;
mod attach;
mod attach_options;
pub mod code;
mod command_line;
mod deadline;
mod discover;
mod exported;
mod generated;
pub mod helper;
mod helper_call;
mod ids;
mod inspection;
mod listen;
mod log_file;
mod memory;
mod message;
pub mod names;
pub mod pauses;
mod peer;
mod policy;
mod prerequisites;
mod protocol;
mod refusal;
mod row;
mod status;
mod stub_names;
mod target;
mod threads;
mod version;
pub mod vm;
mod vm_structs;

pub use agent_file::AGENT;
pub use allocation_samples::{ALLOCATED, AllocationSamples, NoAllocationSamples};
pub use attach::{
    AgentStart, AttachFailure, Attached, JvmDescription, OpenedMemory, attach, describe, inspect, open,
};
pub use attach_options::AttachOptions;
pub use discover::{Jvm, discover, find, is_same_process};
pub use generated::without_run_number;
pub use inspection::{Flags, Inspection};
pub use policy::{AgentPermissions, permitted};
pub use refusal::Refusal;
pub use row::{ExpectedNameSource, JvmRow};
pub use version::JavaVersion;
