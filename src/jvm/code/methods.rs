//! Methods by their offset in the log, with names made readable and shared.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jvm_symbols_log::{ClassName, LineEntry, Method};

use crate::jvm::names;

/// The class of method handles, and the names of its intrinsics. All intrinsics share one `jmethodID`, that of the
/// class's method number `UNSET_IDNUM` (methodHandles.cpp, `Method::jmethod_id`; JDK 8 to 25). So JVMTI gives each of
/// them the name of the first intrinsic that was requested.
const METHOD_HANDLE: &str = "java.lang.invoke.MethodHandle";
const INTRINSICS: [&str; 6] =
    ["invokeBasic", "linkToVirtual", "linkToStatic", "linkToSpecial", "linkToInterface", "linkToNative"];
/// The name for all of them.
const INTRINSIC: &str = "[intrinsic]";

/// Names, source file and line table of a method, shared by its frames.
#[derive(Debug, PartialEq, Eq)]
pub struct JavaMethod {
    /// Class and method together: `package.Class.method`.
    pub name: Arc<str>,
    /// The class with its package: `package.Class`.
    pub class: Arc<str>,
    /// The method alone, without class and signature.
    pub method: Arc<str>,
    /// `Class.java`, if it is known.
    pub file: Option<Arc<str>>,
    lines: Box<[LineEntry]>,
}

impl JavaMethod {
    /// A method from the JVM's texts. With `raw` names keep the numbers that differ from run to run.
    pub(in crate::jvm) fn new(
        class: &[u8],
        method: &[u8],
        file: &[u8],
        lines: Vec<LineEntry>,
        raw: bool,
    ) -> JavaMethod {
        let (class, method) = (names::class(class, file, raw), names::text(method));
        let name = if class.is_empty() { method.clone() } else { format!("{class}.{method}") };
        JavaMethod {
            name: name.into(),
            class: class.into(),
            method: method.into(),
            file: (!file.is_empty()).then(|| names::text(file).into()),
            lines: lines.into(),
        }
    }

    /// Approximate memory of names and lines.
    pub(in crate::jvm) fn bytes(&self) -> usize {
        let names = 2 * self.name.len() + self.file.as_ref().map_or(0, |file| file.len());
        size_of::<JavaMethod>() + names + size_of_val(&*self.lines)
    }

    /// The source line of a bytecode index; 0 if unknown. Without index (entry of a synchronized method) the first
    /// line.
    #[must_use]
    pub fn line(&self, bci: Option<u32>) -> u32 {
        let bci = bci.unwrap_or(0);
        // Compilers other than javac write tables that are not in order.
        let entry = self.lines.iter().filter(|entry| entry.bci <= bci).max_by_key(|entry| entry.bci);
        entry.map_or(0, |entry| entry.line)
    }
}

/// A method of a log: each compiled method refers to all methods that are inlined into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodId(u32);

impl MethodId {
    /// The log does not describe the method.
    const UNKNOWN: MethodId = MethodId(u32::MAX);
}

/// Overhead of a method and of a text, bytes: reference counts, and entries in tables that may be half empty.
const BYTES_OF_METHOD: usize = 64;
const BYTES_OF_TEXT: usize = 64;

#[derive(Debug)]
pub(super) struct LoggedMethods {
    raw: bool,
    max: usize,
    max_bytes: usize,
    bytes: usize,
    all: Vec<Arc<JavaMethod>>,
    by_offset: HashMap<u64, MethodId>,
    strings: HashSet<Arc<str>>,
    refused: u64,
}

impl LoggedMethods {
    pub(super) fn new(raw: bool, max: usize, max_bytes: usize) -> LoggedMethods {
        LoggedMethods {
            raw,
            max,
            max_bytes,
            bytes: 0,
            all: Vec::new(),
            by_offset: HashMap::new(),
            strings: HashSet::new(),
            refused: 0,
        }
    }

    pub(super) fn add(&mut self, offset: u64, method: &Method<'_>) {
        if self.all.len() >= self.max || !self.has_room() {
            self.refused += 1;
            return;
        }
        let (class, file) = match method.class {
            ClassName::Named { class, file } => {
                let class = self.shared(names::class(class, file, self.raw));
                (class, (!file.is_empty()).then(|| self.shared(names::text(file))))
            }
            ClassName::As(known) => match self.get(self.at(known)) {
                Some(known) => (Arc::clone(&known.class), known.file.clone()),
                None => {
                    self.refused += 1;
                    return;
                }
            },
        };
        let mut name = names::text(method.name);
        if &*class == METHOD_HANDLE && INTRINSICS.contains(&name.as_str()) {
            INTRINSIC.clone_into(&mut name);
        }
        let lines: Box<[LineEntry]> = method.lines().collect();
        self.bytes += size_of::<JavaMethod>() + BYTES_OF_METHOD + size_of_val(&*lines);
        let full = self.shared(if class.is_empty() { name.clone() } else { format!("{class}.{name}") });
        let method = JavaMethod { name: full, class, method: self.shared(name), file, lines };
        let id = MethodId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(Arc::new(method));
        self.by_offset.insert(offset, id);
    }

    /// The number of the method that the log describes at an offset.
    pub(super) fn at(&self, offset: u64) -> MethodId {
        self.by_offset.get(&offset).copied().unwrap_or(MethodId::UNKNOWN)
    }

    pub(super) fn get(&self, id: MethodId) -> Option<&Arc<JavaMethod>> {
        self.all.get(id.0 as usize)
    }

    /// The shared name of a stub; `None` if there is no room for another name.
    pub(super) fn stub_name(&mut self, name: String) -> Option<Arc<str>> {
        (self.has_room() || self.strings.contains(name.as_str())).then(|| self.shared(name))
    }

    fn has_room(&self) -> bool {
        self.bytes < self.max_bytes
    }

    fn shared(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.strings.get(text.as_str()) {
            return Arc::clone(known);
        }
        self.bytes += text.len() + BYTES_OF_TEXT;
        let text: Arc<str> = text.into();
        self.strings.insert(Arc::clone(&text));
        text
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Methods that were left out because of quotas.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Approximate memory of names and lines.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn the_line_is_that_of_the_last_entry_at_or_before_the_index() {
        let entry = |bci, line| LineEntry { bci, line };
        let text: Arc<str> = "".into();
        let method = JavaMethod {
            name: Arc::clone(&text),
            class: Arc::clone(&text),
            method: text,
            file: None,
            lines: [entry(0, 10), entry(20, 12), entry(5, 11)].into(),
        };
        assert_eq!([0, 4, 5, 19, 20, 99].map(|b| method.line(Some(b))), [10, 10, 11, 11, 12, 12]);
        assert_eq!(method.line(None), 10);
    }
}
