//! Code that another mapping has covered.

use crate::sample::MonoNs;

/// A range in which something else was mapped over a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredCode {
    /// Thread group id of the process.
    pub tgid: u32,
    /// Thread group id of the process's parent.
    pub parent: u32,
    /// First address of the new mapping.
    pub start: u64,
    /// Address after the last of the new mapping.
    pub end: u64,
    /// When the new mapping was made.
    pub at: MonoNs,
}
