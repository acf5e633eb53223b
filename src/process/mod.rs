//! Processes: who they are, what they have mapped, and how to open what they name without being tricked.
//!
//! Knows nothing of stacks, symbols or formats.

pub mod event;
pub mod file;
pub mod identity;
pub mod path;
pub mod patience;
pub mod procfs;
pub mod root;
pub mod table;

pub use event::{EventKind, ProcessEvent};
pub use file::{FileId, MappedFile, Unopened};
pub use identity::{MonoNs, ProcessId};
pub use patience::{OutOfPatience, Patience};
pub use root::{OpenRefusal, Owner, TargetRoot};
pub use table::{Location, Options, ProcessInfo, Processes, Unlocated, Which};
