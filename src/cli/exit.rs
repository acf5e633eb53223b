//! Exit codes, and what an error means for them.

use std::fmt;

use crate::host::Refusal;

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line cannot be understood.
    Usage = 2,
    /// This host does not allow it.
    Host = 3,
    /// The target is gone or refuses.
    Target = 4,
}

/// An error whose kind decides the exit code; its text is one sentence.
#[derive(Debug)]
pub struct Failure {
    /// The kind.
    pub exit: Exit,
    /// What, where, what to do.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// A usage error.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, message: message.into() }
    }
}

impl From<Refusal> for Failure {
    /// The sentence, what to do, and where to read more.
    fn from(refusal: Refusal) -> Failure {
        let message = format!("{refusal}; {} (docs/troubleshooting.md#{})", refusal.hint(), refusal.anchor());
        Failure { exit: Exit::Host, message }
    }
}

/// An error of a run, and what was warned of before it: if the kernel said no, little lockable memory is the reason.
#[must_use]
pub fn explained(error: anyhow::Error, warned: &[Refusal]) -> anyhow::Error {
    let denied = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    if !denied.into_iter().any(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied) {
        return error;
    }
    match warned.iter().find(|refusal| matches!(refusal, Refusal::LittleLockedMemory(_))) {
        Some(reason) => error.context(Failure::from(*reason)),
        None => error,
    }
}

/// The exit code of any error: that of the [`Failure`] in its chain or that explains it, else [`Exit::Failed`].
#[must_use]
pub fn code_of(error: &anyhow::Error) -> Exit {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    // The parts of a chain do not show what anyhow was given as context; the error as a whole does.
    cause.or_else(|| error.downcast_ref::<Failure>()).map_or(Exit::Failed, |f| f.exit)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::{Exit, Refusal, code_of, explained};

    #[test]
    fn what_was_warned_of_explains_a_denial_and_nothing_else() {
        let error = |kind: io::ErrorKind| {
            Err::<(), _>(io::Error::from(kind)).context("loading the BPF program").unwrap_err()
        };
        let warned = [Refusal::Paranoid(3), Refusal::LittleLockedMemory(64)];
        let explained_one = explained(error(io::ErrorKind::PermissionDenied), &warned);
        assert_eq!(code_of(&explained_one), Exit::Host);
        let text = format!("{explained_one:#}");
        assert!(
            text.starts_with("only 64 KiB") && text.contains("loading the BPF program: permission"),
            "{text}"
        );
        assert_eq!(code_of(&explained(error(io::ErrorKind::NotFound), &warned)), Exit::Failed);
        assert_eq!(code_of(&explained(error(io::ErrorKind::PermissionDenied), &warned[..1])), Exit::Failed);
    }
}
