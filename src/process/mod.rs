//! Processes: who they are, what they have mapped, and how to open files that they name without being tricked.
//!
//! This room knows nothing of stacks, symbols or formats.

pub mod ancestry;
pub mod cgroup;
mod cgroup_dir;
pub mod channel;
pub mod child;
pub mod code;
pub mod comm;
pub mod container;
mod covered_code;
pub mod event;
pub mod file;
mod files;
pub mod group;
pub mod hierarchies;
pub mod hierarchy;
pub mod inode_traits;
mod ioctl;
mod liveness;
mod locate;
mod mappings;
pub mod maps;
pub mod memory;
pub mod memory_room;
mod moved;
mod moved_search;
mod namespace;
pub mod opener;
mod opening;
mod options;
pub mod path;
pub mod process_dir;
pub mod procfs;
mod program;
mod reading;
pub mod root;
mod search_time;
pub mod segments;
pub mod selection;
mod served;
mod served_file;
pub mod table;
#[cfg(test)]
mod table_tests;
pub mod throttling;
pub mod timed_calls;
mod unlocated;

pub use ancestry::{Ancestor, AncestorProgram};
pub use code::{CodeRange, CodeSource, ProcessCode};
pub use covered_code::CoveredCode;
pub use event::{EventKind, ProcessEvent};
pub use file::{FileId, FileUse, MappedFile, Unopened};
pub use locate::MappedLocation;
pub use mappings::Vdso;
pub use options::ProcessOptions;
pub use reading::running_thread;
pub use root::{FileOwner, OpenRefusal, ProcessRoot};
pub use served_file::is_served;
pub use table::{ProcessInfo, ProcessTableCounts, Processes, ScanScope};
pub use timed_calls::{CallTimedOut, TimedCalls};
pub use unlocated::Unlocated;

/// The number of an I/O error; `EIO` if the error is not the kernel's.
pub(crate) fn errno_of(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
}
