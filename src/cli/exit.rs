//! Exit codes, and what an error means for them.

use std::fmt;
use std::io;

use crate::capture::{Denied, NotOnline};
use crate::host::Refusal;
use crate::session::{Misread, NotRun};

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

/// What of this host explains an error of a run: if the kernel said no, what was warned of before it, or else the
/// system call as a whole.
#[must_use]
pub fn reason(error: &anyhow::Error, warned: &[Refusal]) -> Option<Refusal> {
    let denied = Denied::behind(error);
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let no = causes.any(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
    let explains = |refusal: &&Refusal| match (refusal, denied) {
        (Refusal::LittleLockedMemory(_), None | Some(Denied { call: "bpf", .. })) => no,
        (Refusal::Paranoid(_), Some(Denied { call: "perf_event_open", .. })) => no,
        _ => false,
    };
    let warned = warned.iter().find(explains).copied();
    warned.or(denied.map(|Denied { call, absent }| Refusal::CallDenied { call, absent }))
}

/// An error of a run, and before it its [`reason`].
#[must_use]
pub fn explained(error: anyhow::Error, warned: &[Refusal]) -> anyhow::Error {
    match reason(&error, warned) {
        Some(reason) => error.context(Failure::from(reason)),
        None => error,
    }
}

/// The exit code of any error: that of the [`Failure`] in its chain or that explains it, else [`Exit::Failed`].
#[must_use]
pub fn code_of(error: &anyhow::Error) -> Exit {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<Failure>());
    if error.downcast_ref::<Misread>().is_some() {
        return Exit::Host;
    }
    if error.downcast_ref::<NotRun>().is_some() || error.downcast_ref::<NotOnline>().is_some() {
        return Exit::Target;
    }
    // The parts of a chain do not show what anyhow was given as context; the error as a whole does.
    cause.or_else(|| error.downcast_ref::<Failure>()).map_or(Exit::Failed, |f| f.exit)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::{Denied, Exit, Refusal, code_of, explained, reason};

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

    #[test]
    fn a_denied_call_is_named_unless_there_is_a_likelier_reason() {
        let denied = |call, absent| {
            let kind = if absent { io::ErrorKind::Unsupported } else { io::ErrorKind::PermissionDenied };
            anyhow::Error::new(io::Error::new(kind, Denied { call, absent })).context("perf event on CPU 0")
        };
        let warned = [Refusal::Paranoid(3), Refusal::LittleLockedMemory(64)];
        let itself = |call, absent| Some(Refusal::CallDenied { call, absent });
        for (call, absent, warned, expected) in [
            ("bpf", false, &warned[..1], itself("bpf", false)),
            ("bpf", true, &warned, itself("bpf", true)),
            ("bpf", false, &warned, Some(warned[1])),
            ("perf_event_open", false, &[], itself("perf_event_open", false)),
            ("perf_event_open", true, &warned, itself("perf_event_open", true)),
            ("perf_event_open", false, &warned, Some(warned[0])),
        ] {
            assert_eq!(reason(&denied(call, absent), warned), expected, "{call} {absent} {warned:?}");
        }
        let text = format!("{:#}", explained(denied("perf_event_open", true), &[]));
        assert!(text.starts_with("the system call is denied: perf_event_open, as if this kernel had none; "));
        assert_eq!(code_of(&explained(denied("bpf", false), &[])), Exit::Host);
    }
}
