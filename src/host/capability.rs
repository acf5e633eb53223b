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
    /// Whether nothing can be profiled without this capability.
    pub vital: bool,
}

const SYS_ADMIN: u32 = 21;

/// The capabilities that jbpf-prof uses, the vital ones first.
pub const USED: [Capability; 9] = [
    capability("BPF", 39, true, "BPF programs cannot be loaded").within(SYS_ADMIN),
    capability("PERFMON", 38, true, "perf events cannot be opened").within(SYS_ADMIN),
    capability(
        "SYS_PTRACE",
        19,
        false,
        "other users' JVMs have no names, nor has other users' code in files that are deleted or outside jbpf-prof's own \
         root",
    ),
    capability(
        "DAC_READ_SEARCH",
        2,
        false,
        "libraries and perf maps that only their users may read have no names",
    ),
    capability("SYSLOG", 34, false, "all functions of the kernel are one frame `[kernel]`"),
    capability("CHECKPOINT_RESTORE", 40, false, "deleted or replaced libraries have no names")
        .within(SYS_ADMIN),
    capability("SETUID", 7, false, "the agent cannot be attached to JVMs of other users"),
    capability("SETGID", 6, false, "the agent cannot be attached to JVMs of other users"),
    capability(
        "SYS_ADMIN",
        SYS_ADMIN,
        false,
        "the cost of the BPF program is not known, so neither the report nor the daemon's max-cpu counts it; the service \
         and the DaemonSet leave this capability out on purpose",
    ),
];

const fn capability(name: &'static str, bit: u32, vital: bool, serves: &'static str) -> Capability {
    Capability { name, bit, included_in: None, serves, vital }
}

impl Capability {
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
        assert!(USED.iter().filter(|c| c.vital).all(|c| some.have(*c)));
        let missing: Vec<_> = some.missing().map(|c| c.name).collect();
        assert_eq!(missing, ["SYS_PTRACE", "SYSLOG", "CHECKPOINT_RESTORE", "SETUID", "SETGID", "SYS_ADMIN"]);
        assert_eq!(Capabilities::parse(b"Name:\tx\n"), None);
        assert_eq!(Capabilities::parse(b"Name:\tx\nCapEff:\tzz\n"), None);
    }

    #[test]
    fn the_old_wide_capability_will_do() {
        let admin = Capabilities::parse(b"CapEff:\t0000000000200000").unwrap();
        assert!(admin.missing().all(|c| !c.vital && c.name != "CHECKPOINT_RESTORE"));
        assert_eq!(Capabilities(0).missing().count(), USED.len());
    }
}
