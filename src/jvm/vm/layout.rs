//! The layout of one JVM's structures, as far as names and the unwinder need it.
//!
//! `described.rs`, `thread_names.rs` and `locks.rs` fill these structs. Their `FIELDS` list HotSpot's names of the fields.

use serde::{Deserialize, Serialize};

use super::loaders::{ClassLinks, PermanentLoader};
use super::unloads::UnloadCounter;
use crate::jvm::inspection::Flags;
use crate::jvm::memory::Memory;

/// Where one JVM keeps its data: plain numbers, offsets in bytes unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmLayout {
    pub(super) heaps: HeapOffsets,
    pub(super) blob: BlobOffsets,
    pub(super) nmethod: NmethodOffsets,
    pub(super) method: MethodOffsets,
    pub(super) frames: FrameOffsets,
    pub(super) classes: ClassUnloadLayout,
    /// Where threads keep their names, if this JVM's tables say it.
    pub(super) threads: Option<ThreadOffsets>,
    /// Where threads have their locks, if this JVM's tables say it.
    pub(super) locks: Option<LockOffsets>,
    /// The address to which the first Java frame of a thread returns.
    pub(super) call_stub_return: Option<u64>,
    /// Compressed numbers have no zero bytes.
    pub(super) null_free: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeapOffsets {
    /// Address of the pointer to the one heap (JDK 8), or to the array of heaps.
    pub(super) address: u64,
    /// In the array; `None` for the one heap.
    pub(super) array: Option<HeapArrayOffsets>,
    /// In a `CodeHeap`: its memory.
    pub(super) memory: SpaceOffsets,
    /// In a `CodeHeap`: the end of the memory that the heap may grow to.
    pub(super) memory_limit: u64,
    /// In a `CodeHeap`: its segment map.
    pub(super) segment_map: SpaceOffsets,
    /// In a `CodeHeap`: the logarithm of a segment's size.
    pub(super) segment_log2: u64,
    /// Size of a `HeapBlock`, the header before each blob.
    pub(super) block_size: u64,
    /// In a `HeapBlock`: the flag for use.
    pub(super) block_used: u64,
    /// In a `HeapBlock`: the block's length in segments, blob included.
    pub(super) block_length: u64,
    /// The length has four bytes, not eight.
    pub(super) block_length_is_half: bool,
}

/// Offsets of fields in the array of heaps, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeapArrayOffsets {
    /// The number of heaps.
    pub(super) length: u64,
    /// Pointers to the heaps.
    pub(super) pointers: u64,
}

/// Offsets of the pointers to the start and the end of a `VirtualSpace`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpaceOffsets {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Offsets of fields in a `CodeBlob`, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlobOffsets {
    pub(super) name: u64,
    pub(super) size: u64,
    pub(super) code: BlobPlace,
    pub(super) code_end: BlobPlace,
}

/// Fields that the unwinder needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameOffsets {
    /// In a `CodeBlob`: its frame size.
    pub(super) size: u64,
    /// In a `CodeBlob`: the code offset from which on the frame is complete.
    pub(super) complete: u64,
    /// The field `complete` has two bytes, not four.
    pub(super) complete_is_short: bool,
    /// Address of the pointer to the interpreter's `StubQueue`.
    pub(super) interpreter: u64,
    /// In a `StubQueue`: the start of the code.
    pub(super) interpreter_code: u64,
    /// In a `StubQueue`: the length of the code.
    pub(super) interpreter_length: u64,
    /// An interpreter frame has a word for the mirror of the method's class, so its bytecode pointer is one word lower.
    pub(super) has_mirror: bool,
}

/// How a blob refers to one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BlobPlace {
    /// By an offset from the blob's beginning, in this field of four bytes.
    Offset(u64),
    /// By an address, in this field.
    Address(u64),
}

