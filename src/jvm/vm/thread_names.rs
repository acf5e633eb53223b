//! Names of Java threads, from their objects. The kernel keeps 15 bytes of a name, so pools whose names differ only
//! after that look like one pool.
//!
//! `JavaThread` → its kernel thread id, and its `java.lang.Thread` → `name`, a `String` → its characters
//! (`runtime/javaThread.hpp`, `runtime/osThread.hpp`, `classfile/javaClasses.cpp`; JDK 8 to 25). Collectors move
//! objects during the read. So a name counts only if no collection ran meanwhile (`collections.rs`), if every link to
//! it is the same afterwards, and if the string is a `String`; during a collection a thread keeps the name that it had. A
//! thread that had none yet waits some milliseconds for the end of the collection, or its samples would have no name.
//! ZGC and Shenandoah move objects while the program runs: an old pointer may lead to the name of another thread. In
//! their JVMs no thread gets a name here (`VmLayout::with_flags`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::class_fields::ObjectField;
use super::collections::collections;
use super::layout::{FieldTable, PointerCompressionAddresses, ThreadListLayout, ThreadOffsets, VmLayout};
use super::tables::FieldTables;
use crate::jvm::memory::{InvalidMemory, Memory, half_in, word_in};
use crate::jvm::vm_structs::Field;

pub(super) const FIELDS: &[Field] = &[
    ("ThreadsSMRSupport", "_java_thread_list"),
    ("ThreadsList", "_length"),
    ("ThreadsList", "_threads"),
    ("Threads", "_thread_list"),
    ("JavaThread", "_next"),
    ("JavaThread", "_threadObj"),
    OS_THREAD[0],
    OS_THREAD[1],
    ("OSThread", "_thread_id"),
    ("oopDesc", "_metadata._klass"),
    ("Array<u1>", "_data"),
    ("Array<u2>", "_data"),
    ("InstanceKlass", "_fields"),
    ("InstanceKlass", "_java_fields_count"),
    ("InstanceKlass", "_fieldinfo_stream"),
    STRING_CLASS[0],
    STRING_CLASS[1],
    THREAD_CLASS[0],
    THREAD_CLASS[1],
    OOP_BASE[0],
    OOP_BASE[1],
    OOP_BASE[2],
    OOP_SHIFT[0],
    OOP_SHIFT[1],
    OOP_SHIFT[2],
    CLASS_BASE[0],
    CLASS_BASE[1],
    CLASS_BASE[2],
    CLASS_SHIFT[0],
    CLASS_SHIFT[1],
    CLASS_SHIFT[2],
];
const OS_THREAD: [Field; 2] = [("JavaThread", "_osthread"), ("Thread", "_osthread")];
const STRING_CLASS: [Field; 2] = [
    ("SystemDictionary", "_well_known_klasses[SystemDictionary::String_klass_knum]"),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::String_klass_knum)]"),
];
const THREAD_CLASS: [Field; 2] = [
    ("SystemDictionary", "_well_known_klasses[SystemDictionary::Thread_klass_knum]"),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::Thread_klass_knum)]"),
];
/// How compressed pointers become addresses: up to JDK 12, to 22, and later.
const OOP_BASE: [Field; 3] =
    [("Universe", "_narrow_oop._base"), ("CompressedOops", "_narrow_oop._base"), ("CompressedOops", "_base")];
const OOP_SHIFT: [Field; 3] = [
    ("Universe", "_narrow_oop._shift"),
    ("CompressedOops", "_narrow_oop._shift"),
    ("CompressedOops", "_shift"),
];
const CLASS_BASE: [Field; 3] = [
    ("Universe", "_narrow_klass._base"),
    ("CompressedKlassPointers", "_narrow_klass._base"),
    ("CompressedKlassPointers", "_base"),
];
const CLASS_SHIFT: [Field; 3] = [
    ("Universe", "_narrow_klass._shift"),
    ("CompressedKlassPointers", "_narrow_klass._shift"),
    ("CompressedKlassPointers", "_shift"),
];

/// `JavaThread::_threadObj` and `ObjectMonitor::_object` are handles since this release, before that objects' addresses.
const HANDLE_SINCE: u32 = 16;
/// The elements of arrays follow their length without a gap since this release (JDK-8139457).
const NO_GAP_SINCE: u32 = 23;
/// Most threads of one JVM that are read.
const MAX_THREADS: usize = 64 << 10;
/// Longest name that is read, and most bytes of names of one request. Names are never cut: other threads may share a
/// prefix.
const MAX_NAME: u64 = 64 << 10;
const MAX_NAMES: usize = 4 << 20;
/// Longest name that is kept for the time of a collection, bytes.
const MAX_KEPT: usize = 256;
/// One wait for the end of a collection. How many of them there are in one request, and in all: a JVM may claim that it
/// always collects.
const COLLECTION_WAIT: Duration = Duration::from_millis(if cfg!(fuzzing) { 0 } else { 2 });
const WAITS_AT_ONCE: u32 = 20;
const MAX_WAITS: u32 = 200;
/// How often finding the fields of the JDK's classes is tried.
const MAX_TRIES: u32 = 8;

