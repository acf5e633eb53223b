//! Explains errors of a run by facts about this host.

use std::io;

use crate::capture::DeniedSyscall;
use crate::failure::Failure;
use crate::host::HostRefusal;

impl From<HostRefusal> for Failure {
    /// The refusal, what to do, and the section to read.
    fn from(refusal: HostRefusal) -> Failure {
        let (hint, anchor) = (refusal.hint(), refusal.anchor());
        Failure::host(format!("{refusal}; {hint} (docs/troubleshooting.md#{anchor})"))
    }
}

/// The refusal that explains an error of a run. If the kernel denied permission, a warning from before the run explains
/// it; otherwise the denied system call does.
#[must_use]
pub(super) fn reason(error: &anyhow::Error, warned: &[HostRefusal]) -> Option<HostRefusal> {
    let denied = DeniedSyscall::find_in(error);
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let no = causes.any(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
    let explains = |refusal: &&HostRefusal| match (refusal, denied) {
        (HostRefusal::LittleLockedMemory(_), None | Some(DeniedSyscall { call: "bpf", .. })) => no,
        (HostRefusal::Paranoid(_), Some(DeniedSyscall { call: "perf_event_open", .. })) => no,
        _ => false,
    };
    let warned = warned.iter().find(explains).copied();
    warned.or(denied.map(|DeniedSyscall { call, absent }| HostRefusal::CallDenied { call, absent }))
}

/// Puts the refusal that explains an error of a run, if there is one, in front of the error.
#[must_use]
pub fn with_host_cause(error: anyhow::Error, warned: &[HostRefusal]) -> anyhow::Error {
    match reason(&error, warned) {
        Some(reason) => error.context(Failure::from(reason)),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::{DeniedSyscall, HostRefusal, reason, with_host_cause};
    use crate::failure::{Exit, exit_of};

    #[test]
    fn what_was_warned_of_explains_a_denial_and_nothing_else() {
        let error = |kind: io::ErrorKind| {
            Err::<(), _>(io::Error::from(kind)).context("loading the BPF program").unwrap_err()
        };
        let warned = [HostRefusal::Paranoid(3), HostRefusal::LittleLockedMemory(64)];
        let explained_one = with_host_cause(error(io::ErrorKind::PermissionDenied), &warned);
        assert_eq!(exit_of(&explained_one), Exit::Host);
        let text = format!("{explained_one:#}");
        assert!(
            text.starts_with("only 64 KiB") && text.contains("loading the BPF program: permission"),
            "{text}"
        );
        assert_eq!(exit_of(&with_host_cause(error(io::ErrorKind::NotFound), &warned)), Exit::Failed);
        assert_eq!(
            exit_of(&with_host_cause(error(io::ErrorKind::PermissionDenied), &warned[..1])),
            Exit::Failed
        );
    }

    #[test]
    fn a_denied_call_is_named_unless_there_is_a_likelier_reason() {
        let denied = |call, absent| {
            let kind = if absent { io::ErrorKind::Unsupported } else { io::ErrorKind::PermissionDenied };
            anyhow::Error::new(io::Error::new(kind, DeniedSyscall { call, absent }))
                .context("perf event on CPU 0")
        };
        let warned = [HostRefusal::Paranoid(3), HostRefusal::LittleLockedMemory(64)];
        let itself = |call, absent| Some(HostRefusal::CallDenied { call, absent });
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
        let text = format!("{:#}", with_host_cause(denied("perf_event_open", true), &[]));
        assert!(text.starts_with("the system call is denied: perf_event_open, as if this kernel had none; "));
        assert_eq!(exit_of(&with_host_cause(denied("bpf", false), &[])), Exit::Host);
    }
}
