//! The Linux capabilities that jbpf-prof can use, and which of them this process has.

use crate::process::procfs;

/// A capability, identified by its number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Upper case, without the prefix `CAP_`.
    pub name: &'static str,
    bit: u32,
    /// An older, broader capability that includes this one.
    included_in: Option<u32>,
    /// What fails without this capability, as text for messages.
    pub serves: &'static str,
    /// How much depends on it.
    pub need: CapabilityNeed,
}

/// How much depends on a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityNeed {
    /// Without it, nothing can be profiled.
    Vital,
    /// Without it, profiles lack something.
    Useful,
    /// Without it, profiles are whole. The service and the DaemonSet leave it out.
    Optional,
}

use CapabilityNeed::{Optional, Useful, Vital};

const SYS_ADMIN: u32 = 21;

/// The capabilities that jbpf-prof uses, the vital ones first.
pub const USED: [Capability; 9] = [
    capability("BPF", 39, Vital, "BPF programs cannot be loaded").within(SYS_ADMIN),
    capability("PERFMON", 38, Vital, "perf events cannot be opened").within(SYS_ADMIN),
    capability(
        "SYS_PTRACE",
        19,
        Useful,
        "stacks of other users' processes end at the first function without a frame pointer, and other users' JVMs have \
         no names",
    ),
    capability(
        "DAC_READ_SEARCH",
        2,
        Useful,
        "libraries and perf maps that only their users may read have no names",
    ),
    capability(
        "SYSLOG",
        34,
        Useful,
        "all functions of the kernel are one frame `[kernel]`, and waits have no reason but `kernel hidden`",
    ),
    capability("CHECKPOINT_RESTORE", 40, Useful, "deleted or replaced libraries have no names")
        .within(SYS_ADMIN),
    capability("SETUID", 7, Useful, "the agent cannot be attached to JVMs of other users"),
    capability("SETGID", 6, Useful, "the agent cannot be attached to JVMs of other users"),
    capability(
        "SYS_ADMIN",
        SYS_ADMIN,
        Optional,
        "the cost of the BPF program is not known, so neither the report nor the daemon's max-cpu counts it",
    ),
];

const fn capability(name: &'static str, bit: u32, need: CapabilityNeed, serves: &'static str) -> Capability {
    Capability { name, bit, included_in: None, serves, need }
}

impl Capability {
    /// Whether nothing can be profiled without this capability.
    #[must_use]
    pub fn is_vital(self) -> bool {
        self.need == Vital
    }

    const fn within(self, wider: u32) -> Capability {
        Capability { included_in: Some(wider), ..self }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The effective capabilities of this process; an empty set if `/proc` cannot be read.
    #[must_use]
    pub fn own() -> Capabilities {
        procfs::read("/proc/self/status")
            .ok()
            .and_then(|status| Capabilities::parse(&status))
            .unwrap_or(Self(0))
    }

    /// Parses the line `CapEff` in the text of `/proc/PID/status`; `None` without a valid line.
    #[must_use]
    pub fn parse(status: &[u8]) -> Option<Capabilities> {
        let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"CapEff:"))?;
        let digits = std::str::from_utf8(line.trim_ascii()).ok()?;
        u64::from_str_radix(digits, 16).ok().map(Capabilities)
    }

    /// Whether the set contains `capability`, or a broader one that includes it.
    #[must_use]
    pub fn have(self, capability: Capability) -> bool {
        let has = |bit: u32| self.0 >> bit & 1 == 1;
        has(capability.bit) || capability.included_in.is_some_and(has)
    }

    /// The capabilities of [`USED`] that this set lacks.
    pub fn missing(self) -> impl Iterator<Item = Capability> {
        USED.into_iter().filter(move |capability| !self.have(*capability))
    }
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, USED};

    #[test]
    fn the_effective_set_is_read() {
        let status = b"Name:\tCapEff:\nCapPrm:\t0000000000000000\nCapEff:\t000000c000000004\nCapBnd:\t0\n";
        let some = Capabilities::parse(status).unwrap();
        assert!(USED.iter().filter(|c| c.is_vital()).all(|c| some.have(*c)));
        let missing: Vec<_> = some.missing().map(|c| c.name).collect();
        assert_eq!(missing, ["SYS_PTRACE", "SYSLOG", "CHECKPOINT_RESTORE", "SETUID", "SETGID", "SYS_ADMIN"]);
        assert_eq!(Capabilities::parse(b"Name:\tx\n"), None);
        assert_eq!(Capabilities::parse(b"Name:\tx\nCapEff:\tzz\n"), None);
    }

    #[test]
    fn the_old_wide_capability_will_do() {
        let admin = Capabilities::parse(b"CapEff:\t0000000000200000").unwrap();
        assert!(admin.missing().all(|c| !c.is_vital() && c.name != "CHECKPOINT_RESTORE"));
        assert_eq!(Capabilities(0).missing().count(), USED.len());
    }
}
