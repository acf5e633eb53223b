//! Facts about files that only `ioctl` gives.
#![allow(unsafe_code, reason = "requests of ioctl")]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::event::Inode;

/// `include/uapi/linux/fs.h`: declared as a long, written as an int by most file systems.
const FS_IOC_GETVERSION: Opcode = opcode::read::<std::ffi::c_long>(b'v', 1);

/// From `include/uapi/linux/fs.h`, since Linux 6.11.
const PROCMAP_QUERY: Opcode = opcode::read_write::<ProcmapQuery>(b'f', 17);
const QUERY_EXECUTABLE: u64 = 1 << 2;
const QUERY_COVERING_OR_NEXT: u64 = 1 << 4;

/// Longest path that the kernel writes, its final zero included: `PATH_MAX`.
const MAX_PATH: usize = 4096;

/// Generation of a file's inode, if the file system has generations.
pub(super) fn inode_generation(file: BorrowedFd<'_>) -> Option<u32> {
    let mut version = [0u8; size_of::<std::ffi::c_long>()];
    // SAFETY: the request writes at most a long, for which there is room, and any bytes are a valid array.
    unsafe { ioctl(file, Updater::<FS_IOC_GETVERSION, _>::new(&mut version)) }.ok()?;
    version.first_chunk().map(|int| u32::from_ne_bytes(*int))
}

/// `FS_IOC_FIEMAP` of `include/uapi/linux/fs.h`.
const FIEMAP: Opcode = opcode::read_write::<FiemapHead>(b'f', 11);

/// `struct fiemap` of `include/uapi/linux/fiemap.h`, without extents.
#[repr(C)]
#[derive(Debug, Default)]
struct FiemapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// Whether a file lies in extents of a block device. FUSE, network file systems and tmpfs do not say so.
pub(super) fn has_extents(file: BorrowedFd<'_>) -> bool {
    let mut head = FiemapHead { length: 1, ..FiemapHead::default() };
    // SAFETY: with room for no extents the request writes at most the struct, and any bytes are valid in it.
    unsafe { ioctl(file, Updater::<FIEMAP, _>::new(&mut head)) }.is_ok()
}

/// `struct procmap_query` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// A mapping, as [`PROCMAP_QUERY`] gives it.
#[derive(Debug)]
pub(super) struct Vma {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset of the first byte in the file, bytes.
    pub(super) offset: u64,
    pub(super) inode: Inode,
    /// Path or name; empty if the mapping has none, or one that is longer than the kernel writes.
    pub(super) name: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MappingQuery {
    /// The mapping that covers the address.
    Covering,
    /// The first executable mapping that covers the address or lies above it.
    ExecutableFrom,
}

/// A mapping of the process whose `/proc/PID/maps` is open as `maps`.
///
/// # Errors
/// `ENOENT`: no such mapping. `ESRCH`: the process has no memory any more. `ENOTTY`: Linux before 6.11.
pub(super) fn mapping(maps: BorrowedFd<'_>, address: u64, wanted: MappingQuery) -> Result<Vma, Errno> {
    let mut name = [0u8; MAX_PATH];
    match query(maps, address, wanted, &mut name) {
        Err(Errno::NAMETOOLONG) => query(maps, address, wanted, &mut []),
        other => other,
    }
}

fn query(maps: BorrowedFd<'_>, address: u64, wanted: MappingQuery, name: &mut [u8]) -> Result<Vma, Errno> {
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: match wanted {
            MappingQuery::Covering => 0,
            MappingQuery::ExecutableFrom => QUERY_EXECUTABLE | QUERY_COVERING_OR_NEXT,
        },
        query_addr: address,
        vma_name_size: name.len() as u32,
        vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
        ..ProcmapQuery::default()
    };
    // SAFETY: the request writes at most `size` bytes to the struct and `vma_name_size` bytes to `vma_name_addr`, for
    // which there is room; both outlive the call, and any bytes are valid in them.
    unsafe { ioctl(maps, Updater::<PROCMAP_QUERY, _>::new(&mut query)) }?;
    let ProcmapQuery { vma_start, vma_end, vma_offset, inode, dev_major, dev_minor, vma_name_size, .. } =
        query;
    let name = name.get(..vma_name_size as usize).unwrap_or_default();
    Ok(Vma {
        start: vma_start,
        end: vma_end,
        offset: vma_offset,
        inode: Inode { major: dev_major, minor: dev_minor, ino: inode, generation: 0 },
        name: name.split(|&b| b == 0).next().unwrap_or_default().to_vec(),
    })
}