/// Fields of compiled methods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NmethodOffsets {
    /// Size of an `nmethod`.
    pub(super) size: u64,
    /// In an `nmethod`: the `Method*` and the compilation number.
    pub(super) method: u64,
    pub(super) compile_id: u64,
    pub(super) parts: DebugDataOffsets,
    /// Size of a `PcDesc`, a debug record.
    pub(super) record_size: u64,
    /// In a `PcDesc`: the code offset, and the offset of the scope.
    pub(super) record_pc: u64,
    pub(super) record_scope: u64,
}

/// Where a compiled method has its debug records: fields of an `nmethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DebugDataOffsets {
    /// In the blob (JDK 8 to 22): metadata, scopes, records and dependencies, in this order.
    Inside { metadata: u64, scopes: BlobPlace, records: u64, dependencies: u64 },
    /// Outside the blob (JDK 25): the immutable part ends with records and scopes, the mutable part has relocations and
    /// metadata (`metadata_begin` in nmethod.hpp).
    Outside {
        immutable: u64,
        immutable_size: u64,
        records: u64,
        scopes: u64,
        mutable: u64,
        mutable_size: u64,
        relocation_size: u64,
    },
}

/// From a `Method*` to its names and lines: `Method`, `ConstMethod`, `ConstantPool`, `InstanceKlass`, `Symbol`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MethodOffsets {
    /// In a `Method`: its `ConstMethod`.
    pub(super) const_method: u64,
    /// Size of a `ConstMethod`: bytecodes and line table follow.
    pub(super) const_method_size: u64,
    /// In a `ConstMethod`: its constant pool.
    pub(super) constants: u64,
    /// In a `ConstMethod`: its size with everything that follows, in words.
    pub(super) words: u64,
    /// In a `ConstMethod`: its flags, the length of its bytecodes, and the index of its name in the pool.
    pub(super) flags: u64,
    pub(super) code_size: u64,
    pub(super) name_index: u64,
    /// Size of a `ConstantPool`: entries of eight bytes follow.
    pub(super) pool_size: u64,
    /// In a `ConstantPool`: the number of entries, and its class.
    pub(super) pool_length: u64,
    pub(super) pool_holder: u64,
    /// In a `ConstantPool` since JDK 17: the index of the source file's name.
    pub(super) file_in_pool: Option<u64>,
    /// In an `InstanceKlass`: its constant pool.
    pub(super) class_pool: u64,
    /// In an `InstanceKlass` before JDK 17: the index of the source file's name.
    pub(super) file_in_class: Option<u64>,
    /// In a `Klass`: its name, a `Symbol`.
    pub(super) class_name: u64,
    /// In a `Symbol`: the length of the text, and the text.
    pub(super) symbol_length: u64,
    pub(super) symbol_body: u64,
}

/// Data that shows whether classes were unloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassUnloadLayout {
    /// The number of unloaded classes, if the JVM counts them.
    pub(super) unloads: Option<UnloadCounter>,
    pub(super) links: Option<ClassLinks>,
    /// The list of class loaders, and the loaders that are never unloaded, as far as they exist.
    pub(super) graph: Option<LoaderGraphOffsets>,
    pub(super) permanent: Vec<PermanentLoader>,
}

/// The list of class loaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoaderGraphOffsets {
    /// Address of the pointer to the newest loader's data; in that, the link to the next loader.
    pub(super) head: u64,
    pub(super) next: u64,
    /// Address of the pointer to the class `java.lang.Object`.
    pub(super) object: u64,
    /// JDK 8: how to recognise the application's loader.
    pub(super) system: Option<SystemLoaderLayout>,
}

/// How to recognise the application's loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SystemLoaderLayout {
    /// Address of the pointer to the loader.
    pub(super) pointer: u64,
    /// In a loader's data: the loader.
    pub(super) field: u64,
}

