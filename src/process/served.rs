//! Copies of files on file systems that a program serves (FUSE). The program may be any user's, and may never answer,
//! not even to a close. A process that closes such a file, or ends with it open, waits for the program, and no signal
//! ends the wait (`fuse_flush` in `fs/fuse/file.c`). So such files are opened only in the [opener](super::opener), and
//! read from a copy.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::procfs;
use super::root::OpenRefusal;
use super::timed_calls::Tenant;

/// Memory for copies, bytes: of all mapped files, and of those of one tenant.
const COPIES: u64 = 64 << 20;
const COPIES_OF_ONE: u64 = 32 << 20;

/// Memory that copies take, by tenant: of all mapped files, and of all that were copied since they were counted.
#[derive(Debug, Default)]
pub(super) struct CopyQuota(HashMap<Tenant, u64>);

impl CopyQuota {
    pub(super) fn have_room(&self, tenant: &Tenant, size: u64) -> bool {
        let all: u64 = self.0.values().sum();
        let of_one = self.0.get(tenant).copied().unwrap_or_default();
        all.saturating_add(size) <= COPIES && of_one.saturating_add(size) <= COPIES_OF_ONE
    }

    pub(super) fn add(&mut self, tenant: &Tenant, size: u64) {
        *self.0.entry(tenant.clone()).or_default() += size;
    }
}

/// Memory for a copy. The memory is the broker's, which can free it even while the process that fills it hangs.
#[derive(Debug)]
pub(super) struct ServedFileCopy(OwnedFd);

impl ServedFileCopy {
    pub(super) fn new() -> Result<ServedFileCopy, Errno> {
        memfd_create("jbpf-prof copy", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map(ServedFileCopy)
    }

    /// Seals the filled copy, so that no process can change it any more.
    pub(super) fn seal(self) -> Result<OwnedFd, Errno> {
        fcntl_add_seals(&self.0, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(self.0)
    }

    /// Gives up a copy that was not filled in time, and never will be.
    pub(super) fn give_up(self) {
        // If one of these calls failed, the memory would last as long as the process that hangs.
        let _ = ftruncate(&self.0, 0);
        let _ = fcntl_add_seals(&self.0, SealFlags::GROW);
    }
}

impl AsFd for ServedFileCopy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Fills a copy with the first `size` bytes of the file of an `O_PATH` descriptor. When this returns, the file is
/// closed.
pub(super) fn fill(copy: OwnedFd, found: BorrowedFd<'_>, size: u64) -> Result<(), OpenRefusal> {
    let file = File::from(procfs::reopen(found, OFlags::RDONLY)?);
    let failed = |e: io::Error| OpenRefusal::Errno(e.raw_os_error().unwrap_or(libc::EIO));
    io::copy(&mut file.take(size), &mut File::from(copy)).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn one_tenant_does_not_take_the_memory_of_all() {
        let (one, other, third) = (Tenant::named("one"), Tenant::named("other"), Tenant::named("third"));
        let mut copies = CopyQuota::default();
        assert!(!copies.have_room(&one, COPIES_OF_ONE + 1) && !copies.have_room(&one, u64::MAX));
        copies.add(&one, COPIES_OF_ONE);
        assert!(!copies.have_room(&one, 1) && copies.have_room(&other, COPIES_OF_ONE));
        copies.add(&other, COPIES - COPIES_OF_ONE);
        assert!(!copies.have_room(&third, 1));
    }

    #[test]
    fn a_copy_is_what_was_copied_for_ever_or_nothing() {
        let program = std::env::current_exe().unwrap();
        let found = rustix::fs::open(&program, OFlags::PATH, Mode::empty()).unwrap();
        let of = |copy: &ServedFileCopy| File::from(copy.0.try_clone().unwrap());
        let copy = ServedFileCopy::new().unwrap();
        fill(of(&copy).into(), found.as_fd(), 10_000).unwrap();
        let sealed = File::from(copy.seal().unwrap());
        let mut bytes = [0; 20_000];
        assert_eq!(sealed.read_at(&mut bytes, 0).unwrap(), 10_000);
        assert_eq!(bytes[..10_000], std::fs::read(program).unwrap()[..10_000]);
        assert!(sealed.write_at(b"x", 0).is_err() && sealed.set_len(0).is_err());
        let copy = ServedFileCopy::new().unwrap();
        let other = of(&copy);
        other.write_at(b"much", 0).unwrap();
        copy.give_up();
        assert!(other.write_at(b"more", 0).is_err() && other.metadata().unwrap().len() == 0);
    }
}
