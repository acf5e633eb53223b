//! Why code of a JVM has no name.

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmMiss {
    /// There is no code in use at the address.
    None,
    /// Code at the address came or went around that time.
    Moved,
    /// The process has no memory any more.
    Gone,
    /// The memory makes no sense, or the limit on reads of one JVM is reached.
    Nonsense,
}
