//! Checks what this host allows before anything is tried, so that an error names its cause instead of a failed call.

pub mod capability;
pub mod descriptors;
pub mod facts;
pub mod refusal;
pub mod tracefs;

pub use capability::{Capabilities, Capability, CapabilityNeed};
pub use facts::HostFacts;
use refusal::OPENAT2;
pub use refusal::{HostRefusal, KernelRelease};
use rustix::io::Errno;

/// The oldest kernel that jbpf-prof is tested on.
pub const OLDEST: KernelRelease = KernelRelease { major: 5, minor: 10 };
/// From this kernel on, BPF maps are charged to the memory cgroup and do not count as locked memory.
const MAPS_UNLOCKED: KernelRelease = KernelRelease { major: 5, minor: 11 };
/// Locked memory in KiB that the maps need at 99 Hz on a large host.
const ENOUGH_LOCKED: u64 = 64 << 10;

/// Everything on this host that prevents or limits profiling, fatal refusals first. `own_btf` says that the kernel's
/// types come from a file.
#[must_use]
pub fn check(own_btf: bool) -> Vec<HostRefusal> {
    refusals_of(&HostFacts::gather(), own_btf)
}

/// The refusals that follow from `facts`, fatal ones first. For `own_btf` see [`check`].
#[must_use]
pub fn refusals_of(facts: &HostFacts, own_btf: bool) -> Vec<HostRefusal> {
    let mut refusals = Vec::new();
    let mut missing = facts.capabilities.missing().peekable();
    if facts.euid != 0 && missing.peek().is_some_and(|first| first.is_vital()) {
        refusals.push(HostRefusal::NotRoot);
    } else {
        refusals.extend(missing.map(HostRefusal::MissingCapability));
    }
    if let Some(have) = facts.release.filter(|have| *have < OLDEST) {
        refusals.push(HostRefusal::KernelTooOld { have, need: OLDEST });
    }
    if facts.btf_bytes.is_none() && !own_btf {
        refusals.push(HostRefusal::NoBtf);
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        refusals.push(HostRefusal::Lockdown);
    }
    if facts.init_pid_namespace == Some(false) {
        refusals.push(HostRefusal::NotInitPidNamespace);
    }
    if let Some(errno) = facts.openat2 {
        refusals.push(HostRefusal::CallDenied { call: OPENAT2, absent: errno == Errno::NOSYS });
    }
    if let Some(level) = facts.number("kernel.perf_event_paranoid").filter(|level| *level > 2) {
        refusals.push(HostRefusal::Paranoid(i32::try_from(level).unwrap_or(i32::MAX)));
    }
    if facts.number("kernel.kptr_restrict") == Some(2) {
        refusals.push(HostRefusal::HiddenKernelSymbols);
    }
    if let Some(kib) = facts.memlock_kib.filter(|kib| *kib < ENOUGH_LOCKED)
        && facts.release.is_some_and(|have| have < MAPS_UNLOCKED)
    {
        refusals.push(HostRefusal::LittleLockedMemory(kib));
    }
    refusals.sort_by_key(|refusal| !refusal.is_fatal());
    refusals
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, HostFacts, HostRefusal, KernelRelease, refusals_of};

    fn good() -> HostFacts {
        HostFacts {
            release: KernelRelease::parse("6.1.0"),
            capabilities: Capabilities::parse(b"CapEff:\tffffffffffffffff").unwrap(),
            btf_bytes: Some(1),
            init_pid_namespace: Some(true),
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_good_host_has_nothing_in_the_way() {
        assert_eq!(refusals_of(&good(), false), []);
    }

    #[test]
    fn each_fact_is_judged() {
        let none = Capabilities::parse(b"CapEff:\t0").unwrap();
        let user = HostFacts { euid: 1000, capabilities: none, ..good() };
        assert_eq!(refusals_of(&user, false), [HostRefusal::NotRoot]);
        let bare_root = HostFacts { capabilities: none, ..good() };
        let refusals = refusals_of(&bare_root, false);
        assert!(matches!(refusals[0], HostRefusal::MissingCapability(c) if c.name == "BPF" && c.is_vital()));
        assert!(refusals.iter().filter(|r| r.is_fatal()).count() == 2 && refusals.len() > 2);

        let no_btf = HostFacts { btf_bytes: None, ..good() };
        assert_eq!(
            (refusals_of(&no_btf, false), refusals_of(&no_btf, true)),
            (vec![HostRefusal::NoBtf], vec![])
        );
        let locked = HostFacts { lockdown: Some("confidentiality".into()), ..good() };
        assert_eq!(refusals_of(&locked, false), [HostRefusal::Lockdown]);
        let contained = HostFacts { init_pid_namespace: Some(false), ..good() };
        assert_eq!(refusals_of(&contained, false), [HostRefusal::NotInitPidNamespace]);
        let filtered = HostFacts { openat2: Some(rustix::io::Errno::NOSYS), ..good() };
        assert_eq!(
            refusals_of(&filtered, false),
            [HostRefusal::CallDenied { call: "openat2", absent: true }]
        );
        assert!(!refusals_of(&filtered, false)[0].is_fatal());
        let sysctl = |name: &'static str, value: &str| vec![(name, Some(value.to_owned()))];
        let strict = HostFacts { sysctls: sysctl("kernel.perf_event_paranoid", "4"), ..good() };
        assert_eq!(refusals_of(&strict, false), [HostRefusal::Paranoid(4)]);
        let hidden = HostFacts { sysctls: sysctl("kernel.kptr_restrict", "2"), ..good() };
        assert_eq!(refusals_of(&hidden, false), [HostRefusal::HiddenKernelSymbols]);
    }

    #[test]
    fn locked_memory_matters_to_old_kernels_only() {
        let old = HostFacts { release: KernelRelease::parse("5.10.0"), memlock_kib: Some(64), ..good() };
        assert_eq!(refusals_of(&old, false), [HostRefusal::LittleLockedMemory(64)]);
        assert_eq!(refusals_of(&HostFacts { memlock_kib: Some(64), ..good() }, false), []);
        let older = HostFacts { release: KernelRelease::parse("4.18.0"), ..good() };
        assert!(matches!(refusals_of(&older, false)[..], [HostRefusal::KernelTooOld { .. }]));
    }
}
