//! Where things are in a JVM: what its own tables say, as far as names of compiled code need it.
//!
//! The few facts that are in no table have their source beside them, and `tests/vm.rs` holds them to what JVMTI says on
//! each JDK.

use serde::{Deserialize, Serialize};

use super::loaders::{ClassLinks, Permanent};
use super::permanent::Graph;
use super::thread_names::{self, Threads};
use super::unloads::{PerfData, Unloads};
use crate::jvm::inspection::Flags;
use crate::jvm::memory::{Memory, Nonsense};
use crate::jvm::version::JavaVersion;
use crate::jvm::vm_structs::{Field, VmStructs};
use crate::text::clean;

const FIELDS: &[Field] = &[
    ("Abstract_VM_Version", "_s_vm_release"),
    ("CodeCache", "_heap"),
    ("CodeCache", "_heaps"),
    ("GenericGrowableArray", "_len"),
    ("GrowableArrayBase", "_len"),
    ("GrowableArray<int>", "_data"),
    ("CodeHeap", "_memory"),
    ("CodeHeap", "_segmap"),
    ("CodeHeap", "_log2_segment_size"),
    ("VirtualSpace", "_low"),
    ("VirtualSpace", "_high"),
    ("VirtualSpace", "_high_boundary"),
    ("HeapBlock", "_header"),
    ("HeapBlock::Header", "_length"),
    ("HeapBlock::Header", "_used"),
    ("CodeBlob", "_name"),
    ("CodeBlob", "_size"),
    ("CodeBlob", "_code_begin"),
    ("CodeBlob", "_code_end"),
    ("CodeBlob", "_code_offset"),
    ("CodeBlob", "_data_offset"),
    ("CodeBlob", "_header_size"),
    ("CodeBlob", "_frame_size"),
    ("CodeBlob", "_frame_complete_offset"),
    ("CodeBlob", "_relocation_size"),
    ("CodeBlob", "_mutable_data"),
    ("CodeBlob", "_mutable_data_size"),
    ("CompiledMethod", "_method"),
    ("CompiledMethod", "_scopes_data_begin"),
    ("nmethod", "_method"),
    ("nmethod", "_compile_id"),
    ("nmethod", "_metadata_offset"),
    ("nmethod", "_scopes_data_offset"),
    ("nmethod", "_scopes_pcs_offset"),
    ("nmethod", "_dependencies_offset"),
    ("nmethod", "_immutable_data"),
    ("nmethod", "_immutable_data_size"),
    ("PcDesc", "_pc_offset"),
    ("PcDesc", "_scope_decode_offset"),
    ("Method", "_constMethod"),
    ("ConstMethod", "_constants"),
    ("ConstMethod", "_constMethod_size"),
    ("ConstMethod", "_flags"),
    ("ConstMethod", "_flags._flags"),
    ("ConstMethod", "_code_size"),
    ("ConstMethod", "_name_index"),
    ("ConstantPool", "_pool_holder"),
    ("ConstantPool", "_length"),
    ("ConstantPool", "_source_file_name_index"),
    ("InstanceKlass", "_source_file_name_index"),
    ("InstanceKlass", "_constants"),
    ("Klass", "_name"),
    ("Symbol", "_length"),
    ("Symbol", "_body"),
    ("StubRoutines", "_call_stub_return_address"),
    ("Klass", "_class_loader_data"),
    ("InstanceKlass", "_class_loader_data"),
    ("Klass", "_next_link"),
    ("Klass", "_layout_helper"),
    ("ClassLoaderData", "_klasses"),
    ("ClassLoaderData", "_next"),
    ("ClassLoaderData", "_class_loader"),
    ("ClassLoaderDataGraph", "_head"),
    ("SystemDictionary", "_java_system_loader"),
    OBJECT_CLASS[0],
    OBJECT_CLASS[1],
    ("PerfMemory", "_start"),
    ("PerfDataPrologue", "entry_offset"),
    ("PerfDataPrologue", "num_entries"),
    ("PerfDataEntry", "entry_length"),
    ("PerfDataEntry", "name_offset"),
    ("PerfDataEntry", "data_offset"),
    ("AbstractInterpreter", "_code"),
    ("StubQueue", "_stub_buffer"),
    ("StubQueue", "_buffer_limit"),
];
/// The pointer to the class of all objects, up to JDK 15 and later.
const OBJECT_CLASS: [Field; 2] = [
    ("SystemDictionary", "_well_known_klasses[SystemDictionary::Object_klass_knum]"),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::Object_klass_knum)]"),
];
const TYPES: &[&str] = &["HeapBlock", "nmethod", "PcDesc", "ConstMethod", "ConstantPool"];