impl PointerCompressionAddresses {
    fn address<M: Memory>(self, memory: &M, narrow: u32) -> Result<u64, InvalidMemory> {
        let mut shift = [0; 4];
        memory.read_all(self.shift, &mut shift)?;
        let shift = Some(u32::from_ne_bytes(shift)).filter(|shift| *shift < 8).ok_or(InvalidMemory)?;
        memory.word(self.base)?.checked_add(u64::from(narrow) << shift).ok_or(InvalidMemory)
    }
}

pub(super) fn threads(tables: &FieldTables, feature: u32) -> Result<ThreadOffsets, InvalidMemory> {
    let list = || {
        Ok::<_, InvalidMemory>(ThreadListLayout::Array {
            list: tables.address("ThreadsSMRSupport", "_java_thread_list")?,
            length: tables.offset("ThreadsList", "_length")?,
            threads: tables.offset("ThreadsList", "_threads")?,
        })
    };
    let linked = || {
        let first = tables.address("Threads", "_thread_list")?;
        Ok::<_, InvalidMemory>(ThreadListLayout::Linked {
            first,
            next: tables.offset("JavaThread", "_next")?,
        })
    };
    let narrow = |base: &[Field], shift: &[Field]| {
        Ok::<_, InvalidMemory>(PointerCompressionAddresses {
            base: tables.first_address(base)?,
            shift: tables.first_address(shift)?,
        })
    };
    let fields = match tables.offset("InstanceKlass", "_fieldinfo_stream") {
        Ok(array) => FieldTable::Stream { array, data: tables.offset("Array<u1>", "_data")? },
        Err(InvalidMemory) => FieldTable::Shorts {
            array: tables.offset("InstanceKlass", "_fields")?,
            count: tables.offset("InstanceKlass", "_java_fields_count")?,
            data: tables.offset("Array<u2>", "_data")?,
        },
    };
    Ok(ThreadOffsets {
        list: list().or_else(|_| linked())?,
        os_thread: tables.first(&OS_THREAD)?,
        number: tables.offset("OSThread", "_thread_id")?,
        object: tables.offset("JavaThread", "_threadObj")?,
        is_handle: feature >= HANDLE_SINCE,
        class: tables.offset("oopDesc", "_metadata._klass")?,
        thread_class: tables.first_address(&THREAD_CLASS)?,
        string_class: tables.first_address(&STRING_CLASS)?,
        oops: narrow(&OOP_BASE, &OOP_SHIFT)?,
        classes: narrow(&CLASS_BASE, &CLASS_SHIFT)?,
        fields,
        no_gap: feature >= NO_GAP_SINCE,
        collections: collections(tables)?,
    })
}

/// Offsets in the objects that are read.
#[derive(Clone, Copy, Debug)]
struct ThreadObjectOffsets {
    /// In a thread: its name.
    name: u64,
    /// In a string: its characters; whether they always have two bytes; and the field that says how wide they are.
    value: u64,
    wide: bool,
    coder: Option<u64>,
    /// References take four bytes.
    narrow: bool,
}

#[derive(Debug, Default)]
pub(super) struct ThreadNames {
    objects: Option<ThreadObjectOffsets>,
    tries: u32,
    /// Threads by their kernel thread ids, as they were at the last look.
    known: HashMap<u32, u64>,
    /// The last name that was read of a thread, by its id and address.
    names: HashMap<(u32, u64), String>,
    /// Waits for the end of a collection so far.
    waits: u32,
}

impl ThreadNames {
    /// The names of the threads with these ids in the JVM's own PID namespace, as the JVM has them.
    pub(super) fn of<M: Memory>(
        &mut self,
        memory: &M,
        layout: &VmLayout,
        numbers: &[u32],
    ) -> Vec<Option<String>> {
        let none = vec![None; numbers.len()];
        let Some(threads) = &layout.threads else { return none };
        if self.objects.is_none() && self.tries < MAX_TRIES {
            self.tries += 1;
            self.objects = ThreadObjectOffsets::find(memory, layout, threads).ok();
        }
        let Some(objects) = self.objects else { return none };
        let Ok(list) = threads.list(memory) else { return none };
        self.find(memory, threads, &list, numbers);
        let mut left = MAX_NAMES;
        let most_waits = MAX_WAITS.min(self.waits + WAITS_AT_ONCE);
        let mut all = Vec::with_capacity(numbers.len());
        for number in numbers {
            let named =
                self.name(memory, threads, objects, *number, most_waits).filter(|name| name.len() <= left);
            left -= named.as_ref().map_or(0, String::len);
            all.push(named);
        }
        all
    }

