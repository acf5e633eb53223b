//! Why code of a JVM has no name.

/// Why an address or an interpreted method has no name. `UnknownReason` has the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmMiss {
    /// There is no code in use at the address.
    NoCode,
    /// Compiled code at the address came or went around that time.
    CodeMoved,
    /// An interpreted method is not known to have been there at that time.
    MethodGone,
    /// The process has no memory any more.
    ProcessGone,
    /// The memory makes no sense, or the limit on reads of one JVM is reached.
    BadMemory,
}
