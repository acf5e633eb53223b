//! System calls that the host denies to this process, with any arguments.

use std::io;

/// A system call that is denied although this process has the capabilities for it. The reason is a seccomp filter
/// (container runtimes have one by default) or a security module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {}", if *.absent { "function not implemented" } else { "permission denied" })]
pub struct DeniedSyscall {
    /// The name of the system call.
    pub call: &'static str,
    /// The error was `ENOSYS`, as if the kernel lacked the call. Old filters return it for calls that they do not know.
    pub absent: bool,
}

impl DeniedSyscall {
    /// Wraps the error of a system call, if the error means that the call is denied.
    pub(super) fn of(call: &'static str, error: io::Error) -> io::Error {
        let absent = match error.kind() {
            io::ErrorKind::PermissionDenied => false,
            io::ErrorKind::Unsupported => true,
            _ => return error,
        };
        io::Error::new(error.kind(), DeniedSyscall { call, absent })
    }

    /// The `DeniedSyscall` among the causes of an error.
    #[must_use]
    pub fn find_in(error: &anyhow::Error) -> Option<DeniedSyscall> {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.find_map(|cause| cause.get_ref()?.downcast_ref().copied())
    }
}
