//! Unwind tables, which lead from each instruction of a file to the function's caller, and descriptions of JVMs'
//! generated code. Both have the form that the BPF program reads (`bpf/abi.h`, `bpf/step_table.h`). Also the pages that
//! hold them.
//!
//! Knows neither ELF nor BPF maps.

pub mod hotspot;
mod pages;
pub mod rule;
pub mod space;
pub mod store;
pub mod table;

pub use hotspot::{
    BlockFields, CodeHeap, CodeSpan, HotSpotUnwindInfo, LockFields, LockTraits, PointerCompression, StubRule,
};
pub use rule::{Cfa, Fp, Rule};
pub use space::{ProgramLayout, RangeCode, Space, UnwindRange};
pub use store::{SpaceImage, TableBudget, TableKey, TableMemory, TableStore, Usage};
pub use table::{MAX_BYTES, MAX_PART_BYTES, Table, TableBuilder, TablePart, TableRange};

/// Bytes of a page: `JP_PAGE_SIZE`.
pub const PAGE: usize = 4096;
/// Pages of a chunk: `JP_CHUNK_PAGES`.
pub const CHUNK_PAGES: u32 = 256;
/// Maximum number of chunks: `JP_CHUNKS`.
pub const CHUNKS: u32 = 60;
