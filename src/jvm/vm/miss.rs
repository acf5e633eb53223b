//! Why code of a JVM has no name.

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmMiss {
    /// No code in use is there.
    None,
    /// Code there came or went around that time.
    Moved,
    /// The process has no memory any more.
    Gone,
    /// It makes no sense, or is more than is read of one JVM.
    Nonsense,
}
