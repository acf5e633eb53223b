//! System calls without libc, which is not available to the agent.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ptr::NonNull;

/// What a system call returned: the negative errno, such as -2 for `ENOENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Numbers of system calls, from the kernel's `arch/x86/entry/syscalls/syscall_64.tbl`.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOSE: usize = 3;
    pub(super) const FSTAT: usize = 5;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const PREAD64: usize = 17;
    pub(super) const PWRITE64: usize = 18;
    pub(super) const MADVISE: usize = 28;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const GETTID: usize = 186;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const FALLOCATE: usize = 285;
    pub(super) const PWRITEV: usize = 296;
    pub(super) const PRLIMIT64: usize = 302;
    pub(super) const MEMFD_CREATE: usize = 319;
}

/// Numbers of system calls, from the kernel's `include/uapi/asm-generic/unistd.h`.
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const FCNTL: usize = 25;
    pub(super) const FALLOCATE: usize = 47;
    pub(super) const CLOSE: usize = 57;
    pub(super) const PREAD64: usize = 67;
    pub(super) const PWRITE64: usize = 68;
    pub(super) const PWRITEV: usize = 70;
    pub(super) const FSTAT: usize = 80;
    pub(super) const CLOCK_GETTIME: usize = 113;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    pub(super) const PRLIMIT64: usize = 261;
    pub(super) const MEMFD_CREATE: usize = 279;
}

/// Makes a system call with up to six arguments.
///
/// # Safety
/// The arguments satisfy the requirements of the call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let result;
    // SAFETY: the registers are those of the kernel's system call convention, which clobbers rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Makes a system call with up to six arguments.
///
/// # Safety
/// The arguments satisfy the requirements of the call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let result;
    // SAFETY: the registers are those of the kernel's system call convention, which keeps all others.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
             in("x5") f, options(nostack));
    }
    result
}

fn checked(result: isize) -> Result<usize, Errno> {
    if result < 0 { Err(Errno(result as i32)) } else { Ok(result as usize) }
}

const EINTR: Errno = Errno(-4);
/// The highest number of attempts of an interrupted call.
const TRIES: usize = 16;

/// A file descriptor, which drop does not close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(pub i32);

