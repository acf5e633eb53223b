//! The generation of an inode. A room where `unsafe` is allowed.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `include/uapi/linux/fs.h`: declared as a long, written as an int by most file systems.
const FS_IOC_GETVERSION: Opcode = opcode::read::<std::ffi::c_long>(b'v', 1);

/// The generation of a file's inode, where the file system has one.
pub(super) fn of(file: BorrowedFd<'_>) -> Option<u32> {
    let mut version = [0u8; size_of::<std::ffi::c_long>()];
    // SAFETY: the request writes at most a long, for which there is room, and any bytes are a valid array.
    unsafe { ioctl(file, Updater::<FS_IOC_GETVERSION, _>::new(&mut version)) }.ok()?;
    version.first_chunk().map(|int| u32::from_ne_bytes(*int))
}
