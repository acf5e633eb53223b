//! `libjvm.so` in memory: the VMStructs tables, and the data to which they lead.

use super::threads;
use super::{BASE, CALL_STUB_RETURN, FakeMemory, INTERPRETER, LIBRARY, METHOD, POINTER};

/// The fields that [`super::layout`] has: class, name, whether the value is an address, and the value.
const FIELDS: &[(&str, &str, bool, u64)] = &[
    ("CodeCache", "_heap", true, BASE + POINTER),
    ("CodeHeap", "_memory", false, 0),
    ("CodeHeap", "_segmap", false, 16),
    ("CodeHeap", "_log2_segment_size", false, 32),
    ("VirtualSpace", "_low", false, 0),
    ("VirtualSpace", "_high", false, 8),
    ("VirtualSpace", "_high_boundary", false, 40),
    ("HeapBlock", "_header", false, 0),
    ("HeapBlock::Header", "_length", false, 0),
    ("HeapBlock::Header", "_used", false, 8),
    ("CodeBlob", "_name", false, 0),
    ("CodeBlob", "_size", false, 8),
    ("CodeBlob", "_code_offset", false, 12),
    ("CodeBlob", "_data_offset", false, 16),
    ("CodeBlob", "_frame_size", false, 20),
    ("CodeBlob", "_frame_complete_offset", false, 24),
    ("CodeBlob", "_header_size", false, 28),
    ("nmethod", "_method", false, 32),
    ("nmethod", "_compile_id", false, 40),
    ("nmethod", "_metadata_offset", false, 44),
    ("nmethod", "_scopes_data_offset", false, 48),
    ("nmethod", "_scopes_pcs_offset", false, 52),
    ("nmethod", "_dependencies_offset", false, 56),
    ("PcDesc", "_pc_offset", false, 0),
    ("PcDesc", "_scope_decode_offset", false, 4),
    ("AbstractInterpreter", "_code", true, BASE + INTERPRETER),
    ("StubQueue", "_stub_buffer", false, 8),
    ("StubQueue", "_buffer_limit", false, 16),
    ("Method", "_constMethod", false, 8),
    ("ConstMethod", "_constants", false, 0),
    ("ConstMethod", "_constMethod_size", false, 8),
    ("ConstMethod", "_flags", false, 12),
    ("ConstMethod", "_code_size", false, 14),
    ("ConstMethod", "_name_index", false, 16),
    ("ConstantPool", "_pool_holder", false, 0),
    ("ConstantPool", "_length", false, 8),
    ("ConstantPool", "_source_file_name_index", false, 12),
    ("InstanceKlass", "_constants", false, 8),
    ("Klass", "_name", false, 0),
    ("Symbol", "_length", false, 0),
    ("Symbol", "_body", false, 2),
];
/// The fields that show which classes were unloaded.
const CLASSES: &[(&str, &str, bool, u64)] = &[
    ("Klass", "_class_loader_data", false, 16),
    ("Klass", "_next_link", false, 24),
    ("Klass", "_layout_helper", false, 32),
    ("ClassLoaderData", "_klasses", false, 0),
    ("ClassLoaderData", "_next", false, 8),
    ("ClassLoaderDataGraph", "_head", true, BASE + LOADERS),
    ("vmClasses", "_klasses[static_cast<int>(vmClassID::Object_klass_knum)]", true, BASE + LOADERS + 8),
    ("PerfMemory", "_start", true, BASE + LOADERS + 16),
    ("PerfDataPrologue", "entry_offset", false, 0),
    ("PerfDataPrologue", "num_entries", false, 4),
    ("PerfDataEntry", "entry_length", false, 0),
    ("PerfDataEntry", "name_offset", false, 4),
    ("PerfDataEntry", "data_offset", false, 8),
];
const TYPES: &[(&str, u64)] = &[
    ("HeapBlock", 16),
    ("nmethod", 64),
    ("PcDesc", 16),
    ("ConstMethod", 64),
    ("ConstantPool", 32),
    ("JVMFlag", 16),
];
/// Pointers to the first loader's data, to the class `java.lang.Object` and to the performance data; then a loader's
/// data.
pub(super) const LOADERS: u64 = 0x7_8000;
const LOADER: u64 = LOADERS + 0x40;
pub(super) const PERF_DATA: u64 = LOADERS + 0x80;

/// The part of the library that is written so far, up to `end`.
struct FakeLibjvm<'a> {
    bytes: &'a FakeMemory,
    end: u64,
}

