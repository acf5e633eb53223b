//! System calls that are refused whole, whatever is asked of them.

use std::io;

/// A system call that is refused although this process has the capabilities for it: a seccomp filter (container
/// runtimes have one by default) or a security module stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {}", if *.absent { "function not implemented" } else { "permission denied" })]
pub struct Denied {
    /// Which.
    pub call: &'static str,
    /// It seems that the kernel does not have it (`ENOSYS`): so old filters answer for what they do not know.
    pub absent: bool,
}

impl Denied {
    /// What a system call says, as an error that tells whether it is denied.
    pub(super) fn of(call: &'static str, error: io::Error) -> io::Error {
        let absent = match error.kind() {
            io::ErrorKind::PermissionDenied => false,
            io::ErrorKind::Unsupported => true,
            _ => return error,
        };
        io::Error::new(error.kind(), Denied { call, absent })
    }

    /// The one that an error comes from, if it does.
    #[must_use]
    pub fn behind(error: &anyhow::Error) -> Option<Denied> {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.find_map(|cause| cause.get_ref()?.downcast_ref().copied())
    }
}
