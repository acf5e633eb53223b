//! An error that decides the exit code. A leaf: every room may fail so.

use std::fmt;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// This host does not allow it.
    #[must_use]
    pub fn host(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Host, message: message.into() }
    }

    /// The target is gone or refuses.
    #[must_use]
    pub fn target(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Target, message: message.into() }
    }
}

/// The exit code of any error: that of the [`Failure`] in its chain or that explains it, else [`Exit::Failed`].
#[must_use]
pub fn code_of(error: &anyhow::Error) -> Exit {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    // The parts of a chain do not show what anyhow was given as context; the error as a whole does.
    cause.or_else(|| error.downcast_ref::<Failure>()).map_or(Exit::Failed, |failure| failure.exit)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::{Exit, Failure, code_of};

    #[test]
    fn a_failure_decides_wherever_it_stands() {
        let target = || Failure::target("CPU 99 is not online");
        assert_eq!(code_of(&anyhow::Error::new(target())), Exit::Target);
        assert_eq!(code_of(&anyhow::Error::new(target()).context("opening perf events")), Exit::Target);
        let explained = Err::<(), _>(anyhow!("permission denied")).context(Failure::host("no CAP_BPF"));
        assert_eq!(code_of(&explained.unwrap_err().context("loading")), Exit::Host);
        assert_eq!(code_of(&anyhow!("disk full")), Exit::Failed);
    }
}
