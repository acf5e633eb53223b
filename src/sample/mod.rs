//! The model of a raw sample: its process, its words as the unwinder recorded them, the stop reason, and its weight.
//!
//! This room imports no other room, so that recorded stacks can be symbolized without libbpf.

pub mod counter;
pub mod dynamic_event;
mod estimate;
pub mod event;
mod event_period;
pub mod identity;
pub mod lock;
mod object;
pub mod probe;
pub mod span;
pub mod stack;
mod state;
mod stop_reason;
pub mod unit;
mod waiting;
mod waker;
pub mod word;

pub use dynamic_event::DynamicEvent;
pub use estimate::Estimate;
pub use event::{Event, EventName};
pub use event_period::EventPeriod;
pub(crate) use identity::ProcessInCgroup;
pub use identity::{MonoNs, ProcessId};
pub use lock::{Lock, LockKind, LockOwner};
pub use object::AllocatedObject;
pub use span::{SpanContext, SpanId, ThreadContext, TraceId};
pub use stack::{Count, CountedStack, Leaf, Stack, StackKey};
pub use state::ThreadState;
pub use stop_reason::StopReason;
pub use waiting::{SavedRegisters, StillWaiting};
pub use waker::WakerId;
pub use word::UserWord;
