//! Processes: who they are, what they have mapped, and how to open what they name without being tricked.
//!
//! Knows nothing of stacks, symbols or formats.

pub mod identity;

pub use identity::{MonoNs, ProcessId};
