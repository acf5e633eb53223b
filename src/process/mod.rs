//! Processes: who they are, what they have mapped, and how to open what they name without being tricked.
//!
//! Knows nothing of stacks, symbols or formats.

pub mod ancestry;
pub mod cgroup;
pub mod code;
pub mod container;
mod copied;
pub mod event;
pub mod file;
mod files;
pub mod group;
pub mod hierarchies;
pub mod hierarchy;
pub mod identity;
mod ioctl;
mod locate;
mod mappings;
pub mod maps;
pub mod memory_room;
mod moved;
mod namespace;
pub mod opener;
mod opening;
pub mod packet;
pub mod path;
pub mod patience;
pub mod process_dir;
pub mod procfs;
mod program;
mod reading;
pub mod root;
pub mod segments;
pub mod selection;
mod served;
pub mod table;
#[cfg(test)]
mod table_tests;
pub mod throttling;

pub use ancestry::Ancestor;
pub use code::{Code, CodeRange, CoveredCode, ProcessCode};
pub use event::{EventKind, ProcessEvent};
pub use file::{FileId, FileUse, MappedFile, Unopened};
pub use identity::{MonoNs, ProcessId};
pub use locate::{Location, Unlocated};
pub use mappings::Vdso;
pub use patience::{OutOfPatience, Patience};
pub use root::{OpenRefusal, Owner, TargetRoot};
pub use table::{Counts, Options, ProcessInfo, Processes, Which};

/// What the kernel said; `EIO` if it was not the kernel who said it.
pub(crate) fn errno_of(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
}
