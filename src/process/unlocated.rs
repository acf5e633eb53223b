//! Why an address of a process is no place in a file.

/// Why an address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unlocated {
    /// No executable mapping covers it.
    NotMapped,
    /// The process had ended before its mappings could be read.
    ProcessGone,
    /// Its mappings could not be read in time.
    TooSlow,
    /// There was no descriptor left to read its mappings with.
    NoDescriptor,
    /// It has more mappings than are kept.
    TooManyMappings,
}
