//! A function of native code, as its symbol source describes it.

use crate::profile::Kind;

/// The name of a function, or where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionName {
    /// The name, demangled and fit to print.
    Name(String),
    /// No symbol names the function; it begins at this virtual address of the file.
    Start(u64),
}

/// One function of a native stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeFunction {
    /// [`Kind::Native`], [`Kind::Cpp`] or [`Kind::NativeInlined`].
    pub kind: Kind,
    /// Its name, or where it begins.
    pub called: FunctionName,
    /// Source file, as the compiler wrote it.
    pub file: Option<String>,
    /// Line in it, 0 if unknown.
    pub line: u32,
}
