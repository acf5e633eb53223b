//! Constants of the whole file: texts, packages, classes, methods and threads with their ids.
//!
//! A chunk has its own constants, but the JDK's parser keeps the constants of earlier chunks by their ids. So an id has
//! one meaning in all chunks.

use std::collections::HashMap;
use std::hash::Hash;

use crate::output::name;
use crate::profile::Labels;
use crate::profile::frames::{FrameTable, Symbol};
use crate::profile::kind::Origin;

/// The id of a constant that does not exist.
pub(super) const NONE: u64 = 0;

/// Values and their ids; the first id is 1.
#[derive(Debug)]
struct Ids<T> {
    values: Vec<T>,
    ids: HashMap<T, u64>,
}

impl<T> Default for Ids<T> {
    fn default() -> Ids<T> {
        Ids { values: Vec::new(), ids: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Ids<T> {
    fn id(&mut self, value: T) -> u64 {
        let next = self.values.len() as u64 + 1;
        *self.ids.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            next
        })
    }

    fn get(&self, id: u64) -> T {
        self.values[id as usize - 1].clone()
    }
}

/// A class of Java, or the class without a name that has all other functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct JfrClass {
    /// The text of the name, with `/` between packages.
    pub(super) name: u64,
    /// The text of the package; [`NONE`] if the class is in no package.
    pub(super) package: u64,
}

/// A method of Java, or another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct JfrMethod {
    /// Id of the class in the constant pool.
    pub(super) class: u64,
    /// The text of the name.
    pub(super) name: u64,
    /// Whether the function is a method of Java.
    pub(super) is_java: bool,
}

/// A thread of the file, perhaps one that runs no Java.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct JfrThread {
    /// The name that tools show.
    pub(super) name: String,
    /// Its id in the initial pid namespace; 0 if unknown.
    pub(super) tid: u32,
}

/// The constant pools of the file.
#[derive(Debug, Default)]
pub(super) struct JfrConstants {
    texts: Ids<String>,
    classes: Ids<JfrClass>,
    methods: Ids<JfrMethod>,
    threads: Ids<JfrThread>,
    /// The methods of a profile's symbols.
    method_by_symbol: HashMap<u32, u64>,
    /// Whether the names of threads begin with their process.
    has_processes: bool,
}

impl JfrConstants {
    /// No constants. With `has_processes` the names of threads begin with their process.
    pub(super) fn new(has_processes: bool) -> JfrConstants {
        JfrConstants { has_processes, ..JfrConstants::default() }
    }

    /// The id of a text.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        self.texts.id(text.to_owned())
    }

    /// The id of the method for a symbol, which is an index of the table's symbols.
    pub(super) fn method(&mut self, frames: &FrameTable, symbol: u32) -> u64 {
        if let Some(id) = self.method_by_symbol.get(&symbol) {
            return *id;
        }
        let described = &frames.symbols()[symbol as usize];
        let id = self.add_method(&name::display_name(frames, described), is_java(described));
        self.method_by_symbol.insert(symbol, id);
        id
    }

    /// The id of the method for a frame that is not code.
    pub(super) fn marker(&mut self, text: &str) -> u64 {
        self.add_method(text, false)
    }

    fn add_method(&mut self, name: &str, is_java: bool) -> u64 {
        let (class, method) = match name.rsplit_once('.') {
            Some(parts) if is_java => parts,
            _ => ("", name),
        };
        let class = class.replace('.', "/");
        let package = class.rsplit_once('/').map_or(NONE, |(package, _)| self.text(package));
        let class = JfrClass { name: self.text(&class), package };
        let class = self.classes.id(class);
        let name = self.text(method);
        self.methods.id(JfrMethod { class, name, is_java })
    }

    /// The id of the thread of a sample's labels.
    pub(super) fn thread(&mut self, labels: &Labels) -> u64 {
        let Labels { pid, process, thread, tid, .. } = labels;
        let thread = if thread.is_empty() { process } else { thread };
        let name = match (self.has_processes, pid) {
            (true, 0) => format!("{process}/{thread}"),
            (true, pid) => format!("{process}-{pid}/{thread}"),
            (false, _) => thread.to_string(),
        };
        self.threads.id(JfrThread { name, tid: if *tid > 0 { *tid } else { *pid } })
    }

    /// The id of a thread that stands for lost samples.
    pub(super) fn add_lost_thread(&mut self) -> u64 {
        self.threads.id(JfrThread { name: name::LOST.to_owned(), tid: 0 })
    }

    /// The text of an id.
    pub(super) fn text_by_id(&self, id: u64) -> &str {
        &self.texts.values[id as usize - 1]
    }

    /// The class of an id.
    pub(super) fn class_by_id(&self, id: u64) -> JfrClass {
        self.classes.get(id)
    }

    /// The method of an id.
    pub(super) fn method_by_id(&self, id: u64) -> JfrMethod {
        self.methods.get(id)
    }

    /// The thread of an id.
    pub(super) fn thread_by_id(&self, id: u64) -> JfrThread {
        self.threads.get(id)
    }
}

fn is_java(symbol: &Symbol) -> bool {
    symbol.kind.origin() == Origin::Java
}
