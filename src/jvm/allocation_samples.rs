//! Samples of allocations that a JVM chooses itself (`SampledObjectAlloc`, JEP 331, JDK 11 and later), for JVMs whose
//! `libjvm.so` has no symbols, or if the user wants so. The agent gets them and calls a function of its own, where the profiler has a probe.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use serde::{Deserialize, Serialize};

use super::agent_file::AGENT;
use super::memory::Memory;
use super::target::AttachTarget;
use super::version::JavaVersion;
use super::vm_structs::{Field, VmStructs};
use crate::process::{is_served, procfs};

/// The agent's function that is called for each sampled object.
pub const ALLOCATED: &str = "jvm_symbols_agent_allocated";

/// The first release with such samples.
const SINCE: u32 = 11;
/// Where a `java.lang.Class` object, the mirror of a class, has the address of the class.
const CLASS_IN_MIRROR: Field = ("java_lang_Class", "_klass_offset");
/// Most bytes of a mirror before that address: a larger number is forged.
const MAX_OFFSET: u32 = 4096;

/// Why the agent does not sample the allocations of a JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoAllocationSamples {
    /// The JVM is older than its samples.
    #[error("only JDK 11 and later can choose samples")]
    TooOld,
    /// Only one agent at a time can have the event; or the JVM's tables do not say where classes are.
    #[error("the JVM refused; another agent may have the samples")]
    Refused,
    /// The agent of `-agentpath` takes no requests.
    #[error("a JVM that was started with -agentpath takes no request for samples")]
    AtStart,
    /// The agent's file cannot be opened through the mappings of the JVM, or is another file.
    #[error("the agent's file cannot be opened")]
    Unopened,
}

impl NoAllocationSamples {
    /// Why an agent that was asked does not sample.
    pub(super) fn of_version(version: Option<JavaVersion>) -> NoAllocationSamples {
        match version {
            Some(version) if version.feature < SINCE => NoAllocationSamples::TooOld,
            _ => NoAllocationSamples::Refused,
        }
    }
}

/// Samples of allocations that the agent in a JVM passes on as long as the log has a lease.
#[derive(Debug)]
pub struct AllocationSamples {
    /// The agent's file, as the JVM has mapped it. The file has no name any more.
    pub agent: OwnedFd,
}

impl AllocationSamples {
    pub(super) fn of(agent: OwnedFd) -> AllocationSamples {
        AllocationSamples { agent }
    }
}

/// Where the mirrors of a JVM have the address of their class, bytes; `None` if its tables do not say that.
pub(super) fn class_in_mirror<M: Memory>(memory: &M, base: u64) -> Option<u32> {
    const FIELDS: &[Field] = &[CLASS_IN_MIRROR];
    let tables = VmStructs::read(memory, base, &[FIELDS], &[]).ok()?;
    let mut offset = [0; 4];
    memory.read_all(tables.field(CLASS_IN_MIRROR.0, CLASS_IN_MIRROR.1)?, &mut offset).ok()?;
    Some(u32::from_ne_bytes(offset)).filter(|offset| (1..MAX_OFFSET).contains(offset))
}

/// The file that the JVM has mapped for the agent, which was loaded from `path`, a path in the JVM's own root. The kernel
/// writes a breakpoint into all processes that map the file. So the file must be a copy of the agent: a JVM can map any
/// other file, such as a library that all processes use, under this name. The kernel reads the file while no process of the
/// host can fork, so no program may serve the file.
pub(super) fn agent_of(target: &AttachTarget, path: &[u8]) -> Option<File> {
    let name = Path::new(OsStr::from_bytes(path)).file_name()?;
    let is_named = |of: &Path| {
        let of = of.as_os_str().as_bytes();
        let of = of.strip_suffix(b" (deleted)").unwrap_or(of);
        Path::new(OsStr::from_bytes(of)).file_name() == Some(name)
    };
    let mapping = target.maps().ok()?.find(|entry| is_named(&entry.path))?;
    let place = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat(target.task().ok()?, place, flags, Mode::empty()).ok()?;
    let is_regular = FileType::from_raw_mode(fstat(&found).ok()?.st_mode) == FileType::RegularFile;
    if !is_regular || is_served(found.as_fd()) {
        return None;
    }
    let file = File::from(procfs::reopen(found.as_fd(), OFlags::RDONLY).ok()?);
    is_agent(&file).then_some(file)
}

/// Whether a file has the bytes of this profiler's agent and no others.
fn is_agent(mut file: impl Read) -> bool {
    let mut bytes = Vec::new();
    let read = file.by_ref().take(AGENT.len() as u64 + 1).read_to_end(&mut bytes);
    read.is_ok() && bytes == AGENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_copy_of_the_agent_gets_a_breakpoint() {
        assert!(is_agent(AGENT));
        let longer = [AGENT, b"x"].concat();
        let (mut other, shorter) = (AGENT.to_vec(), &AGENT[1..]);
        other[AGENT.len() / 2] ^= 1;
        for bytes in [&longer[..], &other, shorter, b""] {
            assert!(!is_agent(bytes));
        }
        assert!(!is_agent(File::open("/proc/self/exe").unwrap()));
    }

    #[test]
    fn a_jvm_that_is_too_old_is_not_blamed_on_another_agent() {
        let of = |feature| NoAllocationSamples::of_version(Some(JavaVersion::new(feature, 0, 1)));
        assert_eq!((of(8), of(11)), (NoAllocationSamples::TooOld, NoAllocationSamples::Refused));
    }
}
