//! Capture: from the tick in the kernel to counted stacks and exact accounts.
//!
//! Knows libbpf and perf events; knows no symbols and no Java.

pub mod perf_event;
pub mod perf_ring;
pub mod sideband;
pub mod stack;

pub use sideband::Sideband;
pub use stack::{End, Leaf, Stack, StackKey, UserWord};
