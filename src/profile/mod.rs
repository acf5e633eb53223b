//! The profile: a trie of frames, weights by labels, and accounts that add up.
//!
//! Knows no stage before it and no format after it.

pub mod frame;

pub use frame::{Frame, Kind, Why};
