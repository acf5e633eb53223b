//! What mapping over code leaves behind.

use crate::sample::MonoNs;

/// A file's code that something else was mapped in the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredCode {
    /// Whose.
    pub tgid: u32,
    /// Who made the process.
    pub parent: u32,
    /// First address of what is there now.
    pub start: u64,
    /// Address after its last.
    pub end: u64,
    /// Since when it is.
    pub at: MonoNs,
}
