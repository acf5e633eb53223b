//! A frame: the name of the code that ran, or the reason why the name is unknown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::file_trait::FileTraits;
pub use super::kind::Kind;
pub use crate::text::{clean, is_clean};

/// The name of the one frame that stands for all frames of a kernel that hides its symbols.
pub const HIDDEN_KERNEL: &str = "[kernel]";

/// Why a frame has no name. Formats print the label: `[unknown: label]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnknownReason {
    /// No mapping covers the address.
    NotMapped,
    /// The process's mappings could not be read in time, or exceed the limit.
    MappingsUnread,
    /// The process ended before its mappings were read.
    ProcessGone,
    /// The file could not be opened, is not a regular file, or is not the one that was mapped.
    FileUnavailable,
    /// The file is mapped but has no symbol there.
    NoSymbol,
    /// The file is not an ELF file, or is damaged.
    BadFile,
    /// Reading the file took too long or ended the symbol worker.
    WorkerFailed,
    /// Code in anonymous memory, of a runtime without a perf map.
    AnonymousCode,
    /// Code of a JVM without an agent.
    NoAgent,
    /// Code in a JVM's code cache that the agent's log does not name.
    NotLogged,
    /// The method at this address was unloaded or replaced about that time.
    CodeMoved,
    /// The method that the interpreter ran was unloaded or redefined about that time.
    MethodGone,
    /// The agent's log was cut (quota, invalid records).
    LogCut,
    /// An address in a JVM's anonymous memory, where the JVM has no code now.
    NoCode,
    /// The code descriptions in a JVM's memory are inconsistent, or exceed the limit for one JVM.
    BadMemory,
    /// The kernel hides its symbols (`kptr_restrict`).
    KernelHidden,
    /// The address is not in kernel text, a module or a BPF program.
    NotKernelText,
}

impl UnknownReason {
    /// All reasons, in the order of declaration.
    pub const ALL: [UnknownReason; 17] = [
        UnknownReason::NotMapped,
        UnknownReason::MappingsUnread,
        UnknownReason::ProcessGone,
        UnknownReason::FileUnavailable,
        UnknownReason::NoSymbol,
        UnknownReason::BadFile,
        UnknownReason::WorkerFailed,
        UnknownReason::AnonymousCode,
        UnknownReason::NoAgent,
        UnknownReason::NotLogged,
        UnknownReason::CodeMoved,
        UnknownReason::MethodGone,
        UnknownReason::LogCut,
        UnknownReason::NoCode,
        UnknownReason::BadMemory,
        UnknownReason::KernelHidden,
        UnknownReason::NotKernelText,
    ];

    /// The stable label, in lower case.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            UnknownReason::NotMapped => "not mapped",
            UnknownReason::MappingsUnread => "mappings unread",
            UnknownReason::ProcessGone => "process gone",
            UnknownReason::FileUnavailable => "file unavailable",
            UnknownReason::NoSymbol => "no symbol",
            UnknownReason::BadFile => "bad file",
            UnknownReason::WorkerFailed => "worker failed",
            UnknownReason::AnonymousCode => "anonymous code",
            UnknownReason::NoAgent => "no agent",
            UnknownReason::NotLogged => "not logged",
            UnknownReason::CodeMoved => "code moved",
            UnknownReason::MethodGone => "method gone",
            UnknownReason::LogCut => "log cut",
            UnknownReason::NoCode => "no code there",
            UnknownReason::BadMemory => "bad memory",
            UnknownReason::KernelHidden => "kernel hidden",
            UnknownReason::NotKernelText => "not kernel text",
        }
    }

    /// Whether the code is the kernel's.
    #[must_use]
    pub fn is_of_kernel(self) -> bool {
        matches!(self, UnknownReason::KernelHidden | UnknownReason::NotKernelText)
    }
}

/// The file from which code was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Module {
    /// The path as the process names it, or `[kernel]`, `[vdso]`, or a kernel module's name in brackets.
    pub path: Arc<str>,
    /// GNU build id, if the file has one.
    pub build_id: Option<Arc<[u8]>>,
    /// OpenTelemetry's hash of the file's ends and length, which files without a build id have too; `None` if the file
    /// was not read. Only OTLP stores it.
    #[serde(default)]
    pub htlhash: Option<[u8; 16]>,
    /// The properties that explain why its code has no names; formats do not store them.
    #[serde(default)]
    pub traits: FileTraits,
}

impl Module {
    /// A module with only a path.
    #[must_use]
    pub fn at(path: impl Into<Arc<str>>) -> Module {
        Module { path: path.into(), build_id: None, htlhash: None, traits: FileTraits::default() }
    }

    /// The last part of the path.
    #[must_use]
    pub fn base_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The build id in hexadecimal digits, as tools write it; empty if the file has no build id.
    #[must_use]
    pub fn build_id_text(&self) -> String {
        self.build_id.as_deref().map(hex).unwrap_or_default()
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One frame of a stack. Its text contains no control characters: code that reads a name from outside cleans the name
/// with [`clean`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Language of the code, and how it is run; or not code at all.
    pub kind: Kind,
    /// The function, without suffix and offset. Java: `package.Class.method`, dotted. Unknown frames: the module's base
    /// name, or empty. Code without a symbol: the base name with the function's start or the block of addresses.
    pub name: Arc<str>,
    /// Why the name is unknown: `Some` if and only if `kind` is [`Kind::Unknown`].
    pub unknown: Option<UnknownReason>,
    /// Source file, if known.
    pub file: Option<Arc<str>>,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Bytecode index; Java only.
    pub bci: Option<u32>,
    /// The mapped file; `None` for Java.
    pub module: Option<Arc<Module>>,
    /// Address for pprof: the file offset for modules, absolute for the kernel and for unknown code. 0 for JIT code,
    /// because a method is compiled to many addresses, and to others in the next run. Pictures draw frames that differ
    /// only in their address as one.
    pub address: u64,
}

impl Frame {
    /// A frame with only a kind and a name.
    #[must_use]
    pub fn named(kind: Kind, name: impl Into<Arc<str>>) -> Frame {
        Frame {
            kind,
            name: name.into(),
            unknown: None,
            file: None,
            line: 0,
            bci: None,
            module: None,
            address: 0,
        }
    }

    /// A frame without a known name; its name is the module's base name.
    #[must_use]
    pub fn unknown(why: UnknownReason, module: Option<Arc<Module>>, address: u64) -> Frame {
        let name = module.as_ref().map_or("", |m| m.base_name()).into();
        Frame { name, unknown: Some(why), module, address, ..Frame::named(Kind::Unknown, "") }
    }
}

#[cfg(test)]
mod tests {
    use super::UnknownReason;
    use crate::{manual, variants};

    #[test]
    fn troubleshooting_knows_each_reason() {
        let page = include_str!("../../docs/troubleshooting.md");
        let rows = manual::table(page, "## [unknown: WHY]");
        for row in &rows {
            assert!(row.len() == 3 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        }
        let shown: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
        assert_eq!(shown, UnknownReason::ALL.map(UnknownReason::label), "docs/troubleshooting.md");
        assert_eq!(variants::all::<UnknownReason>(), UnknownReason::ALL.map(|reason| variants::of(&reason)));
    }
}
