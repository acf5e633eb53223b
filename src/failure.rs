//! An error that decides the exit code.

use std::fmt;

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success, also of `--help` and `--version`.
    Done = 0,
    /// An error of any other kind.
    Failed = 1,
    /// The command line or a setting is invalid.
    Usage = 2,
    /// This host does not allow sampling.
    Host = 3,
    /// The target or a probed function does not exist, or the command could not be run.
    Target = 4,
    /// `diff` found a change.
    Changed = 5,
}

/// An error that has an exit code and a message of one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code with which the process exits.
    pub exit: Exit,
    /// What happened, where, and what to do; empty if the message is printed already.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// An error with [`Exit::Usage`].
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, message: message.into() }
    }

    /// An error with [`Exit::Host`].
    #[must_use]
    pub fn host(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Host, message: message.into() }
    }

    /// An error with [`Exit::Target`].
    #[must_use]
    pub fn target(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Target, message: message.into() }
    }
}

/// The exit code of an error: that of the [`Failure`] in its chain or in its context, else [`Exit::Failed`].
#[must_use]
pub fn exit_of(error: &anyhow::Error) -> Exit {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    // anyhow's context is not part of the chain; only a downcast of the whole error finds a failure there.
    cause.or_else(|| error.downcast_ref::<Failure>()).map_or(Exit::Failed, |failure| failure.exit)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::{Exit, Failure, exit_of};

    #[test]
    fn a_failure_decides_wherever_it_stands() {
        let target = || Failure::target("CPU 99 is not online");
        assert_eq!(exit_of(&anyhow::Error::new(target())), Exit::Target);
        assert_eq!(exit_of(&anyhow::Error::new(target()).context("opening perf events")), Exit::Target);
        let explained = Err::<(), _>(anyhow!("permission denied")).context(Failure::host("no CAP_BPF"));
        assert_eq!(exit_of(&explained.unwrap_err().context("loading")), Exit::Host);
        assert_eq!(exit_of(&anyhow!("disk full")), Exit::Failed);
    }
}
