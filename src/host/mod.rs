//! What this host allows, asked before anything is tried: so that a refusal names its reason and not a failed call.

pub mod capability;
pub mod descriptors;
pub mod facts;
pub mod refusal;

pub use capability::{Capabilities, Capability};
pub use facts::Facts;
use refusal::OPENAT2;
pub use refusal::{Refusal, Release};
use rustix::io::Errno;

/// The first kernel that the product is tested on.
pub const OLDEST: Release = Release { major: 5, minor: 10 };
/// From here on BPF maps are charged to the memory cgroup instead of counting as locked memory.
const MAPS_UNLOCKED: Release = Release { major: 5, minor: 11 };
/// What the maps need at 99 Hz on a large host, in KiB.
const ENOUGH_LOCKED: u64 = 64 << 10;

/// What stands in the way on this host, the fatal first. `own_btf` says that kernel types come from a file.
#[must_use]
pub fn check(own_btf: bool) -> Vec<Refusal> {
    judge(&Facts::gather(), own_btf)
}

/// What the facts forbid.
#[must_use]
pub fn judge(facts: &Facts, own_btf: bool) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut missing = facts.capabilities.missing().peekable();
    if facts.euid != 0 && missing.peek().is_some_and(|first| first.vital) {
        refusals.push(Refusal::NotRoot);
    } else {
        refusals.extend(missing.map(Refusal::MissingCapability));
    }
    if let Some(have) = facts.release.filter(|have| *have < OLDEST) {
        refusals.push(Refusal::KernelTooOld { have, need: OLDEST });
    }
    if facts.btf_bytes.is_none() && !own_btf {
        refusals.push(Refusal::NoBtf);
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        refusals.push(Refusal::Lockdown);
    }
    if facts.init_pid_namespace == Some(false) {
        refusals.push(Refusal::NotInitPidNamespace);
    }
    if let Some(errno) = facts.openat2 {
        refusals.push(Refusal::CallDenied { call: OPENAT2, absent: errno == Errno::NOSYS });
    }
    if let Some(level) = facts.number("kernel.perf_event_paranoid").filter(|level| *level > 2) {
        refusals.push(Refusal::Paranoid(i32::try_from(level).unwrap_or(i32::MAX)));
    }
    if facts.number("kernel.kptr_restrict") == Some(2) {
        refusals.push(Refusal::HiddenKernelSymbols);
    }
    if let Some(kib) = facts.memlock_kib.filter(|kib| *kib < ENOUGH_LOCKED)
        && facts.release.is_some_and(|have| have < MAPS_UNLOCKED)
    {
        refusals.push(Refusal::LittleLockedMemory(kib));
    }
    refusals.sort_by_key(|refusal| !refusal.is_fatal());
    refusals
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, Facts, Refusal, Release, judge};

    fn good() -> Facts {
        Facts {
            release: Release::parse("6.1.0"),
            capabilities: Capabilities::parse(b"CapEff:\tffffffffffffffff").unwrap(),
            btf_bytes: Some(1),
            init_pid_namespace: Some(true),
            ..Facts::default()
        }
    }

    #[test]
    fn a_good_host_has_nothing_in_the_way() {
        assert_eq!(judge(&good(), false), []);
    }

    #[test]
    fn each_fact_is_judged() {
        let none = Capabilities::parse(b"CapEff:\t0").unwrap();
        let user = Facts { euid: 1000, capabilities: none, ..good() };
        assert_eq!(judge(&user, false), [Refusal::NotRoot]);
        let bare_root = Facts { capabilities: none, ..good() };
        let refusals = judge(&bare_root, false);
        assert!(matches!(refusals[0], Refusal::MissingCapability(c) if c.name == "BPF" && c.vital));
        assert!(refusals.iter().filter(|r| r.is_fatal()).count() == 2 && refusals.len() > 2);

        let no_btf = Facts { btf_bytes: None, ..good() };
        assert_eq!((judge(&no_btf, false), judge(&no_btf, true)), (vec![Refusal::NoBtf], vec![]));
        let locked = Facts { lockdown: Some("confidentiality".into()), ..good() };
        assert_eq!(judge(&locked, false), [Refusal::Lockdown]);
        let contained = Facts { init_pid_namespace: Some(false), ..good() };
        assert_eq!(judge(&contained, false), [Refusal::NotInitPidNamespace]);
        let filtered = Facts { openat2: Some(rustix::io::Errno::NOSYS), ..good() };
        assert_eq!(judge(&filtered, false), [Refusal::CallDenied { call: "openat2", absent: true }]);
        assert!(!judge(&filtered, false)[0].is_fatal());
        let sysctl = |name: &'static str, value: &str| vec![(name, Some(value.to_owned()))];
        let strict = Facts { sysctls: sysctl("kernel.perf_event_paranoid", "4"), ..good() };
        assert_eq!(judge(&strict, false), [Refusal::Paranoid(4)]);
        let hidden = Facts { sysctls: sysctl("kernel.kptr_restrict", "2"), ..good() };
        assert_eq!(judge(&hidden, false), [Refusal::HiddenKernelSymbols]);
    }

    #[test]
    fn locked_memory_matters_to_old_kernels_only() {
        let old = Facts { release: Release::parse("5.10.0"), memlock_kib: Some(64), ..good() };
        assert_eq!(judge(&old, false), [Refusal::LittleLockedMemory(64)]);
        assert_eq!(judge(&Facts { memlock_kib: Some(64), ..good() }, false), []);
        let older = Facts { release: Release::parse("4.18.0"), ..good() };
        assert!(matches!(judge(&older, false)[..], [Refusal::KernelTooOld { .. }]));
    }
}
