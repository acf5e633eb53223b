//! Reasons why a host cannot be profiled, or only in part, each with a hint about what to do.

use std::fmt;

use super::capability::{Capability, CapabilityNeed};

/// The system call that opens files in other mount namespaces. Without it only names are lost.
pub(super) const OPENAT2: &str = "openat2";

/// Major and minor version of a kernel. Features are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease {
    /// The first number of the release: `6` in 6.12.3.
    pub major: u32,
    /// The second number of the release: `12` in 6.12.3.
    pub minor: u32,
}

impl KernelRelease {
    /// Parses a text such as `6.12.3-amd64`.
    #[must_use]
    pub fn parse(text: &str) -> Option<KernelRelease> {
        let mut numbers = text.trim().split(|c: char| !c.is_ascii_digit());
        Some(KernelRelease { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why this host does not allow something. [`HostRefusal::is_fatal`] says whether the refusal stops a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostRefusal {
    /// The user is not root and lacks vital capabilities.
    #[error("this needs root")]
    NotRoot,
    /// A capability is missing. Fatal if the capability is vital.
    #[error("capability CAP_{} is missing: {}", .0.name, .0.serves)]
    MissingCapability(Capability),
    /// The kernel has no BTF.
    #[error("this kernel has no BTF (/sys/kernel/btf/vmlinux)")]
    NoBtf,
    /// The kernel is older than the oldest one that is tested.
    #[error("kernel {have} is too old: {need} is the first that works")]
    KernelTooOld {
        /// The release of this kernel.
        have: KernelRelease,
        /// The first release that works.
        need: KernelRelease,
    },
    /// Kernel lockdown is in its strictest mode, in which BPF may not read kernel memory.
    #[error("kernel lockdown is in confidentiality mode")]
    Lockdown,
    /// This process is not in the initial pid namespace, but the process ids of samples are those of that namespace.
    #[error("this is not the host's pid namespace")]
    NotInitPidNamespace,
    /// Not fatal by itself: distributions differ in what they forbid at levels 3 and 4.
    #[error("kernel.perf_event_paranoid is {0}: perf events may be refused")]
    Paranoid(i32),
    /// Not fatal: kernel frames have no names.
    #[error("kernel.kptr_restrict is 2: kernel frames are one `[kernel]`")]
    HiddenKernelSymbols,
    /// A system call is denied. Fatal except for `openat2`, without which only names are lost.
    #[error("the system call is denied: {call}{}", if *.absent { ", as if this kernel had none" } else { "" })]
    CallDenied {
        /// Name of the system call.
        call: &'static str,
        /// Whether the error was `ENOSYS`.
        absent: bool,
    },
    /// Not fatal: before Linux 5.11 BPF maps count as locked memory. The number is the limit in KiB.
    #[error("only {0} KiB of memory may be locked: the BPF maps may not fit")]
    LittleLockedMemory(u64),
}

impl HostRefusal {
    /// Whether nothing can be profiled on this host.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            HostRefusal::MissingCapability(capability) => capability.is_vital(),
            HostRefusal::CallDenied { call, .. } => *call != OPENAT2,
            HostRefusal::NotRoot
            | HostRefusal::NoBtf
            | HostRefusal::KernelTooOld { .. }
            | HostRefusal::Lockdown
            | HostRefusal::NotInitPidNamespace => true,
            HostRefusal::Paranoid(_)
            | HostRefusal::HiddenKernelSymbols
            | HostRefusal::LittleLockedMemory(_) => false,
        }
    }

    /// What to do about the refusal, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            HostRefusal::NotRoot => {
                "run it with sudo, or give it the capabilities that `jbpf-prof doctor` names as missing"
            }
            HostRefusal::MissingCapability(Capability { need: CapabilityNeed::Optional, .. }) => {
                "nothing need be done: the service and the DaemonSet leave it out on purpose, because it allows too much"
            }
            HostRefusal::MissingCapability(_) => "add it to the container's or service's capabilities",
            HostRefusal::NoBtf => {
                "boot a kernel built with CONFIG_DEBUG_INFO_BTF, or name its types with --btf-path"
            }
            HostRefusal::KernelTooOld { .. } => "boot a newer kernel",
            HostRefusal::Lockdown => "boot with lockdown=integrity or none",
            HostRefusal::NotInitPidNamespace => {
                "run it on the host, or in a container with the host's pid namespace"
            }
            HostRefusal::Paranoid(_) => "if it fails: sysctl kernel.perf_event_paranoid=2",
            HostRefusal::HiddenKernelSymbols => "sysctl kernel.kptr_restrict=1",
            HostRefusal::CallDenied { .. } => {
                "allow it in the container's seccomp profile or in the security module"
            }
            HostRefusal::LittleLockedMemory(_) => "raise it: ulimit -l unlimited, or LimitMEMLOCK=infinity",
        }
    }

    /// Anchor of the heading in `docs/troubleshooting.md` that explains the refusal.
    #[must_use]
    pub fn anchor(&self) -> &'static str {
        match self {
            HostRefusal::NotRoot => "this-needs-root",
            HostRefusal::MissingCapability(_) => "capability-is-missing",
            HostRefusal::NoBtf => "this-kernel-has-no-btf",
            HostRefusal::KernelTooOld { .. } => "kernel-is-too-old",
            HostRefusal::Lockdown => "kernel-lockdown-is-in-confidentiality-mode",
            HostRefusal::NotInitPidNamespace => "this-is-not-the-hosts-pid-namespace",
            HostRefusal::Paranoid(_) => "kernelperf_event_paranoid-is-3-or-4",
            HostRefusal::HiddenKernelSymbols => "kernelkptr_restrict-is-2",
            HostRefusal::CallDenied { .. } => "the-system-call-is-denied",
            HostRefusal::LittleLockedMemory(_) => "only-n-kib-of-memory-may-be-locked",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capability::USED;
    use super::{HostRefusal, KernelRelease};

    #[test]
    fn releases_are_ordered() {
        let release = |text| KernelRelease::parse(text).unwrap();
        assert!(release("5.10.0-30-amd64") < release("5.15.1") && release("5.15") < release("6.1.0"));
        assert_eq!(release("6.18.44-fc-v669").to_string(), "6.18");
        assert_eq!(KernelRelease::parse("linux"), None);
    }

    #[test]
    fn troubleshooting_knows_each_refusal() {
        let page = include_str!("../../docs/troubleshooting.md");
        // GitHub makes anchors like this: lower case, blanks become dashes, other punctuation is dropped.
        let anchor = |heading: &str| {
            let kept = heading.chars().filter(|c| c.is_ascii_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect::<String>()
        };
        let anchors: Vec<_> = page.lines().filter_map(|l| l.strip_prefix("## ")).map(anchor).collect();
        let release = KernelRelease { major: 4, minor: 18 };
        let all = [
            HostRefusal::NotRoot,
            HostRefusal::MissingCapability(USED[0]),
            HostRefusal::NoBtf,
            HostRefusal::KernelTooOld { have: release, need: release },
            HostRefusal::Lockdown,
            HostRefusal::NotInitPidNamespace,
            HostRefusal::Paranoid(4),
            HostRefusal::HiddenKernelSymbols,
            HostRefusal::CallDenied { call: "bpf", absent: true },
            HostRefusal::LittleLockedMemory(64),
        ];
        for refusal in all {
            assert!(
                anchors.iter().any(|a| a == refusal.anchor()),
                "{} is not in {anchors:?}",
                refusal.anchor()
            );
            assert!(!refusal.hint().is_empty() && !refusal.to_string().contains('\n'));
        }
        assert!(
            all[0].is_fatal() && all[1].is_fatal() && !HostRefusal::MissingCapability(USED[2]).is_fatal()
        );
    }
}
