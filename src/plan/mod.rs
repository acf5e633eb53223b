//! The settings of a session and the commands to it while it runs: plain data that every stage may read.

pub(crate) mod allowance;
mod control;
mod opted_in;
mod refused;
mod settings;

pub use control::Control;
pub use opted_in::OptedInPods;
pub use refused::PermanentRefusals;
pub use settings::{AgentRule, JavaAllocations, JavaNaming, Settings, Target};
