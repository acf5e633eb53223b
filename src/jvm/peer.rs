//! The process at the other end of a socket.
#![allow(unsafe_code)] // rustix's SO_PEERCRED holds that a pid is never 0, which it is for a peer outside our namespace

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The process that listens at the other end of a connected unix socket, as the profiler's pid namespace numbers it; 0
/// if the process is outside. `None` if the kernel does not say.
pub(super) fn listener_of(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `credentials`, which is that long and holds plain integers;
    // both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut credentials).cast(),
            &raw mut length,
        )
    };
    if result == 0 { u32::try_from(credentials.pid).ok() } else { None }
}
