//! The symbolizer's view of processes: where an address leads, and where the perf map is.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::process::{Ancestor, FileId, MappedFile, MappedLocation, Processes, Unlocated, Unopened, Vdso};
use crate::profile::UnknownReason;
use crate::profile::frame::Module;
use crate::profile::frame::clean;
use crate::sample::{MonoNs, ProcessId};

const MAX_PATH: usize = 4096;

/// A file to read names from.
#[derive(Clone, Debug)]
pub enum FileHandle {
    /// A file that a process mapped.
    Mapped(Arc<MappedFile>),
    /// An image that this program itself holds.
    Image {
        /// Name of the image in profiles.
        name: Arc<str>,
        /// Content of the image.
        fd: Arc<OwnedFd>,
    },
}

impl FileHandle {
    /// The file's module in profiles.
    #[must_use]
    pub fn module(&self) -> Module {
        match self {
            // The worker reads the other facts of the file.
            FileHandle::Mapped(file) => Module::at(clean(file.path.as_os_str().as_encoded_bytes(), MAX_PATH)),
            FileHandle::Image { name, fd: _ } => Module::at(Arc::clone(name)),
        }
    }

    /// The file's path as the process names it; empty for an image.
    pub(super) fn path(&self) -> &Path {
        match self {
            FileHandle::Mapped(file) => &file.path,
            FileHandle::Image { .. } => Path::new(""),
        }
    }

    /// A descriptor to read the file from.
    ///
    /// # Errors
    /// [`UnknownReason::ProcessGone`] if the process ended before the file was opened, else
    /// [`UnknownReason::FileUnavailable`].
    pub fn fd(&self) -> Result<Arc<OwnedFd>, UnknownReason> {
        match self {
            FileHandle::Mapped(file) => file.fd().map_err(|why| match why {
                Unopened::ProcessGone => UnknownReason::ProcessGone,
                _ => UnknownReason::FileUnavailable,
            }),
            FileHandle::Image { name: _, fd } => Ok(Arc::clone(fd)),
        }
    }
}

/// A file with its number.
#[derive(Clone, Debug)]
pub struct IdentifiedFile {
    /// Identifies the file for good.
    pub id: FileId,
    /// Handle to read the file by.
    pub handle: FileHandle,
}

