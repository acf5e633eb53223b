//! The fuzz targets. `fuzz/main.rs` runs one of them in libFuzzer. `src/fuzz_seeds.rs` runs the seeds of all of them as
//! unit tests, so the lints of the profiler hold here too.

mod cgroup;
mod elf;
mod folded;
mod frame_rules;
mod go_table;
mod jvm_memory;
mod page;
mod perf_map;
mod perf_record;
mod proc_maps;
mod process_context;
mod symbol_log;

/// Runs an input through a parser of foreign bytes, and checks the result.
pub(crate) type FuzzTarget = fn(&[u8]);

/// Name and function of each target. The name is that of the file here, and of the directory in `fuzz/seeds`.
pub(crate) const TARGETS: &[(&str, FuzzTarget)] = &[
    ("cgroup", cgroup::run),
    ("elf", elf::run),
    ("folded", folded::run),
    ("frame_rules", frame_rules::run),
    ("go_table", go_table::run),
    ("jvm_memory", jvm_memory::run),
    ("page", page::run),
    ("perf_map", perf_map::run),
    ("perf_record", perf_record::run),
    ("proc_maps", proc_maps::run),
    ("process_context", process_context::run),
    ("symbol_log", symbol_log::run),
];
