//! The model of a raw sample: its process, its words as the unwinder recorded them, the stop reason, and its weight.
//!
//! This room imports no other room, so that recorded stacks can be symbolized without libbpf.

pub mod counter;
pub mod dynamic_event;
mod end;
pub mod event;
pub mod identity;
pub mod lock;
pub mod probe;
pub mod stack;
mod state;
pub mod unit;
mod waiting;
mod waker;
pub mod word;

pub use dynamic_event::DynamicEvent;
pub use end::StopReason;
pub use event::Event;
pub(crate) use identity::ProcessInCgroup;
pub use identity::{MonoNs, ProcessId};
pub use lock::{Lock, LockKind, LockOwner};
pub use stack::{Count, Leaf, Stack, StackKey};
pub use state::ThreadState;
pub use waiting::{SavedRegisters, StillWaiting};
pub use waker::WakerId;
pub use word::UserWord;