/// Where an address leads.
#[derive(Clone, Debug)]
pub enum CodePlace {
    /// Into a mapped file, whose symbols name the code.
    File {
        /// Identifies the file for good.
        id: FileId,
        /// Handle to read the file by.
        file: FileHandle,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// Into memory that a program itself filled with code.
    Generated,
    /// Into the kernel's vdso, an ELF image.
    Vdso {
        /// Which of the kernel's images: for 64-bit or for 32-bit programs.
        vdso: Vdso,
        /// Offset in its image, bytes.
        offset: u64,
    },
    /// Into the vsyscall page of x86-64.
    Vsyscall,
    /// Nowhere, with the reason.
    Unknown(UnknownReason),
}

/// The address spaces of processes, now and in the past.
pub trait AddressSpaces {
    /// Where `pc` led in program `id` at the time `at`.
    fn place(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> CodePlace;

    /// Since when the mappings of program `id`, which ran at `at`, are what they are now; `None` if that is not known.
    fn mapped_since(&mut self, id: ProcessId, at: MonoNs) -> Option<MonoNs>;

    /// Whether program `id` is still known. After its end, it is known until all its stacks are symbolized.
    fn is_known(&self, id: ProcessId) -> bool;

    /// Opens the perf map that the runtime of `id` writes: a regular file of the process's own user or root, found
    /// inside its own root. The call does not hang, even if the file system does.
    ///
    /// # Errors
    /// Why there is no such map.
    fn perf_map(&mut self, id: ProcessId, at: MonoNs) -> Result<OwnedFd, Unopened>;

    /// Opens a regular file in the root of a process that the process's user or root owns.
    ///
    /// # Errors
    /// Why the file cannot be opened.
    fn own_file(&mut self, _id: ProcessId, _at: MonoNs, _path: &Path) -> Result<OwnedFd, Unopened> {
        Err(Unopened::ProcessGone)
    }

    /// The processes from which `id` descends by forks alone, the nearest first.
    fn ancestors(&mut self, _id: ProcessId, _at: MonoNs) -> Vec<Ancestor> {
        Vec::new()
    }

    /// Opens the perf map of an ancestor of `id`, like that of `id` itself.
    ///
    /// # Errors
    /// Why there is no such map.
    fn ancestors_perf_map(
        &mut self,
        _id: ProcessId,
        _at: MonoNs,
        _ancestor: Ancestor,
    ) -> Result<OwnedFd, Unopened> {
        Err(Unopened::ProcessGone)
    }

    /// For each address, whether `id` still has there the code that the ancestor's map describes.
    fn inherited(
        &mut self,
        _id: ProcessId,
        _at: MonoNs,
        _ancestor: Ancestor,
        _map: BorrowedFd<'_>,
        addresses: &[u64],
    ) -> Vec<bool> {
        vec![false; addresses.len()]
    }
}

impl AddressSpaces for Processes {
    fn place(&mut self, id: ProcessId, at: MonoNs, pc: u64) -> CodePlace {
        match self.locate(id, at, pc) {
            MappedLocation::File { file, .. } if is_generated(&file) => CodePlace::Generated,
            MappedLocation::File { file, offset } => {
                CodePlace::File { id: file.id, file: FileHandle::Mapped(file), offset }
            }
            MappedLocation::Anonymous { start: _, end: _ } => CodePlace::Generated,
            MappedLocation::Vdso { vdso, offset } => CodePlace::Vdso { vdso, offset },
            MappedLocation::Vsyscall => CodePlace::Vsyscall,
            MappedLocation::Unknown(Unlocated::ProcessGone) => CodePlace::Unknown(UnknownReason::ProcessGone),
            MappedLocation::Unknown(Unlocated::NotMapped) => CodePlace::Unknown(UnknownReason::NotMapped),
            MappedLocation::Unknown(
                Unlocated::TooSlow | Unlocated::NoDescriptor | Unlocated::TooManyMappings,
            ) => CodePlace::Unknown(UnknownReason::MappingsUnread),
        }
    }

    fn mapped_since(&mut self, id: ProcessId, at: MonoNs) -> Option<MonoNs> {
        Processes::mapped_since(self, id, at)
    }

    fn is_known(&self, id: ProcessId) -> bool {
        Processes::is_known(self, id)
    }

    fn perf_map(&mut self, id: ProcessId, at: MonoNs) -> Result<OwnedFd, Unopened> {
        let root = self.root(id, at).ok_or(Unopened::ProcessGone)?;
        self.open_own_file(id, at, perf_map_path(root.ns_pid).as_ref())
    }

    fn own_file(&mut self, id: ProcessId, at: MonoNs, path: &Path) -> Result<OwnedFd, Unopened> {
        self.open_own_file(id, at, path)
    }

    fn ancestors(&mut self, id: ProcessId, at: MonoNs) -> Vec<Ancestor> {
        Processes::ancestors(self, id, at)
    }

    fn ancestors_perf_map(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        ancestor: Ancestor,
    ) -> Result<OwnedFd, Unopened> {
        self.open_ancestors_file(id, at, ancestor, perf_map_path)
    }

    fn inherited(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        ancestor: Ancestor,
        map: BorrowedFd<'_>,
        addresses: &[u64],
    ) -> Vec<bool> {
        Processes::inherited(self, id, at, ancestor, map, addresses)
    }
}

fn perf_map_path(ns_pid: u32) -> String {
    format!("/tmp/perf-{ns_pid}.map")
}

/// Memory with a name and no file: .NET maps its code twice through a memfd, others use shared memory. A program
/// executed from a memfd is a file like any other.
fn is_generated(file: &MappedFile) -> bool {
    if file.is_program_in_memory() {
        return false;
    }
    let path = file.path.as_os_str().as_encoded_bytes();
    [&b"/memfd:"[..], b"/SYSV", b"/dev/zero", b"/anon_hugepage", b"//anon"]
        .iter()
        .any(|p| path.starts_with(p))
}
