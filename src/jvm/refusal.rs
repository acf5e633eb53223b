//! Why a JVM was not attached to: stable names, for reports and for people.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a JVM was not attached to or not read. `Display` is the stable label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The JVM runs with `-XX:+DisableAttachMechanism`.
    #[error("attach disabled")]
    AttachDisabled,
    /// The JVM runs with `-XX:-EnableDynamicAgentLoading`.
    #[error("agent loading disabled")]
    AgentLoadingDisabled,
    /// The JVM's `/tmp` is mounted noexec.
    #[error("noexec tmp")]
    NoexecTmp,
    /// The JVM's `/tmp` is missing, read-only, full, or closed to the profiler.
    #[error("tmp not writable")]
    TmpNotWritable,
    /// The JVM does not catch SIGQUIT, which would kill it: it is still starting, or has `-Xrs` and no socket.
    #[error("signal not caught")]
    SignalNotCaught,
    /// Another user's file is in place of the attach request, or the socket file is not the JVM's own.
    #[error("attach file blocked")]
    Blocked,
    /// The JVM or the helper did not finish before the deadline.
    #[error("timed out")]
    TimedOut,
    /// The run was ended before the JVM had answered.
    #[error("interrupted")]
    Interrupted,
    /// The process is stopped, traced or frozen.
    #[error("stopped")]
    Stopped,
    /// The process has exited, or its pid belongs to another process now.
    #[error("exited")]
    Exited,
    /// The attach listener closed the connection, or its reply cannot be parsed.
    #[error("no answer")]
    NoAnswer,
    /// The JVM refused to load the agent; the JVM's own words (cleaned, cut).
    #[error("agent not loaded")]
    NotLoaded(String),
    /// The JVM loaded the agent, and the agent's log cannot be found.
    #[error("no log")]
    NoLog,
    /// None of the JVM's threads is in the process. The process was forked from a JVM with a copy of its memory, or
    /// loaded `libjvm.so` without making a JVM.
    #[error("no JVM threads")]
    NoThreads,
    /// The build may crash in the events that the agent needs; the bug's name.
    #[error("known crash {0}")]
    KnownCrash(String),
    /// A HotSpot whose version is not understood, so that known crashes cannot be excluded.
    #[error("unknown version")]
    UnknownVersion,
    /// The `libjvm.so` does not have HotSpot's tables (OpenJ9, a look-alike), or they make no sense.
    #[error("not HotSpot")]
    NotHotSpot,
    /// A HotSpot whose interpreter is a loop in C++, without a compiler: its Java frames are not machine frames.
    #[error("Zero VM")]
    ZeroVm,
    /// A HotSpot whose tables do not say where its compiled code is described, or not as in any known release.
    #[error("layout unknown")]
    LayoutUnknown,
    /// The kernel or its policy forbids a necessary system call.
    #[error("not permitted")]
    NotPermitted,
    /// An earlier helper for this process still hangs.
    #[error("helper stuck")]
    HelperStuck,
    /// The host, or the profiler's limits, have no more files, processes or memory.
    #[error("out of resources")]
    OutOfResources(String),
    /// The helper process itself failed.
    #[error("helper failed")]
    HelperFailed(String),
}

