//! Reads the layout of a JVM from the JVM's own tables (VMStructs).
//!
//! A few facts are in no table. Their source is beside them, and `tests/end_to_end/vm.rs` compares the results with
//! JVMTI on each JDK.

use super::layout::{
    BlobOffsets, ClassUnloadLayout, DebugDataOffsets, FrameOffsets, HeapArrayOffsets, HeapOffsets,
    LoaderGraphOffsets, MethodOffsets, NmethodOffsets, SpaceOffsets, SystemLoaderLayout, VmLayout,
};
use super::loaders::ClassLinks;
use super::locks;
use super::tables::FieldTables;
use super::unloads::{PerfData, UnloadCounter};
use super::{collections, lock_owners, thread_names};
use crate::jvm::memory::{InvalidMemory, Memory};
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
/// The pointer to the class `java.lang.Object`, up to JDK 15 and later.
const OBJECT_CLASS: [Field; 2] = [
    ("SystemDictionary", "_well_known_klasses[SystemDictionary::Object_klass_knum]"),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::Object_klass_knum)]"),
];
const TYPES: &[&str] = &["HeapBlock", "nmethod", "PcDesc", "ConstMethod", "ConstantPool"];

/// In an interpreter frame the bytecode pointer is the seventh word below fp (`interpreter_frame_bcx_offset` in
/// frame_x86.hpp of JDK 8, `interpreter_frame_bcp_offset` later). Since this release it is the eighth, because the
/// frame has the class's mirror too.
const MIRROR_SINCE: u32 = 9;
/// Numbers in debug records and line tables have no zero bytes since this release (`unsigned5.rs`).
const NULL_FREE_SINCE: u32 = 20;

impl VmLayout {
    /// `base` is where `libjvm.so` is mapped.
    pub(in crate::jvm) fn read<M: Memory>(memory: &M, base: u64) -> Result<VmLayout, InvalidMemory> {
        let tables = FieldTables(VmStructs::read(
            memory,
            base,
            &[FIELDS, collections::FIELDS, thread_names::FIELDS, locks::FIELDS, lock_owners::FIELDS],
            TYPES,
        )?);
        let release = memory.word(tables.address("Abstract_VM_Version", "_s_vm_release")?)?;
        let version = JavaVersion::parse(&clean(&memory.string(release)?, 80)).ok_or(InvalidMemory)?;
        let call_stub = tables.address("StubRoutines", "_call_stub_return_address");
        let method = methods(&tables)?;
        let classes = classes(memory, &tables, &method, version.feature);
        Ok(VmLayout {
            heaps: heaps(&tables)?,
            blob: BlobOffsets {
                name: tables.offset("CodeBlob", "_name")?,
                size: tables.offset("CodeBlob", "_size")?,
                code: tables.place(("CodeBlob", "_code_begin"), ("CodeBlob", "_code_offset"))?,
                code_end: tables.place(("CodeBlob", "_code_end"), ("CodeBlob", "_data_offset"))?,
            },
            nmethod: nmethods(&tables)?,
            method,
            frames: frames(&tables, version.feature >= MIRROR_SINCE)?,
            classes,
            threads: thread_names::threads(&tables, version.feature).ok(),
            locks: locks::locks(&tables).ok(),
            call_stub_return: call_stub.and_then(|at| memory.word(at)).ok().filter(|&pc| pc != 0),
            null_free: version.feature >= NULL_FREE_SINCE,
        })
    }
}

fn heaps(tables: &FieldTables) -> Result<HeapOffsets, InvalidMemory> {
    let (address, array) = match tables.address("CodeCache", "_heaps") {
        Ok(address) => {
            let length = tables.first(&[("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")])?;
            let pointers = tables.offset("GrowableArray<int>", "_data")?;
            (address, Some(HeapArrayOffsets { length, pointers }))
        }
        Err(InvalidMemory) => (tables.address("CodeCache", "_heap")?, None),
    };
    let (low, high) = (tables.offset("VirtualSpace", "_low")?, tables.offset("VirtualSpace", "_high")?);
    let space = |name| {
        tables.offset("CodeHeap", name).map(|space| SpaceOffsets { start: space + low, end: space + high })
    };
    let block = tables.offset("HeapBlock", "_header")?;
    let (length, used) =
        (tables.offset("HeapBlock::Header", "_length")?, tables.offset("HeapBlock::Header", "_used")?);
    Ok(HeapOffsets {
        address,
        array,
        memory: space("_memory")?,
        memory_limit: tables.offset("CodeHeap", "_memory")?
            + tables.offset("VirtualSpace", "_high_boundary")?,
        segment_map: space("_segmap")?,
        segment_log2: tables.offset("CodeHeap", "_log2_segment_size")?,
        block_size: tables.size("HeapBlock")?,
        block_used: block + used,
        block_length: block + length,
        // One field follows the other (memory/heap.hpp).
        block_length_is_half: used.checked_sub(length).ok_or(InvalidMemory)? < 8,
    })
}

