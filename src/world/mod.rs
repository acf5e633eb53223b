//! What the stages of a session have in common: the interface, and what they share.

mod readiness;
mod shared;
mod stage;
mod whole_names;
mod window;

pub(crate) use readiness::{NameDelay, Readiness};
pub(crate) use shared::World;
pub(crate) use stage::{PartEnd, PartReport, RuntimeTicks, Stage};
pub(crate) use whole_names::Thread;
pub(crate) use window::{WindowEnd, WindowStacks};
