//! A frame: what ran, by its right name, or why the name is unknown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::file_trait::FileTraits;
pub use super::kind::Kind;
pub use crate::text::{clean, is_clean};

/// Why a frame has no name. The label is what is printed: `[unknown: label]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnknownReason {
    /// No mapping covers the address.
    NotMapped,
    /// The process's mappings could not be read in time, or are more than are kept.
    MappingsUnread,
    /// The process had ended, and its mappings were never seen.
    ProcessGone,
    /// The file could not be opened, is no regular file, or is not the one that was mapped.
    FileUnavailable,
    /// The file is mapped but has no symbol there.
    NoSymbol,
    /// The file is no ELF file that can be read.
    BadFile,
    /// Reading the file took too long or ended the symbol worker.
    WorkerFailed,
    /// Code in anonymous memory, of a runtime that keeps no map.
    AnonymousCode,
    /// Code in a JVM that no agent reports on.
    NoAgent,
    /// Code in a JVM's code cache that its log does not name.
    NotLogged,
    /// The method that was there had been unloaded or replaced around that time.
    CodeMoved,
    /// The method that the interpreter ran had been unloaded or redefined around that time.
    MethodGone,
    /// The JVM's log was cut (quota, garbage).
    LogCut,
    /// In a JVM's anonymous memory, where it has no code now.
    NoCode,
    /// What a JVM's memory says about its code makes no sense, or is more than is read of one JVM.
    BadMemory,
    /// The kernel hides its symbols (`kptr_restrict`).
    KernelHidden,
    /// Not in kernel text, a module or a BPF program.
    NotKernelText,
}

impl UnknownReason {
    /// Every reason, in the order of declaration.
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

    /// The stable label, lower case.
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
}

/// The file that code was mapped from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Module {
    /// The path as the process names it, or `[kernel]`, `[vdso]`, a module's name in brackets.
    pub path: Arc<str>,
    /// GNU build id, if it has one.
    pub build_id: Option<Arc<[u8]>>,
    /// What explains why its code has no names. Not a part of what formats keep.
    #[serde(default)]
    pub traits: FileTraits,
}

impl Module {
    /// A module of which only the path is known.
    #[must_use]
    pub fn at(path: impl Into<Arc<str>>) -> Module {
        Module { path: path.into(), build_id: None, traits: FileTraits::default() }
    }

    /// The last part of the path.
    #[must_use]
    pub fn base_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The build id as tools write it, in hexadecimal digits; empty if it has none.
    #[must_use]
    pub fn build_id_text(&self) -> String {
        self.build_id.iter().flat_map(|id| id.iter()).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// One frame of a stack. Text is already fit to print: no control characters (whoever takes a name from outside
/// cleans it with [`clean`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// What sort of code.
    pub kind: Kind,
    /// The function, without suffix and without offset; for unknown frames the module's base name or nothing;
    /// where no symbol covers the place, the base name with the block of addresses.
    /// Java: `package.Class.method`, dotted.
    pub name: Arc<str>,
    /// Why the name is unknown: set if and only if `kind` is [`Kind::Unknown`].
    pub unknown: Option<UnknownReason>,
    /// Source file, as far as it is known.
    pub file: Option<Arc<str>>,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// Bytecode index, Java only.
    pub bci: Option<u32>,
    /// The mapped file; none for Java.
    pub module: Option<Arc<Module>>,
    /// Address to print in pprof: file offset for modules, absolute for the kernel and for what is not known. 0 for
    /// generated code: a method is compiled to many places, and to others in the next run. Frames that differ only in
    /// this are one frame in pictures.
    pub address: u64,
}

impl Frame {
    /// A frame with a kind and a name and nothing else.
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

    /// A frame whose name is not known.
    #[must_use]
    pub fn unknown(why: UnknownReason, module: Option<Arc<Module>>, address: u64) -> Frame {
        let name = module.as_ref().map_or("", |m| m.base_name()).into();
        Frame { name, unknown: Some(why), module, address, ..Frame::named(Kind::Unknown, "") }
    }
}

#[cfg(test)]
mod tests {
    use super::UnknownReason;

    #[test]
    fn troubleshooting_knows_each_reason() {
        let page = include_str!("../../docs/troubleshooting.md");
        let table = page.lines().skip_while(|line| *line != "## [unknown: WHY]").skip(1);
        let table = table.take_while(|line| !line.starts_with('#'));
        let rows: Vec<Vec<&str>> = table
            .filter(|line| line.starts_with("| `"))
            .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        for row in &rows {
            assert!(row.len() == 3 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        }
        let told: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
        assert_eq!(told, UnknownReason::ALL.map(UnknownReason::label), "docs/troubleshooting.md");
    }
}
