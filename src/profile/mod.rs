//! The profile: a trie of frames, weights by labels, and accounts that add up.
//!
//! This module depends on no stage before it and on no output format. Lost samples are in no stack: they stay in
//! [`Accounts`], and each format writes them beside the samples, so that every format sums to `kept + lost`.

pub mod accounts;
pub mod advice;
pub mod below;
pub mod containers;
pub mod file_trait;
pub mod filter;
pub mod fold;
pub mod frame;
pub mod frames;
pub mod kind;
pub mod labels;
pub mod lines;
pub mod neighbours;
pub mod object_classes;
pub mod pauses;
mod rate;
pub mod report;
pub mod resource;
pub mod samples;
pub mod strings;
pub mod stripped;
pub mod tables;
pub mod trie;
pub mod unknown;
pub mod view;
pub mod wait_report;

pub use accounts::Accounts;
pub use frame::{Frame, Kind, Module, UnknownReason};
pub use labels::Labels;
pub use report::RunReport;
pub use samples::Profile;
pub use view::ProfileView;