impl Refusal {
    /// The refusal for a failed system call of the profiler itself, for which the JVM is not the cause.
    pub(super) fn of_own(what: &str, error: &io::Error) -> Refusal {
        let words = format!("{what}: {error}");
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN) => {
                Refusal::OutOfResources(words)
            }
            _ => Refusal::HelperFailed(words),
        }
    }

    /// One sentence: what the user can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Refusal::AttachDisabled => {
                "Start the JVM without -XX:+DisableAttachMechanism, or with -agentpath for the agent."
            }
            Refusal::AgentLoadingDisabled => {
                "Start the JVM with -XX:+EnableDynamicAgentLoading, or with -agentpath for the agent."
            }
            Refusal::NoexecTmp => {
                "Mount its /tmp without noexec, or start the JVM with -agentpath for the agent."
            }
            Refusal::TmpNotWritable => {
                "Give the JVM a writable /tmp with free space, or start it with -agentpath for the agent."
            }
            Refusal::SignalNotCaught => {
                "A JVM that is starting can be attached to a moment later; with -Xrs its socket must exist in /tmp."
            }
            Refusal::Blocked => {
                "Look at .attach_pid and .java_pid files in the JVM's working directory and /tmp."
            }
            Refusal::TimedOut => {
                "The JVM was busy (a long pause) or another attach client held it; raise --attach-timeout."
            }
            Refusal::Interrupted => "The run was ended before the JVM had answered.",
            Refusal::Stopped => "Continue the process (SIGCONT, debugger, freezer), then profile again.",
            Refusal::Exited => "The process ended before it could be attached to.",
            Refusal::NoAnswer => "Check with `jcmd PID VM.version` whether its attach listener works.",
            Refusal::NotLoaded(_) => {
                "Run with -v --java agent to see the JVM's error. Antivirus software or an SELinux rule can be the cause."
            }
            Refusal::NoLog => {
                "The agent could not create its log. The JVM may have reached its memory or descriptor limit."
            }
            Refusal::NoThreads => {
                "The agent cannot run in a forked child of a JVM, or in a program that loaded libjvm.so without creating a JVM."
            }
            Refusal::KnownCrash(_) => "Update the JVM, or accept the risk with --force-attach.",
            Refusal::UnknownVersion => {
                "jbpf-prof cannot check this build for known crashes. Accept the risk with --force-attach."
            }
            Refusal::NotHotSpot => "Only HotSpot (OpenJDK and its distributions, 8 and later) is supported.",
            Refusal::ZeroVm => {
                "A Zero VM interprets Java in a C++ loop, and its frames do not show which method runs. Use a Server VM."
            }
            Refusal::LayoutUnknown => {
                "Only the agent can name the code of this JVM. Use --java auto or --java agent."
            }
            Refusal::NotPermitted => {
                "Run as root with CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_SETUID and CAP_SETGID."
            }
            Refusal::HelperStuck => {
                "A user-space file system or a tracer blocks access to the process's memory or files."
            }
            Refusal::OutOfResources(_) => {
                "Raise the limits of open files, processes and memory that jbpf-prof runs with, or ask fewer JVMs."
            }
            Refusal::HelperFailed(_) => "This is a bug in jbpf-prof. Please report it.",
        }
    }

    /// Whether names may still be read from the JVM's memory after it refused the agent for this reason.
    #[must_use]
    pub fn allows_memory_reading(&self) -> bool {
        !matches!(
            self,
            Refusal::Interrupted
                | Refusal::Exited
                | Refusal::NotHotSpot
                | Refusal::ZeroVm
                | Refusal::LayoutUnknown
                | Refusal::HelperStuck
        )
    }

    /// The words of the JVM or the helper, if there are any.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Refusal::NotLoaded(words) | Refusal::OutOfResources(words) | Refusal::HelperFailed(words) => {
                Some(words)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants;

    #[test]
    fn what_we_lack_is_no_fault_of_ours_to_report() {
        for (errno, lacking) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::ENOMEM, true),
            (libc::EAGAIN, true),
            (libc::EINVAL, false),
        ] {
            let refusal = Refusal::of_own("starting the helper", &io::Error::from_raw_os_error(errno));
            assert_eq!(matches!(refusal, Refusal::OutOfResources(_)), lacking, "{refusal:?}");
            assert!(refusal.detail().is_some_and(|words| words.starts_with("starting the helper: ")));
        }
    }

    #[test]
    fn every_refusal_has_a_hint_and_a_place_in_the_manual() {
        let text = || String::from("x");
        let all = [
            Refusal::AttachDisabled,
            Refusal::AgentLoadingDisabled,
            Refusal::NoexecTmp,
            Refusal::TmpNotWritable,
            Refusal::SignalNotCaught,
            Refusal::Blocked,
            Refusal::TimedOut,
            Refusal::Interrupted,
            Refusal::Stopped,
            Refusal::Exited,
            Refusal::NoAnswer,
            Refusal::NotLoaded(text()),
            Refusal::NoLog,
            Refusal::NoThreads,
            Refusal::KnownCrash(text()),
            Refusal::UnknownVersion,
            Refusal::NotHotSpot,
            Refusal::ZeroVm,
            Refusal::LayoutUnknown,
            Refusal::NotPermitted,
            Refusal::HelperStuck,
            Refusal::OutOfResources(text()),
            Refusal::HelperFailed(text()),
        ];
        assert_eq!(variants::all::<Refusal>(), all.each_ref().map(variants::of));
        let manual = include_str!("../../docs/troubleshooting.md");
        for refusal in all {
            let label = refusal.to_string();
            let heading = format!("## {}", label.trim_end_matches(" x"));
            assert!(manual.lines().any(|line| line == heading), "docs/troubleshooting.md lacks {heading}");
            assert!(refusal.hint().ends_with('.'), "{label}");
        }
    }
}