fn classes<M: Memory>(
    memory: &M,
    tables: &FieldTables,
    methods: &MethodOffsets,
    feature: u32,
) -> ClassUnloadLayout {
    let entry = |name| tables.offset("PerfDataEntry", name);
    let head = |name| tables.offset("PerfDataPrologue", name);
    let perf_data = || {
        Ok::<_, InvalidMemory>(PerfData {
            start: tables.address("PerfMemory", "_start")?,
            first: head("entry_offset")?,
            count: head("num_entries")?,
            length: entry("entry_length")?,
            name: entry("name_offset")?,
            value: entry("data_offset")?,
        })
    };
    let unloads = perf_data().and_then(|layout| UnloadCounter::find(memory, &layout));
    let links = class_links(tables).ok();
    let graph = graph(tables, feature).ok();
    let permanent = links.zip(graph).map(|(links, graph)| graph.permanent(memory, &links, methods));
    ClassUnloadLayout { unloads: unloads.ok(), links, graph, permanent: permanent.unwrap_or_default() }
}

fn class_links(tables: &FieldTables) -> Result<ClassLinks, InvalidMemory> {
    let loader = tables.first(&[("Klass", "_class_loader_data"), ("InstanceKlass", "_class_loader_data")])?;
    // JDK 8 does not list two of the fields. Their places are those in klass.hpp and classLoaderData.hpp: the link is
    // before the loader's data, and the first class four words before the next loader.
    let before = |place: u64, words: u64| place.checked_sub(words * 8).ok_or(InvalidMemory);
    let next = tables.offset("Klass", "_next_link").or_else(|_| before(loader, 1))?;
    let first = tables
        .offset("ClassLoaderData", "_klasses")
        .or_else(|_| before(tables.offset("ClassLoaderData", "_next")?, 4))?;
    Ok(ClassLinks { loader, first, next, kind: tables.offset("Klass", "_layout_helper")? })
}

fn graph(tables: &FieldTables, feature: u32) -> Result<LoaderGraphOffsets, InvalidMemory> {
    let system = || {
        let pointer = tables.address("SystemDictionary", "_java_system_loader").ok()?;
        Some(SystemLoaderLayout { pointer, field: tables.offset("ClassLoaderData", "_class_loader").ok()? })
    };
    Ok(LoaderGraphOffsets {
        head: tables.address("ClassLoaderDataGraph", "_head")?,
        next: tables.offset("ClassLoaderData", "_next")?,
        object: tables.first_address(&OBJECT_CLASS)?,
        // Later releases have the address of a handle there.
        system: system().filter(|_| feature < MIRROR_SINCE),
    })
}

fn frames(tables: &FieldTables, has_mirror: bool) -> Result<FrameOffsets, InvalidMemory> {
    let complete = tables.offset("CodeBlob", "_frame_complete_offset")?;
    Ok(FrameOffsets {
        size: tables.offset("CodeBlob", "_frame_size")?,
        complete,
        // The two fields are adjacent: two bytes each since JDK 23 (JDK-8329433), before four bytes each.
        complete_is_short: tables.offset("CodeBlob", "_header_size")?.abs_diff(complete) < 4,
        interpreter: tables.address("AbstractInterpreter", "_code")?,
        interpreter_code: tables.offset("StubQueue", "_stub_buffer")?,
        interpreter_length: tables.offset("StubQueue", "_buffer_limit")?,
        has_mirror,
    })
}

fn nmethods(tables: &FieldTables) -> Result<NmethodOffsets, InvalidMemory> {
    let own = |name| tables.offset("nmethod", name);
    let parts = match own("_immutable_data") {
        Ok(immutable) => DebugDataOffsets::Outside {
            immutable,
            immutable_size: own("_immutable_data_size")?,
            records: own("_scopes_pcs_offset")?,
            scopes: own("_scopes_data_offset")?,
            mutable: tables.offset("CodeBlob", "_mutable_data")?,
            mutable_size: tables.offset("CodeBlob", "_mutable_data_size")?,
            relocation_size: tables.offset("CodeBlob", "_relocation_size")?,
        },
        Err(InvalidMemory) => DebugDataOffsets::Inside {
            metadata: own("_metadata_offset")?,
            scopes: tables
                .place(("CompiledMethod", "_scopes_data_begin"), ("nmethod", "_scopes_data_offset"))?,
            records: own("_scopes_pcs_offset")?,
            dependencies: own("_dependencies_offset")?,
        },
    };
    Ok(NmethodOffsets {
        size: tables.size("nmethod")?,
        method: tables.first(&[("nmethod", "_method"), ("CompiledMethod", "_method")])?,
        compile_id: own("_compile_id")?,
        parts,
        record_size: tables.size("PcDesc")?,
        record_pc: tables.offset("PcDesc", "_pc_offset")?,
        record_scope: tables.offset("PcDesc", "_scope_decode_offset")?,
    })
}

fn methods(tables: &FieldTables) -> Result<MethodOffsets, InvalidMemory> {
    let constant = |name| tables.offset("ConstMethod", name);
    let pool = |name| tables.offset("ConstantPool", name);
    Ok(MethodOffsets {
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
