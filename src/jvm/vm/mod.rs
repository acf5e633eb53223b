//! Reads a JVM's memory: names of compiled methods, of interpreted methods, of stubs, of threads and of the
//! classes of locks, and the description of the JVM's code for the unwinder. The JVM loads no agent and gets no request.
//!
//! HotSpot describes itself to debuggers (`gHotSpotVMStructs`). [`VmLayout`] is the part that the profiler needs.
//! [`VmCode`] gives names. For compiled code it finds the code blob around an address, the blob's debug records, and
//! the methods that the records name.
//!
//! The memory may be forged, or may change during a read. A JVM that forges its memory falsifies its own frames only.
//! Values that differ before and after a read are not believed.

mod blob;
mod bounded_memory;
mod class_fields;
mod code;
mod collections;
mod debug_info;
mod described;
mod frames;
mod heaps;
mod interpreted;
mod layout;
mod loaders;
mod lock_classes;
mod lock_owners;
mod locks;
#[cfg(any(test, fuzzing))]
pub mod made;
mod method_looks;
mod methods;
mod miss;
mod permanent;
mod stub_frames;
mod stubs;
mod tables;
#[cfg(test)]
mod tests;
mod thread_names;
mod unloads;
mod unsigned5;

pub use code::{AddressQuery, VmAnswer, VmCode, VmStats};
pub(super) use frames::read_unwind_info;
pub use interpreted::{ClassQuery, MethodQuery};
pub use layout::VmLayout;
pub(super) use locks::lock_fields;
pub use miss::VmMiss;
pub(super) use stubs::blobs;
pub use stubs::{StubBlob, StubBlobs};

pub use super::memory::{InvalidMemory, Memory, ProcessMemory};