impl FakeLibjvm<'_> {
    fn words(&mut self, words: &[u64]) -> u64 {
        let at = self.end.next_multiple_of(8);
        for (place, word) in (0..).zip(words) {
            self.bytes.word(at + place * 8, *word);
        }
        self.end = at + words.len() as u64 * 8;
        BASE + at
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = self.bytes.text(self.end, text);
        self.end += text.len() as u64 + 1;
        at
    }

    /// A table of fields, and its end: type, name, whether it is static, offset, address.
    fn fields<'f>(&mut self, fields: impl Iterator<Item = &'f (&'f str, &'f str, bool, u64)>) -> u64 {
        let mut table = Vec::new();
        for &(class, name, is_static, value) in fields {
            let (offset, address) = if is_static { (0, value) } else { (value, 0) };
            table.extend([self.text(class), self.text(name), u64::from(is_static), offset, address]);
        }
        table.extend([0; 5]);
        self.words(&table)
    }

    fn types(&mut self, types: &[(&str, u64)]) -> u64 {
        let mut table: Vec<u64> = types.iter().flat_map(|&(name, size)| [self.text(name), size]).collect();
        table.extend([0; 2]);
        self.words(&table)
    }

    /// Exports variables with these values: dynamic section, symbols, one chain of a System V hash table.
    fn export(&mut self, variables: &[(&str, u64)]) {
        let offset = |address: u64| address - (BASE + LIBRARY);
        let names: Vec<u64> = variables.iter().map(|(name, _)| self.text(name)).collect();
        let values: Vec<u64> = variables.iter().map(|&(_, value)| self.words(&[value])).collect();
        let strings = BASE + LIBRARY;
        let mut symbols = vec![0; 3];
        symbols.extend(names.iter().zip(values).flat_map(|(name, value)| [name - strings, offset(value), 8]));
        let symbols = self.words(&symbols);
        let count = variables.len() as u64;
        let chain = (2..=count).chain([0]).map(|next| next as u32);
        let hash: Vec<u32> = [1, count as u32 + 1, 1, 0].into_iter().chain(chain).chain([0]).collect();
        let hash: Vec<u64> =
            hash.as_chunks().0.iter().map(|&[low, high]| u64::from(low) | u64::from(high) << 32).collect();
        let hash = self.words(&hash);
        // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_NULL.
        let dynamic = self.words(&[4, offset(hash), 5, offset(strings), 6, offset(symbols), 0, 0]);
        self.bytes.put(LIBRARY, b"\x7fELF\x02");
        self.bytes.word(LIBRARY + 32, 64);
        self.bytes.put(LIBRARY + 54, &[56, 0, 2, 0]);
        // PT_LOAD of the first byte, PT_DYNAMIC.
        self.bytes.half(LIBRARY + 64, 1);
        self.bytes.half(LIBRARY + 64 + 56, 2);
        self.bytes.word(LIBRARY + 64 + 56 + 16, offset(dynamic));
        self.bytes.word(LIBRARY + 64 + 56 + 40, 64);
    }
}

impl FakeMemory {
    /// Adds the library of a JVM of this release: its tables describe [`super::layout`], a flag, and with `classes`
    /// also loaders and threads. Returns the offset of its end.
    pub fn library(&self, release: &str, classes: bool) -> u64 {
        let mut library = FakeLibjvm { bytes: self, end: LIBRARY + 64 + 2 * 56 };
        let release_is_21 = release.starts_with("21");
        let release = library.text(release);
        let release = library.words(&[release]);
        let info = library.text("mixed mode");
        let info = library.words(&[info]);
        let call_stub = library.words(&[CALL_STUB_RETURN]);
        let flag = library.text("PreserveFramePointer");
        let on = library.words(&[1]);
        let flags = library.words(&[flag, on]);
        let (flags, count) = (library.words(&[flags]), library.words(&[1]));
        let own = [
            ("Abstract_VM_Version", "_s_vm_release", true, release),
            ("Abstract_VM_Version", "_s_internal_vm_info_string", true, info),
            ("StubRoutines", "_call_stub_return_address", true, call_stub),
            ("JVMFlag", "flags", true, flags),
            ("JVMFlag", "numFlags", true, count),
            ("JVMFlag", "_name", false, 0),
            ("JVMFlag", "_addr", false, 8),
        ];
        let known = if classes { CLASSES } else { &[] };
        let of_threads = if classes { threads::FIELDS } else { &[] };
        let of_classes = if release_is_21 { threads::STREAM } else { threads::SHORTS };
        let all = FIELDS.iter().chain(&own).chain(known).chain(of_threads).chain(of_classes);
        let fields = library.fields(all);
        let types = library.types(TYPES);
        library.export(&[
            ("gHotSpotVMStructs", fields),
            ("gHotSpotVMStructEntryTypeNameOffset", 0),
            ("gHotSpotVMStructEntryFieldNameOffset", 8),
            ("gHotSpotVMStructEntryIsStaticOffset", 16),
            ("gHotSpotVMStructEntryOffsetOffset", 24),
            ("gHotSpotVMStructEntryAddressOffset", 32),
            ("gHotSpotVMStructEntryArrayStride", 40),
            ("gHotSpotVMTypes", types),
            ("gHotSpotVMTypeEntryTypeNameOffset", 0),
            ("gHotSpotVMTypeEntrySizeOffset", 8),
            ("gHotSpotVMTypeEntryArrayStride", 16),
        ]);
        library.end
    }

    /// Adds a loader with the class of method 0, which is also `java.lang.Object`, and a count of unloaded classes.
    pub fn classes(&self) {
        let class = METHOD + 0x400;
        for (place, value) in [(0, LOADER), (8, class), (16, PERF_DATA)] {
            self.word(LOADERS + place, BASE + value);
        }
        self.word(LOADER, BASE + class);
        self.word(class + 16, BASE + LOADER);
        // One entry, at 8: its length, its name at 16, its value at 48.
        for (place, value) in [(0, 8), (4, 1), (8, 56), (12, 16), (16, 48)] {
            self.half(PERF_DATA + place, value);
        }
        self.text(PERF_DATA + 8 + 16, "java.cls.unloadedClasses");
    }
}
