//! Symbolization: names for the addresses of kernel, native, Java and other generated code.
//!
//! The broker asks `process` where an address leads and reads the kernel's symbols itself. The *worker*, a child
//! process without privileges that may die, reads the files that tenants control ([`worker`]). The two exchange
//! messages: files and offsets in, functions out. Native code is looked up by file offset, never by pid, so lookups
//! work after the process has ended.

mod address_cache;
mod aliases;
mod blaze;
mod branch_mark;
mod cache;
mod call_frames;
mod changes;
mod child;
mod compat_vdso;
mod config;
mod constrained;
mod coroutine;
mod debug_files;
mod debug_link;
mod demangle;
mod doors;
pub mod elf;
mod entry;
mod eviction;
mod extents;
mod fields;
mod file_traits;
mod files;
mod followed;
pub mod frame_rules;
mod frames;
pub mod function;
mod go;
mod go_table;
mod htlhash;
mod image;
mod java_log;
mod java_memory;
mod jit;
mod jvm_threads;
mod jvms;
pub mod kernel;
mod live_kernel;
mod lookup;
mod machine;
mod memory;
mod message;
mod method_cache;
mod name_answers;
pub mod native;
mod outside;
mod outside_memory;
pub mod perfmap;
pub mod place;
mod plt;
pub mod probed_file;
pub mod process_context;
mod program_headers;
mod resources;
mod sandbox;
mod shared;
mod signal_return;
mod stack_lookup;
mod stats;
mod symbol_file;
mod symbolizer;
mod symbolizer_eviction;
mod tables;
mod thread_local;
mod variables;
mod vdso;
mod vthread;
pub mod worker;

pub use child::WorkerCost;
pub use config::SymbolConfig;
pub use demangle::demangle;
pub use followed::{JvmLog, JvmMemory};
pub use frame_rules::NoTable;
#[cfg(any(test, fuzzing))]
pub use go_table::fixture as go_fixture;
pub use jit::PerfMapStats;
pub use jvms::JavaLeafCounts;
pub(crate) use message::JavaClassAt;
pub use message::{LogStats, PerfMapFacts, ProcessLogStats, ThreadToUnwind};
pub use outside::OutsideProcess;
pub use place::{AddressSpaces, CodePlace, FileHandle, IdentifiedFile};
pub use probed_file::{NoProbeSite, ProbeSite, ProbedFile};
pub use stack_lookup::NamedStack;
pub use stats::Stats;
pub use symbolizer::{CHUNK, Symbolizer};
pub use thread_local::{CodeAddress, LinkerSlot, SlotContent, ThreadLocal};
pub use variables::NoVariableYet;
