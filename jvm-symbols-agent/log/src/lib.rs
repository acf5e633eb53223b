//! The log of `jvm-symbols-agent`: which code HotSpot compiled, its addresses and its names.
//!
//! A log is a sealed memfd of the JVM. The log begins with a [`header`] of one page; [`record`]s follow. In front of
//! each record is a [`RecordHeader`], which is written last: while the word is zero, there is no
//! record. Numbers are little endian, either fixed or LEB128 varints. The debug records of compiled code are strings of
//! bits, with exponential Golomb codes: see [`pc_encoder`]. The writer needs neither `std` nor an allocator; the reader
//! (feature `reader`) trusts no number in a log.
//!
//! ```text
//! | header, 4096 bytes | word | body, padded to 8 | word | body | 0 …
//! ```
#![cfg_attr(not(any(feature = "reader", test)), no_std)]

mod bits;
pub mod encode;
pub mod header;
pub mod out;
pub mod pc_encoder;
pub mod record;

#[cfg(feature = "reader")]
pub mod decode;
#[cfg(feature = "reader")]
pub mod log_file;
#[cfg(feature = "reader")]
pub mod pc_decoder;
#[cfg(feature = "reader")]
pub mod reader;

pub use encode::{ClassName, LoadHead};
pub use header::{HeaderFields, LogKind, Replay};
pub use out::Out;
pub use pc_encoder::{Nodes, PcEncoder};
pub use record::{RecordHeader, RecordType};

#[cfg(feature = "reader")]
pub use decode::{Code, Decoded, LineEntry, Load, Malformed, Method, Stub, Unload};
#[cfg(feature = "reader")]
pub use log_file::{BadHeader, Header, ReadAt};
#[cfg(feature = "reader")]
pub use pc_decoder::{DebugPc, PcDecoder, PcFrame};
#[cfg(feature = "reader")]
pub use reader::{Counts, End, Quotas, Reader, RecordVisitor};

/// The path of this file. The build script of the profiler compiles it for the agent, also from a registry.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");
