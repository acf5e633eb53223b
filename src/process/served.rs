//! Files of file systems that a program serves (FUSE). It may be anybody's program, and never answer, not even to a
//! close: whoever closes such a file, or ends with it open, waits for that, and no signal ends the wait (`fuse_flush` in
//! `fs/fuse/file.c`). So they are opened in the [opener](super::opener) only; whoever reads one reads a copy.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstatfs, memfd_create};

use super::root::{self, OpenRefusal};

/// `FUSE_SUPER_MAGIC` of `include/uapi/linux/magic.h`; virtiofs has the same.
const FUSE: u64 = 0x6573_5546;

/// Whether a program serves the file system of a file, open or `O_PATH`. It is asked by this, and may deny an answer: no
/// file system of the kernel's does.
pub(super) fn is_served(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).map_or(true, |fs| u64::try_from(fs.f_type) == Ok(FUSE))
}

/// The first `size` bytes of what an `O_PATH` descriptor stands for, in memory that nobody can change. When this
/// returns, the file is closed.
pub(super) fn copy(found: BorrowedFd<'_>, size: u64) -> Result<OwnedFd, OpenRefusal> {
    let file = File::from(root::reopen(found)?);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("jbpf-prof copy", flags)?);
    let failed = |e: io::Error| OpenRefusal::Errno(e.raw_os_error().unwrap_or(libc::EIO));
    io::copy(&mut file.take(size), &mut copy).map_err(failed)?;
    fcntl_add_seals(copy.as_fd(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(copy.into())
}