/// Offsets within a structure, and structures themselves, are small; more is a lie.
const MAX_OFFSET: u64 = 4096;
/// In a frame of the interpreter the bytecode pointer (`interpreter_frame_bcx_offset` in frame_x86.hpp of JDK 8,
/// `interpreter_frame_bcp_offset` later) has the seventh word below fp, and the eighth since this release, which keeps
/// the class's mirror too.
const MIRROR_SINCE: u32 = 9;
/// Numbers in debug records and line tables have no zero bytes since this release (`unsigned5.rs`).
const NULL_FREE_SINCE: u32 = 20;

/// Where things are in one JVM: plain numbers, offsets in bytes unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub(super) heaps: Heaps,
    pub(super) blob: Blobs,
    pub(super) nmethod: Nmethods,
    pub(super) method: Methods,
    pub(super) frames: Frames,
    pub(super) classes: Classes,
    /// Where threads have their names, if this JVM tells it.
    pub(super) threads: Option<Threads>,
    /// The address to which the first Java frame of a thread returns.
    pub(super) call_stub_return: Option<u64>,
    /// How numbers are compressed.
    pub(super) null_free: bool,
}

/// The code heaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heaps {
    /// Address of the pointer to the one heap (JDK 8), or to the array of them.
    pub(super) at: u64,
    /// In the array: number of heaps, and their pointers; `None` for the one heap.
    pub(super) array: Option<(u64, u64)>,
    /// In a heap: first byte and end of its memory, the same of its segment map, and the logarithm of a segment's size.
    pub(super) memory: (u64, u64),
    /// The end of the memory that it may grow to.
    pub(super) memory_limit: u64,
    pub(super) segment_map: (u64, u64),
    pub(super) segment_log2: u64,
    /// Before each blob; in it whether it is in use, and its length with the blob, a word or less, in segments.
    pub(super) block_size: u64,
    pub(super) block_used: u64,
    pub(super) block_length: u64,
    pub(super) block_length_is_half: bool,
}

/// What all code blobs have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blobs {
    pub(super) name: u64,
    pub(super) size: u64,
    pub(super) code: Place,
    pub(super) code_end: Place,
}

/// What stacks are walked by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frames {
    /// In a blob: the size of its frames, and from where in its code on they are there, in four bytes or two.
    pub(super) size: u64,
    pub(super) complete: u64,
    pub(super) complete_is_short: bool,
    /// Address of the pointer to the interpreter's code; in that where it begins, and its length.
    pub(super) interpreter: u64,
    pub(super) interpreter_code: u64,
    pub(super) interpreter_length: u64,
    /// The frame of the interpreter has the class's mirror.
    pub(super) has_mirror: bool,
}

/// How a blob says where a part of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// By an offset from its beginning, in this field of four bytes.
    Offset(u64),
    /// By an address, in this field.
    Address(u64),
}

/// What compiled methods have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nmethods {
    /// The structure's own size.
    pub(super) size: u64,
    pub(super) method: u64,
    pub(super) compile_id: u64,
    pub(super) parts: Parts,
    /// A debug record's size, and its fields.
    pub(super) record_size: u64,
    pub(super) record_pc: u64,
    pub(super) record_scope: u64,
}

/// Where a compiled method has its debug records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Parts {
    /// In the blob (JDK 8 to 22): metadata, scopes, records, dependencies follow each other.
    Inside { metadata: u64, scopes: Place, records: u64, dependencies: u64 },
    /// Outside (JDK 25): the immutable part ends with records and scopes, the mutable one has relocations and metadata
    /// (`metadata_begin` in nmethod.hpp).
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