/// Creates a memfd that cannot shrink and takes no further seals.
pub fn sealed_memfd(name: &core::ffi::CStr) -> Result<Fd, Errno> {
    const MFD_CLOEXEC: usize = 1;
    const MFD_ALLOW_SEALING: usize = 2;
    const MFD_NOEXEC_SEAL: usize = 8; // Linux 6.3; older kernels refuse it
    const F_ADD_SEALS: usize = 1033;
    const F_SEAL_SEAL: usize = 1;
    const F_SEAL_SHRINK: usize = 2;
    let create = |flags| {
        // SAFETY: the name ends in NUL and lives through the call.
        checked(unsafe { call(number::MEMFD_CREATE, [name.as_ptr() as usize, flags, 0, 0, 0, 0]) })
    };
    let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    let fd = create(flags | MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
    let seals = F_SEAL_SHRINK | F_SEAL_SEAL;
    // SAFETY: takes no pointers.
    let sealed = checked(unsafe { call(number::FCNTL, [fd, F_ADD_SEALS, seals, 0, 0, 0]) });
    let fd = Fd(fd as i32);
    if let Err(error) = sealed {
        close(fd);
        return Err(error);
    }
    Ok(fd)
}

/// Closes a descriptor, and ignores the result.
pub fn close(fd: Fd) {
    // SAFETY: takes no pointers; the caller gives up the descriptor.
    let _ = unsafe { call(number::CLOSE, [fd.0 as usize, 0, 0, 0, 0, 0]) };
}

/// Device and inode of an open file.
pub fn identity(fd: Fd) -> Result<(u64, u64), Errno> {
    // `struct stat` is 144 bytes on x86_64 and 128 on aarch64; on both st_dev and st_ino come first, 8 bytes each.
    let mut stat = [0u64; 18];
    // SAFETY: the buffer is large enough for the kernel's `struct stat`.
    checked(unsafe { call(number::FSTAT, [fd.0 as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
    let [device, inode, ..] = stat;
    Ok((device, inode))
}

/// Reads up to `buffer.len()` bytes at `offset`.
pub fn pread(fd: Fd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    again(|| {
        // SAFETY: the buffer is writable for its length.
        unsafe {
            call(
                number::PREAD64,
                [fd.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0],
            )
        }
    })
}

/// Writes all `bytes` at `offset`, or fails.
pub fn pwrite_all(fd: Fd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let written = again(|| {
        // SAFETY: the bytes are readable for their length.
        unsafe {
            call(
                number::PWRITE64,
                [fd.0 as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0],
            )
        }
    })?;
    if written == bytes.len() { Ok(()) } else { Err(Errno(0)) }
}

/// Writes two pieces, one after the other, at `offset`, or fails.
pub fn pwrite_both(fd: Fd, first: &[u8], second: &[u8], offset: u64) -> Result<(), Errno> {
    let vectors = [[first.as_ptr() as usize, first.len()], [second.as_ptr() as usize, second.len()]];
    let written = again(|| {
        // SAFETY: both pieces are readable for their lengths; `struct iovec` is a pointer and a length. On 64 bits the
        // low half of the offset is the whole offset.
        unsafe {
            call(
                number::PWRITEV,
                [fd.0 as usize, vectors.as_ptr() as usize, vectors.len(), offset as usize, 0, 0],
            )
        }
    })?;
    if written == first.len().wrapping_add(second.len()) { Ok(()) } else { Err(Errno(0)) }
}

fn again(mut attempt: impl FnMut() -> isize) -> Result<usize, Errno> {
    for _ in 0..TRIES {
        match checked(attempt()) {
            Err(EINTR) => {}
            other => return other,
        }
    }
    Err(EINTR)
}

/// Returns the pages of `len` bytes from `offset` on to the system.
pub fn punch(fd: Fd, offset: u64, len: u64) {
    const KEEP_SIZE_PUNCH_HOLE: usize = 1 | 2;
    // SAFETY: takes no pointers.
    let _ = unsafe {
        call(number::FALLOCATE, [fd.0 as usize, KEEP_SIZE_PUNCH_HOLE, offset as usize, len as usize, 0, 0])
    };
}

/// `CLOCK_MONOTONIC` in ns; 0 if the call fails.
#[must_use]
pub fn monotonic() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    let mut time = [0u64; 2];
    // SAFETY: `struct timespec` is two 64-bit numbers.
    let _ = unsafe { call(number::CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [seconds, nanos] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

/// The pid of this process in its own pid namespace.
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(number::GETPID, [0; 6]) as u32 }
}

/// The id of this thread in its own pid namespace.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(number::GETTID, [0; 6]) as u32 }
}

/// The soft limit on the size of files, bytes: a write beyond it raises SIGXFSZ.
#[must_use]
pub fn file_size_limit() -> u64 {
    const RLIMIT_FSIZE: usize = 1;
    let mut limit = [0u64; 2];
    // SAFETY: `struct rlimit64` is two 64-bit numbers; no new limit is set.
    let got =
        checked(unsafe { call(number::PRLIMIT64, [0, RLIMIT_FSIZE, 0, limit.as_mut_ptr() as usize, 0, 0]) });
    let [soft, _] = limit;
    if got.is_ok() { soft } else { u64::MAX }
}

/// Maps anonymous memory, zeroed and not reserved.
pub fn map(len: usize) -> Option<NonNull<u8>> {
    const READ_WRITE: usize = 1 | 2;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    // SAFETY: asks for fresh memory at an address of the kernel's choice.
    let address = checked(unsafe {
        call(number::MMAP, [0, len, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0])
    });
    NonNull::new(address.ok()? as *mut u8)
}

/// Unmaps memory.
///
/// # Safety
/// `address` and `len` are those of one [`map`], and no reference to that memory remains.
pub unsafe fn unmap(address: NonNull<u8>, len: usize) {
    // SAFETY: the caller guarantees it.
    let _ = unsafe { call(number::MUNMAP, [address.as_ptr() as usize, len, 0, 0, 0, 0]) };
}

/// Returns the whole pages in `memory` to the kernel. Afterwards they read as zero or as before.
pub fn forget(memory: &mut [u8]) {
    const MADV_DONTNEED: usize = 4;
    const PAGE: usize = 64 << 10; // the largest page size, so that the range is right for all
    let from = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let to = (memory.as_ptr() as usize).wrapping_add(memory.len()) & !(PAGE.wrapping_sub(1));
    if from < to {
        // SAFETY: the pages lie within `memory`, plain bytes that are borrowed exclusively.
        let _ = unsafe { call(number::MADVISE, [from, to.wrapping_sub(from), MADV_DONTNEED, 0, 0, 0]) };
    }
}
