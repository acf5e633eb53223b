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
    /// A method from the JVM's texts. If `raw`, names keep the numbers that differ from run to run.
    pub(in crate::jvm) fn new(
        class: &[u8],
        method: &[u8],
        file: &[u8],
        lines: Vec<LineEntry>,
        raw: bool,
    ) -> JavaMethod {
        let (class, method) = (names::class(class, file, raw), names::text(method));
        JavaMethod {
            name: full_name(&class, &method).into(),
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

fn full_name(class: &str, method: &str) -> String {
    if class.is_empty() { method.to_owned() } else { format!("{class}.{method}") }
}

/// A method of a log, as an index into `LoggedMethods::all`. Each compiled method refers to all methods that are
/// inlined into it.
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
    max_methods: usize,
    max_bytes: usize,
    bytes: usize,
    all: Vec<Arc<JavaMethod>>,
    by_offset: HashMap<u64, MethodId>,
    strings: HashSet<Arc<str>>,
    over_quota: u64,
}

impl LoggedMethods {
    pub(super) fn new(raw: bool, max_methods: usize, max_bytes: usize) -> LoggedMethods {
        LoggedMethods {
            raw,
            max_methods,
            max_bytes,
            bytes: 0,
            all: Vec::new(),
            by_offset: HashMap::new(),
            strings: HashSet::new(),
            over_quota: 0,
        }
    }

    pub(super) fn add(&mut self, offset: u64, method: &Method<'_>) {
        if self.all.len() >= self.max_methods || !self.has_room() {
            self.over_quota += 1;
            return;
        }
        let (class, file) = match method.class {
            ClassName::Named { class, file } => {
                let class = self.intern(names::class(class, file, self.raw));
                (class, (!file.is_empty()).then(|| self.intern(names::text(file))))
            }
            ClassName::As(known) => match self.get(self.id_at(known)) {
                Some(known) => (Arc::clone(&known.class), known.file.clone()),
                None => {
                    self.over_quota += 1;
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
        let full = self.intern(full_name(&class, &name));
        let method = JavaMethod { name: full, class, method: self.intern(name), file, lines };
        let id = MethodId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(Arc::new(method));
        self.by_offset.insert(offset, id);
    }

    /// The id of the method that the log describes at an offset.
    pub(super) fn id_at(&self, offset: u64) -> MethodId {
        self.by_offset.get(&offset).copied().unwrap_or(MethodId::UNKNOWN)
    }

    pub(super) fn get(&self, id: MethodId) -> Option<&Arc<JavaMethod>> {
        self.all.get(id.0 as usize)
    }

    /// The shared name of a stub; `None` if there is no room for another name.
    pub(super) fn stub_name(&mut self, name: String) -> Option<Arc<str>> {
        (self.has_room() || self.strings.contains(name.as_str())).then(|| self.intern(name))
    }

    fn has_room(&self) -> bool {
        self.bytes < self.max_bytes
    }

    fn intern(&mut self, text: String) -> Arc<str> {
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
    pub(super) fn over_quota(&self) -> u64 {
        self.over_quota
    }

    /// Approximate memory of all methods.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
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