/// From a `Method*` to its names and lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Methods {
    pub(super) const_method: u64,
    /// The structure's own size: bytecodes and line table follow.
    pub(super) const_method_size: u64,
    pub(super) constants: u64,
    /// Its size with all that follows, in words.
    pub(super) words: u64,
    pub(super) flags: u64,
    pub(super) code_size: u64,
    pub(super) name_index: u64,
    /// The structure's own size: entries of eight bytes follow.
    pub(super) pool_size: u64,
    pub(super) pool_length: u64,
    pub(super) pool_holder: u64,
    /// In a class: its pool.
    pub(super) class_pool: u64,
    /// The index of the source file's name, in the class's pool; before JDK 17 in the class.
    pub(super) file_in_pool: Option<u64>,
    pub(super) file_in_class: Option<u64>,
    pub(super) class_name: u64,
    pub(super) symbol_length: u64,
    pub(super) symbol_body: u64,
}

/// What tells whether classes stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Classes {
    /// How many have been unloaded, if the JVM counts it.
    pub(super) unloads: Option<Unloads>,
    pub(super) links: Option<ClassLinks>,
    /// Where loaders are, and those that never go, as far as they are there.
    pub(super) graph: Option<Graph>,
    pub(super) permanent: Vec<Permanent>,
}

/// Looks fields up, and refuses what cannot be.
pub(super) struct Tables(VmStructs);

impl Tables {
    pub(super) fn address(&self, class: &'static str, name: &'static str) -> Result<u64, Nonsense> {
        self.0.field(class, name).ok_or(Nonsense)
    }

    pub(super) fn offset(&self, class: &'static str, name: &'static str) -> Result<u64, Nonsense> {
        self.0.field(class, name).filter(|&offset| offset < MAX_OFFSET).ok_or(Nonsense)
    }

    fn size(&self, name: &'static str) -> Result<u64, Nonsense> {
        self.0.size(name).filter(|size| (1..MAX_OFFSET).contains(size)).ok_or(Nonsense)
    }

    /// The first of these static fields that this JVM has.
    pub(super) fn first_address(&self, fields: &[Field]) -> Result<u64, Nonsense> {
        fields.iter().find_map(|&(class, name)| self.address(class, name).ok()).ok_or(Nonsense)
    }

    /// The first of these that this JVM has.
    pub(super) fn first(&self, fields: &[Field]) -> Result<u64, Nonsense> {
        fields.iter().find_map(|&(class, name)| self.offset(class, name).ok()).ok_or(Nonsense)
    }

    fn place(&self, address: Field, offset: Field) -> Result<Place, Nonsense> {
        match self.offset(address.0, address.1) {
            Ok(field) => Ok(Place::Address(field)),
            Err(Nonsense) => self.offset(offset.0, offset.1).map(Place::Offset),
        }
    }
}

impl Layout {
    /// The same in a JVM with these flags: objects that may move at any moment are not read.
    pub(in crate::jvm) fn with_flags(self, flags: &Flags) -> Layout {
        let threads = self.threads.filter(|_| !flags.moves_objects_meanwhile());
        Layout { threads, ..self }
    }

    /// Reads the tables of the JVM whose `libjvm.so` is mapped at `base`.
    pub(in crate::jvm) fn read<M: Memory>(memory: &M, base: u64) -> Result<Layout, Nonsense> {
        let tables = Tables(VmStructs::read(memory, base, &[FIELDS, thread_names::FIELDS], TYPES)?);
        let release = memory.word(tables.address("Abstract_VM_Version", "_s_vm_release")?)?;
        let version = JavaVersion::parse(&clean(&memory.string(release)?, 80)).ok_or(Nonsense)?;
        let call_stub = tables.address("StubRoutines", "_call_stub_return_address");
        Ok(Layout {
            heaps: heaps(&tables)?,
            blob: Blobs {
                name: tables.offset("CodeBlob", "_name")?,
                size: tables.offset("CodeBlob", "_size")?,
                code: tables.place(("CodeBlob", "_code_begin"), ("CodeBlob", "_code_offset"))?,
                code_end: tables.place(("CodeBlob", "_code_end"), ("CodeBlob", "_data_offset"))?,
            },
            nmethod: nmethods(&tables)?,
            method: methods(&tables)?,
            frames: frames(&tables, version.feature >= MIRROR_SINCE)?,
            classes: classes(memory, &tables, version.feature),
            threads: thread_names::threads(&tables, version.feature).ok(),
            call_stub_return: call_stub.and_then(|at| memory.word(at)).ok().filter(|&pc| pc != 0),
            null_free: version.feature >= NULL_FREE_SINCE,
        })
    }

