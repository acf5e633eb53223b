//! A function of native code, as whoever names it says.

use crate::profile::Kind;

/// What a function is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// Its name, demangled and fit to print.
    Name(String),
    /// No symbol names it; it begins at this address, as the file counts them.
    Start(u64),
}

/// One function of a native stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeFunction {
    /// [`Kind::Native`], [`Kind::Cpp`] or [`Kind::NativeInlined`].
    pub kind: Kind,
    /// What it is called.
    pub called: Called,
    /// Source file, as the compiler wrote it.
    pub file: Option<String>,
    /// Line in it, 0 if unknown.
    pub line: u32,
}
