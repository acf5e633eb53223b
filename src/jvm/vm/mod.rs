//! Names of compiled code out of a JVM's own memory: nothing is loaded into it, nothing asked of it.
//!
//! HotSpot describes itself to debuggers (`gHotSpotVMStructs`). [`VmLayout`] is what we need of that; [`VmCode`] goes from
//! an address to the code blob around it, its debug records, and the methods they name. What it reads may be a lie or be
//! changing under its hands: the liar loses frames, and what is not the same before and after is not believed.

mod allowance;
mod blob;
mod class_fields;
mod code;
mod debug_info;
mod described;
mod frames;
mod heaps;
mod interpreted;
mod layout;
mod loaders;
mod looks;
#[cfg(any(test, fuzzing))]
pub mod made;
mod methods;
mod miss;
mod permanent;
mod stubs;
mod tables;
#[cfg(test)]
mod tests;
mod thread_names;
mod unloads;
mod unsigned5;

pub use code::{AddressQuery, VmAnswer, VmCode, VmStats};
pub(super) use frames::hotspot;
pub use interpreted::MethodQuery;
pub use layout::VmLayout;
pub use miss::VmMiss;
pub(super) use stubs::blobs;
pub use stubs::{StubBlob, StubBlobs};

pub use super::memory::{Memory, Nonsense, ProcessMemory};