    fn name<M: Memory>(
        &mut self,
        memory: &M,
        threads: &ThreadOffsets,
        objects: ThreadObjectOffsets,
        number: u32,
        most_waits: u32,
    ) -> Option<String> {
        let thread = *self.known.get(&number)?;
        let read = || threads.collections.unmoved(memory, || objects.name(memory, threads, thread));
        // A second try: the program itself may have changed the name.
        let read = || read().or_else(|_| read()).ok();
        let mut name = read()?;
        while name.is_none() && self.waits < most_waits && !self.names.contains_key(&(number, thread)) {
            self.waits += 1;
            std::thread::sleep(COLLECTION_WAIT);
            name = read()?;
        }
        if threads.number(memory, thread) != Ok(number) {
            return None;
        }
        match &name {
            Some(name) if name.len() <= MAX_KEPT => self.names.insert((number, thread), name.clone()),
            Some(_) => self.names.remove(&(number, thread)),
            None => return self.names.get(&(number, thread)).cloned(),
        };
        name
    }

    /// Finds the threads with these ids. Known threads only have their ids checked; if one does not match, all threads
    /// are read.
    fn find<M: Memory>(&mut self, memory: &M, threads: &ThreadOffsets, list: &[u64], numbers: &[u32]) {
        let there: HashSet<u64> = list.iter().copied().collect();
        self.known.retain(|_, thread| there.contains(thread));
        self.names.retain(|(_, thread), _| there.contains(thread));
        let is_known = |(&number, &thread): (&u32, &u64)| threads.number(memory, thread) == Ok(number);
        if numbers.iter().all(|number| self.known.get_key_value(number).is_some_and(is_known)) {
            return;
        }
        self.known = threads.by_number(memory, list);
    }
}

impl ThreadOffsets {
    /// Addresses of the `JavaThread`s that exist now.
    pub(super) fn list<M: Memory>(&self, memory: &M) -> Result<Vec<u64>, InvalidMemory> {
        match self.list {
            ThreadListLayout::Array { list, length, threads } => {
                let at = memory.word(list)?;
                let mut count = [0; 4];
                memory.read_all(at.checked_add(length).ok_or(InvalidMemory)?, &mut count)?;
                let count = usize::try_from(u32::from_ne_bytes(count)).map_err(|_| InvalidMemory)?;
                let mut bytes = vec![0; count.min(MAX_THREADS) * 8];
                memory.read_all(memory.word(at.checked_add(threads).ok_or(InvalidMemory)?)?, &mut bytes)?;
                // The JVM never changes a list: it replaces the list and frees the old one.
                if memory.word(list)? != at {
                    return Err(InvalidMemory);
                }
                Ok(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
            }
            ThreadListLayout::Linked { first, next } => {
                let mut all = Vec::new();
                let mut thread = memory.word(first)?;
                while thread != 0 && all.len() < MAX_THREADS {
                    all.push(thread);
                    thread = memory.word(thread.checked_add(next).ok_or(InvalidMemory)?)?;
                }
                Ok(all)
            }
        }
    }

    pub(super) fn number<M: Memory>(&self, memory: &M, thread: u64) -> Result<u32, InvalidMemory> {
        let os_thread = memory.word(thread.checked_add(self.os_thread).ok_or(InvalidMemory)?)?;
        let mut number = [0; 4];
        memory.read_all(os_thread.checked_add(self.number).ok_or(InvalidMemory)?, &mut number)?;
        Ok(u32::from_ne_bytes(number))
    }

    /// Threads by their numbers.
    pub(super) fn by_number<M: Memory>(&self, memory: &M, list: &[u64]) -> HashMap<u32, u64> {
        let number = |&thread: &u64| Some((self.number(memory, thread).ok()?, thread));
        list.iter().filter_map(number).collect()
    }

    fn object<M: Memory>(&self, memory: &M, thread: u64) -> Result<u64, InvalidMemory> {
        self.object_at(memory, thread.checked_add(self.object).ok_or(InvalidMemory)?)
    }

    /// The object in a field of a `JavaThread` or an `ObjectMonitor`, which can be a handle.
    pub(super) fn object_at<M: Memory>(&self, memory: &M, at: u64) -> Result<u64, InvalidMemory> {
        let object = memory.word(at)?;
        if self.is_handle { memory.word(object) } else { Ok(object) }
    }

    /// The offsets of length and elements in arrays, for a JVM in which this object is a string.
    fn arrays<M: Memory>(&self, memory: &M, string: u64) -> Result<Array, InvalidMemory> {
        let mut header = [0; 8];
        memory.read_all(string.checked_add(self.class).ok_or(InvalidMemory)?, &mut header)?;
        let class = memory.word(self.string_class)?;
        let wide = Array { length: self.class + 8, elements: self.class + if self.no_gap { 12 } else { 16 } };
        if word_in(&header, 0)? == class {
            return Ok(wide);
        }
        let narrow = self.classes.address(memory, half_in(&header, 0)?)?;
        let array = Array { length: self.class + 4, elements: self.class + 8 };
        if narrow == class { Ok(array) } else { Err(InvalidMemory) }
    }
}

/// Offsets of the parts of an array.
#[derive(Clone, Copy, Debug)]
struct Array {
    length: u64,
    elements: u64,
}

impl ThreadObjectOffsets {
    fn find<M: Memory>(
        memory: &M,
        layout: &VmLayout,
        threads: &ThreadOffsets,
    ) -> Result<ThreadObjectOffsets, InvalidMemory> {
        let fields = |class| threads.fields.of(memory, &layout.method, memory.word(class)?);
        let (of_thread, of_string) = (fields(threads.thread_class)?, fields(threads.string_class)?);
        let find = |fields: &[ObjectField], name: &[u8], signature: &[u8]| {
            let found = fields.iter().find(|field| field.name == name && field.signature == signature);
            found.map(|field| field.offset).ok_or(InvalidMemory)
        };
        let value = find(&of_string, b"value", b"[B");
        Ok(ThreadObjectOffsets {
            name: find(&of_thread, b"name", b"Ljava/lang/String;")?,
            value: value.or_else(|_| find(&of_string, b"value", b"[C"))?,
            wide: value.is_err(),
            coder: find(&of_string, b"coder", b"B").ok(),
            narrow: are_narrow(&of_thread)?,
        })
    }

