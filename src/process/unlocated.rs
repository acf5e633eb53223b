//! Reasons why an address of a process does not lead into a file.

/// Why an address does not lead into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unlocated {
    /// No executable mapping covers it.
    NotMapped,
    /// The process had ended before its mappings could be read.
    ProcessGone,
    /// The mappings could not be read in time.
    TooSlow,
    /// No descriptor was left to read the mappings with.
    NoDescriptor,
    /// The process has more mappings than are kept.
    TooManyMappings,
}