/// Where threads and their names are; offsets in bytes unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadOffsets {
    pub(super) list: ThreadListLayout,
    /// In a thread: its `OSThread`; in that, the kernel's thread id in the JVM's own PID namespace.
    pub(super) os_thread: u64,
    pub(super) number: u64,
    /// In a thread: its object, or a handle of it.
    pub(super) object: u64,
    pub(super) is_handle: bool,
    /// In an object: its class.
    pub(super) class: u64,
    /// Addresses of pointers to these classes.
    pub(super) thread_class: u64,
    pub(super) string_class: u64,
    pub(super) oops: PointerCompressionAddresses,
    pub(super) classes: PointerCompressionAddresses,
    pub(super) fields: FieldTable,
    /// An array's elements follow its length without a gap.
    pub(super) no_gap: bool,
    pub(super) collections: CollectionCounterOffsets,
}

/// Where the heap counts its collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CollectionCounterOffsets {
    /// Address of the pointer to the heap.
    pub(super) heap: u64,
    /// In the heap: a byte that is not 0 while a collection has stopped the program, and the number of collections that
    /// began, four bytes.
    pub(super) is_stopped: u64,
    pub(super) count: u64,
}

/// From a thread to the locks for which it waits; offsets in bytes unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LockOffsets {
    /// In a thread: the monitor that it enters, and the monitor for whose notification it waits.
    pub(super) pending: u64,
    pub(super) waiting: u64,
    /// In a thread: the object or handle of the virtual thread that is mounted, else its own (JDK 19 and later).
    pub(super) current: Option<u64>,
    /// In a monitor: its object or handle, and its owner.
    pub(super) object: u64,
    pub(super) owner: u64,
    /// The masks of ZGC's pointers, without and with generations.
    pub(super) plain_colours: Option<ZgcMasks>,
    pub(super) shifted_colours: Option<ZgcMasks>,
    pub(super) owners: LockOwners,
}

/// How the owner of a monitor leads to a thread; offsets in a `JavaThread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LockOwners {
    pub(super) stack: Option<StackOffsets>,
    /// The number that a monitor has for its owner (JDK 24 and later).
    pub(super) id: Option<u64>,
    pub(super) lock_stack: Option<LockStack>,
}

/// The stack of a thread: its end, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StackOffsets {
    pub(super) base: u64,
    pub(super) size: u64,
}

/// The objects that a thread has locked without a monitor (JDK 21 and later): the first one, and a half word with the
/// offset of their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LockStack {
    pub(super) first: u64,
    pub(super) top: u64,
}

/// ZGC's pointers to the masks of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ZgcMasks {
    /// Address of the pointer to the struct; in that, pointers to the masks of good and of bad pointers.
    pub(super) globals: u64,
    pub(super) good: u64,
    pub(super) bad: u64,
}

/// How a JVM lists its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ThreadListLayout {
    /// Address of the pointer to the first thread, and in each thread the next one.
    Linked { first: u64, next: u64 },
    /// Address of the pointer to the list; in that its length and its array.
    Array { list: u64, length: u64, threads: u64 },
}

/// Addresses of base and shift, which turn compressed pointers into addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PointerCompressionAddresses {
    pub(super) base: u64,
    pub(super) shift: u64,
}

/// Where a class has its field table; offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FieldTable {
    /// JDK 8 to 20: an array with six numbers of two bytes for each field; the first `count` fields are Java's.
    Shorts { array: u64, count: u64, data: u64 },
    /// Since JDK 21: an array of bytes with a stream of compressed numbers.
    Stream { array: u64, data: u64 },
}

impl VmLayout {
    /// Adjusts the layout to these flags: thread names are not read if the collector may move objects at any moment.
    pub(in crate::jvm) fn with_flags(self, flags: &Flags) -> VmLayout {
        let threads = self.threads.filter(|_| !flags.moves_objects_meanwhile());
        VmLayout { threads, ..self }
    }

    /// Whether the interpreter's code exists: a starting JVM makes it before it runs Java.
    pub(in crate::jvm) fn has_interpreter<M: Memory>(&self, memory: &M) -> bool {
        memory.word(self.frames.interpreter).is_ok_and(|code| code != 0)
    }
}
