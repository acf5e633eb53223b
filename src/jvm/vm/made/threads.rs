//! Threads with names: the links from the JVM's list of threads to the characters of a name.

use super::{BASE, FakeMemory};

/// Pointers to the list of threads, and to the classes of strings and of threads; base and shift of compressed pointers;
/// a pointer to the heap; then the data behind the pointers.
pub(super) const THREADS: u64 = 0x7_4000;
pub(super) const THREADS_END: u64 = STRING + 0x60;
const LIST: u64 = THREADS + 0x40;
const THREAD: u64 = THREADS + 0x60;
const OS_THREAD: u64 = THREADS + 0x70;
const HANDLE: u64 = THREADS + 0x78;
const THREAD_CLASS: u64 = THREADS + 0x80;
const STRING_CLASS: u64 = THREADS + 0xc0;
const POOL: u64 = THREADS + 0x100;
const FIELDS_OF_THREAD: u64 = THREADS + 0x180;
const FIELDS_OF_STRING: u64 = THREADS + 0x1c0;
const SYMBOLS: u64 = THREADS + 0x200;
/// The thread's object, and the characters of its name.
const OBJECT: u64 = THREADS + 0x300;
const VALUE: u64 = THREADS + 0x340;

/// The string with the thread's name.
pub const STRING: u64 = THREADS + 0x320;
/// The byte that is not 0 while a collection stops the program.
#[cfg(test)]
pub const HEAP_IS_STOPPED: u64 = THREADS + 48;
/// The id of the thread.
pub const NUMBER: u32 = 4711;
/// The name of the thread.
pub const NAME: &str = "reader-1";

/// The fields for threads: class, name, whether the value is an address, and the value.
pub(super) const FIELDS: &[(&str, &str, bool, u64)] = &[
    ("ThreadsSMRSupport", "_java_thread_list", true, BASE + THREADS),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::String_klass_knum)]", true, BASE + THREADS + 8),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::Thread_klass_knum)]", true, BASE + THREADS + 16),
    ("CompressedOops", "_narrow_oop._base", true, BASE + THREADS + 24),
    ("CompressedOops", "_narrow_oop._shift", true, BASE + THREADS + 32),
    ("CompressedKlassPointers", "_narrow_klass._base", true, BASE + THREADS + 24),
    ("CompressedKlassPointers", "_narrow_klass._shift", true, BASE + THREADS + 32),
    ("ThreadsList", "_length", false, 0),
    ("ThreadsList", "_threads", false, 8),
    ("JavaThread", "_osthread", false, 0),
    ("JavaThread", "_threadObj", false, 8),
    ("OSThread", "_thread_id", false, 0),
    ("JavaThread", "_current_pending_monitor", false, 16),
    ("JavaThread", "_current_waiting_monitor", false, 24),
    ("ObjectMonitor", "_object", false, 64),
    ("ObjectMonitor", "_owner", false, 72),
    ("Universe", "_collectedHeap", true, BASE + THREADS + 40),
    ("CollectedHeap", "_is_gc_active", false, 48),
    ("CollectedHeap", "_total_collections", false, 52),
    ("oopDesc", "_metadata._klass", false, 8),
    ("Array<u1>", "_data", false, 4),
    ("Array<u2>", "_data", false, 4),
];
/// Where classes have their fields up to JDK 20, and since.
pub(super) const SHORTS: &[(&str, &str, bool, u64)] =
    &[("InstanceKlass", "_fields", false, 40), ("InstanceKlass", "_java_fields_count", false, 48)];
pub(super) const STREAM: &[(&str, &str, bool, u64)] = &[("InstanceKlass", "_fieldinfo_stream", false, 40)];

impl FakeMemory {
    /// Adds a thread with a name, in a heap with compressed pointers; the classes' fields as JDK 21 has them, or
    /// (`shorts`) as before.
    pub fn threads(&self, shorts: bool) {
        for (place, value) in [(0, LIST), (8, STRING_CLASS), (16, THREAD_CLASS), (24, 0), (40, THREADS)] {
            self.word(THREADS + place, BASE + value);
        }
        self.half(LIST, 1);
        self.word(LIST + 8, BASE + LIST + 16);
        self.word(LIST + 16, BASE + THREAD);
        self.word(THREAD, BASE + OS_THREAD);
        self.word(THREAD + 8, BASE + HANDLE);
        self.half(OS_THREAD, NUMBER);
        self.word(HANDLE, BASE + OBJECT);
        self.half(POOL + 8, 8);
        let symbols =
            ["name", "Ljava/lang/String;", "target", "value", "[B", "parkBlocker", "Ljava/lang/Object;"];
        for (place, text) in (0..).zip(symbols) {
            let symbol = self.symbol(SYMBOLS + place * 32, text);
            self.word(POOL + 32 + (place + 1) * 8, symbol);
        }
        // Name, signature and offset. The strings have no coder: bytes without one are Latin-1.
        self.fields(THREAD_CLASS, FIELDS_OF_THREAD, &[(1, 2, 12), (3, 2, 16), (6, 7, 20)], shorts);
        self.fields(STRING_CLASS, FIELDS_OF_STRING, &[(4, 5, 12)], shorts);
        self.half(OBJECT + 12, STRING as u32);
        self.half(STRING + 8, STRING_CLASS as u32);
        self.half(STRING + 12, VALUE as u32);
        self.half(VALUE + 12, NAME.len() as u32);
        self.put(VALUE + 16, NAME.as_bytes());
    }

    fn fields(&self, class: u64, table: u64, fields: &[(u8, u8, u8)], shorts: bool) {
        self.word(class + 8, BASE + POOL);
        self.word(class + 40, BASE + table);
        self.half(class + 48, fields.len() as u32);
        let mut bytes = Vec::new();
        if shorts {
            for &(name, signature, offset) in fields {
                let numbers = [0, u16::from(name), u16::from(signature), 0, u16::from(offset) << 2 | 1, 0];
                bytes.extend(numbers.map(u16::to_ne_bytes).concat());
            }
        } else {
            bytes.extend([fields.len() as u8 + 1, 1]);
            fields.iter().for_each(|&(name, signature, offset)| {
                bytes.extend([name + 1, signature + 1, offset + 1, 1, 1]);
            });
        }
        self.half(table, (bytes.len() / if shorts { 2 } else { 1 }) as u32);
        self.put(table + 4, &bytes);
    }
}