    /// Whether the interpreter's code is there: a JVM that has just begun makes it before it runs Java.
    pub(in crate::jvm) fn has_interpreter<M: Memory>(&self, memory: &M) -> bool {
        memory.word(self.frames.interpreter).is_ok_and(|code| code != 0)
    }

    /// Whether the loader with this data never goes.
    pub(super) fn is_permanent<M: Memory>(&self, memory: &M, loader: u64) -> bool {
        let Classes { graph, links, .. } = &self.classes;
        graph
            .zip(*links)
            .is_some_and(|(graph, links)| graph.is_permanent(memory, loader, &links, &self.method))
    }
}

fn heaps(tables: &Tables) -> Result<Heaps, Nonsense> {
    let (at, array) = match tables.address("CodeCache", "_heaps") {
        Ok(at) => {
            let length = tables.first(&[("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")])?;
            (at, Some((length, tables.offset("GrowableArray<int>", "_data")?)))
        }
        Err(Nonsense) => (tables.address("CodeCache", "_heap")?, None),
    };
    let (low, high) = (tables.offset("VirtualSpace", "_low")?, tables.offset("VirtualSpace", "_high")?);
    let space = |name| tables.offset("CodeHeap", name).map(|space| (space + low, space + high));
    let block = tables.offset("HeapBlock", "_header")?;
    let (length, used) =
        (tables.offset("HeapBlock::Header", "_length")?, tables.offset("HeapBlock::Header", "_used")?);
    Ok(Heaps {
        at,
        array,
        memory: space("_memory")?,
        memory_limit: tables.offset("CodeHeap", "_memory")?
            + tables.offset("VirtualSpace", "_high_boundary")?,
        segment_map: space("_segmap")?,
        segment_log2: tables.offset("CodeHeap", "_log2_segment_size")?,
        block_size: tables.size("HeapBlock")?,
        block_used: block + used,
        block_length: block + length,
        // One follows the other (memory/heap.hpp).
        block_length_is_half: used.checked_sub(length).ok_or(Nonsense)? < 8,
    })
}

fn classes<M: Memory>(memory: &M, tables: &Tables, feature: u32) -> Classes {
    let entry = |name| tables.offset("PerfDataEntry", name);
    let head = |name| tables.offset("PerfDataPrologue", name);
    let perf_data = || {
        Ok::<_, Nonsense>(PerfData {
            start: tables.address("PerfMemory", "_start")?,
            first: head("entry_offset")?,
            count: head("num_entries")?,
            length: entry("entry_length")?,
            name: entry("name_offset")?,
            value: entry("data_offset")?,
        })
    };
    let unloads = perf_data().and_then(|layout| Unloads::find(memory, &layout));
    let links = class_links(tables).ok();
    let graph = graph(tables, feature).ok();
    let permanent = links.zip(graph).zip(methods(tables).ok());
    let permanent = permanent.map(|((links, graph), methods)| graph.permanent(memory, &links, &methods));
    Classes { unloads: unloads.ok(), links, graph, permanent: permanent.unwrap_or_default() }
}

fn class_links(tables: &Tables) -> Result<ClassLinks, Nonsense> {
    let loader = tables.first(&[("Klass", "_class_loader_data"), ("InstanceKlass", "_class_loader_data")])?;
    // JDK 8 does not tell of two of them: they are where klass.hpp and classLoaderData.hpp have them, the link before the
    // loader's data, the first class four words before the next loader.
    let before = |place: u64, words: u64| place.checked_sub(words * 8).ok_or(Nonsense);
    let next = tables.offset("Klass", "_next_link").or_else(|_| before(loader, 1))?;
    let first = tables
        .offset("ClassLoaderData", "_klasses")
        .or_else(|_| before(tables.offset("ClassLoaderData", "_next")?, 4))?;
    Ok(ClassLinks { loader, first, next, kind: tables.offset("Klass", "_layout_helper")? })
}

