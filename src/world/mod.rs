//! The interface of a session's stages, and the state that they share.

mod agent_sampling;
mod readiness;
mod shared;
mod stage;
mod whole_names;
mod window;

pub(crate) use agent_sampling::{AgentSamplingRequests, AgentSamplingState};
pub(crate) use readiness::{NameDelay, Readiness};
pub(crate) use shared::{ChildStats, World};
pub(crate) use stage::{PartEnd, PartReport, RuntimeSamples, Stage};
pub(crate) use whole_names::ThreadKey;
pub(crate) use window::{WindowEnd, WindowPauses, WindowStacks};