    fn name<M: Memory>(
        &self,
        memory: &M,
        threads: &ThreadOffsets,
        thread: u64,
    ) -> Result<String, InvalidMemory> {
        let object = threads.object(memory, thread)?;
        let string = self.reference(memory, threads, object, self.name)?;
        let array = threads.arrays(memory, string)?;
        let value = self.reference(memory, threads, string, self.value)?;
        let wide = match self.coder {
            Some(coder) => {
                let mut bytes = [0];
                memory.read_all(string.checked_add(coder).ok_or(InvalidMemory)?, &mut bytes)?;
                bytes != [0]
            }
            None => self.wide,
        };
        let mut length = [0; 4];
        memory.read_all(value.checked_add(array.length).ok_or(InvalidMemory)?, &mut length)?;
        let length = u64::from(u32::from_ne_bytes(length)) << u32::from(self.wide);
        let length = Some(length).filter(|length| *length <= MAX_NAME).ok_or(InvalidMemory)?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| InvalidMemory)?];
        memory.read_all(value.checked_add(array.elements).ok_or(InvalidMemory)?, &mut bytes)?;
        let same = threads.object(memory, thread)? == object
            && self.reference(memory, threads, object, self.name)? == string
            && self.reference(memory, threads, string, self.value)? == value;
        if same { Ok(text(&bytes, wide)) } else { Err(InvalidMemory) }
    }

    fn reference<M: Memory>(
        &self,
        memory: &M,
        threads: &ThreadOffsets,
        object: u64,
        field: u64,
    ) -> Result<u64, InvalidMemory> {
        let at = object.checked_add(field).ok_or(InvalidMemory)?;
        if !self.narrow {
            return memory.word(at);
        }
        let mut narrow = [0; 4];
        memory.read_all(at, &mut narrow)?;
        threads.oops.address(memory, u32::from_ne_bytes(narrow))
    }
}

/// Whether references take four bytes: the reference fields of a class are adjacent.
fn are_narrow(fields: &[ObjectField]) -> Result<bool, InvalidMemory> {
    let references = fields.iter().filter(|field| matches!(field.signature.first(), Some(b'L' | b'[')));
    let mut offsets: Vec<u64> = references.map(|field| field.offset).collect();
    offsets.sort_unstable();
    match offsets.iter().zip(offsets.iter().skip(1)).map(|(one, next)| next - one).min() {
        Some(4) => Ok(true),
        Some(8) => Ok(false),
        _ => Err(InvalidMemory),
    }
}

/// Latin-1, or (`wide`) UTF-16.
fn text(bytes: &[u8], wide: bool) -> String {
    if !wide {
        return bytes.iter().copied().map(char::from).collect();
    }
    let units = bytes.as_chunks().0.iter().map(|unit| u16::from_ne_bytes(*unit));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