fn graph(tables: &Tables, feature: u32) -> Result<Graph, Nonsense> {
    let system = || {
        let system = tables.address("SystemDictionary", "_java_system_loader");
        Some((system.ok()?, tables.offset("ClassLoaderData", "_class_loader").ok()?))
    };
    Ok(Graph {
        head: tables.address("ClassLoaderDataGraph", "_head")?,
        next: tables.offset("ClassLoaderData", "_next")?,
        object: tables.first_address(&OBJECT_CLASS)?,
        // Later it is the address of a handle.
        system: system().filter(|_| feature < MIRROR_SINCE),
    })
}

fn frames(tables: &Tables, has_mirror: bool) -> Result<Frames, Nonsense> {
    let complete = tables.offset("CodeBlob", "_frame_complete_offset")?;
    Ok(Frames {
        size: tables.offset("CodeBlob", "_frame_size")?,
        complete,
        // Two numbers of two bytes follow each other since JDK 24, before numbers of four (code/codeBlob.hpp).
        complete_is_short: tables.offset("CodeBlob", "_header_size")?.abs_diff(complete) < 4,
        interpreter: tables.address("AbstractInterpreter", "_code")?,
        interpreter_code: tables.offset("StubQueue", "_stub_buffer")?,
        interpreter_length: tables.offset("StubQueue", "_buffer_limit")?,
        has_mirror,
    })
}

fn nmethods(tables: &Tables) -> Result<Nmethods, Nonsense> {
    let own = |name| tables.offset("nmethod", name);
    let parts = match own("_immutable_data") {
        Ok(immutable) => Parts::Outside {
            immutable,
            immutable_size: own("_immutable_data_size")?,
            records: own("_scopes_pcs_offset")?,
            scopes: own("_scopes_data_offset")?,
            mutable: tables.offset("CodeBlob", "_mutable_data")?,
            mutable_size: tables.offset("CodeBlob", "_mutable_data_size")?,
            relocation_size: tables.offset("CodeBlob", "_relocation_size")?,
        },
        Err(Nonsense) => Parts::Inside {
            metadata: own("_metadata_offset")?,
            scopes: tables
                .place(("CompiledMethod", "_scopes_data_begin"), ("nmethod", "_scopes_data_offset"))?,
            records: own("_scopes_pcs_offset")?,
            dependencies: own("_dependencies_offset")?,
        },
    };
    Ok(Nmethods {
        size: tables.size("nmethod")?,
        method: tables.first(&[("nmethod", "_method"), ("CompiledMethod", "_method")])?,
        compile_id: own("_compile_id")?,
        parts,
        record_size: tables.size("PcDesc")?,
        record_pc: tables.offset("PcDesc", "_pc_offset")?,
        record_scope: tables.offset("PcDesc", "_scope_decode_offset")?,
    })
}

fn methods(tables: &Tables) -> Result<Methods, Nonsense> {
    let constant = |name| tables.offset("ConstMethod", name);
    let pool = |name| tables.offset("ConstantPool", name);
    Ok(Methods {
        const_method: tables.offset("Method", "_constMethod")?,
        const_method_size: tables.size("ConstMethod")?,
        constants: constant("_constants")?,
        words: constant("_constMethod_size")?,
        flags: tables.first(&[("ConstMethod", "_flags"), ("ConstMethod", "_flags._flags")])?,
        code_size: constant("_code_size")?,
        name_index: constant("_name_index")?,
        pool_size: tables.size("ConstantPool")?,
        pool_length: pool("_length")?,
        pool_holder: pool("_pool_holder")?,
        class_pool: tables.offset("InstanceKlass", "_constants")?,
        file_in_pool: pool("_source_file_name_index").ok(),
        file_in_class: tables.offset("InstanceKlass", "_source_file_name_index").ok(),
        class_name: tables.offset("Klass", "_name")?,
        symbol_length: tables.offset("Symbol", "_length")?,
        symbol_body: tables.offset("Symbol", "_body")?,
    })
}
