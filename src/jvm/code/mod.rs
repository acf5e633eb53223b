//! The timeline of a JVM's compiled code: which method owned an address at a time, and which Java frames it stands for.
//!
//! Addresses are reused, so an address alone identifies no method. [`CodeTimeline::read`] follows the agent's log,
//! [`CodeTimeline::lookup`] returns frames.

mod frames;
mod index;
mod lease;
mod methods;
mod options;
mod owners;
mod timeline;

#[cfg(test)]
mod tests;

pub use frames::{FrameKind, JavaFrame};
pub use lease::{end, release};
pub use methods::JavaMethod;
pub use options::{CodeLimits, CodeOptions};
pub use owners::{CodeFound, CodeMiss};
pub use timeline::{CodeFacts, CodeLookup, CodeTimeline, ReadFailure, TimedCode, Validity};
