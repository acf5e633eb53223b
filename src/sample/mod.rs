//! The model of a raw sample: whose it is, its words as the walk left them, why the walk ended, and what it was counted
//! for.
//!
//! A leaf: it imports no other room, so that symbols can be found for a recorded stack without libbpf.

mod end;
pub mod event;
pub mod identity;
pub mod stack;
mod word;

pub use end::StopReason;
pub use event::Event;
pub use identity::{MonoNs, ProcessId};
pub use stack::{Count, Leaf, Stack, StackKey};
pub use word::UserWord;
