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

/// The exit code of any error: that of the [`Failure`] in its chain, else [`Exit::Failed`].
#[must_use]
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(|cause| cause.downcast_ref::<Failure>()).map_or(Exit::Failed, |f| f.exit)
}
