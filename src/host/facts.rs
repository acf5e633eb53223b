//! Facts about a host that decide what can be profiled there.

use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::capability::Capabilities;
use super::refusal::KernelRelease;
use crate::process::procfs;

/// Sysctls that affect profiling.
const SYSCTLS: [&str; 6] = [
    "kernel.perf_event_paranoid",
    "kernel.perf_event_max_sample_rate",
    "kernel.perf_cpu_time_max_percent",
    "kernel.kptr_restrict",
    "kernel.unprivileged_bpf_disabled",
    "kernel.bpf_stats_enabled",
];
/// Inode of the initial pid namespace (`PROC_PID_INIT_INO` in linux/proc_ns.h, all versions).
const INIT_PID_NAMESPACE: u64 = 0xeffffffc;

/// Facts about this host. A fact that cannot be read is `None` or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The kernel's release and version in full.
    pub kernel: String,
    /// Major and minor number of the kernel's release.
    pub release: Option<KernelRelease>,
    /// The machine, for example `x86_64`.
    pub machine: String,
    /// Name of the distribution, from os-release.
    pub system: Option<String>,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Effective user id of this process; 0 is root.
    pub euid: u32,
    /// Effective capabilities of this process; an empty set if `/proc` cannot be read.
    pub capabilities: Capabilities,
    /// Size of the kernel's BTF in bytes, if the kernel has BTF.
    pub btf_bytes: Option<u64>,
    /// Active mode of kernel lockdown, for example `integrity`.
    pub lockdown: Option<String>,
    /// The error of `openat2`, if it cannot even open `/`.
    pub openat2: Option<Errno>,
    /// Whether this process is in the host's (initial) pid namespace.
    pub init_pid_namespace: Option<bool>,
    /// Sysctls by name, with their values.
    pub sysctls: Vec<(&'static str, Option<String>)>,
    /// Limit on locked memory in KiB; `None` if there is no limit.
    pub memlock_kib: Option<u64>,
    /// Mounted cgroup hierarchies: the mount point, then `v2`, or `v1` with its controllers.
    pub cgroups: Vec<(String, String)>,
}

impl Default for HostFacts {
    fn default() -> HostFacts {
        HostFacts {
            kernel: String::new(),
            release: None,
            machine: String::new(),
            system: None,
            cpus: 0,
            euid: 0,
            capabilities: Capabilities::parse(b"CapEff:\t0").unwrap_or_else(Capabilities::own),
            btf_bytes: None,
            lockdown: None,
            openat2: None,
            init_pid_namespace: None,
            sysctls: Vec::new(),
            memlock_kib: None,
            cgroups: Vec::new(),
        }
    }
}

impl KernelRelease {
    /// The version of the running kernel; `None` if its text has no version.
    #[must_use]
    pub fn running() -> Option<KernelRelease> {
        KernelRelease::parse(&rustix::system::uname().release().to_string_lossy())
    }
}

impl HostFacts {
    /// Collects the facts about this host.
    #[must_use]
    pub fn gather() -> HostFacts {
        let uname = rustix::system::uname();
        let kernel = uname.release().to_string_lossy().into_owned();
        let namespace = std::fs::metadata("/proc/self/ns/pid");
        HostFacts {
            release: KernelRelease::parse(&kernel),
            kernel: format!("{kernel} {}", uname.version().to_string_lossy()),
            machine: uname.machine().to_string_lossy().into_owned(),
            system: text("/etc/os-release").as_deref().and_then(pretty_name),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            euid: geteuid().as_raw(),
            capabilities: Capabilities::own(),
            btf_bytes: std::fs::metadata("/sys/kernel/btf/vmlinux").ok().map(|m| m.len()),
            lockdown: text("/sys/kernel/security/lockdown").as_deref().and_then(chosen),
            openat2: openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())
                .err(),
            init_pid_namespace: namespace.ok().map(|m| m.ino() == INIT_PID_NAMESPACE),
            sysctls: SYSCTLS
                .map(|name| (name, text(&format!("/proc/sys/{}", name.replace('.', "/")))))
                .to_vec(),
            memlock_kib: getrlimit(Resource::Memlock).current.map(|bytes| bytes >> 10),
            cgroups: text("/proc/self/mounts").as_deref().map(hierarchies).unwrap_or_default(),
        }
    }

    /// The value of a sysctl, if it is a number.
    #[must_use]
    pub fn number(&self, sysctl: &str) -> Option<i64> {
        let (_, value) = self.sysctls.iter().find(|(name, _)| *name == sysctl)?;
        value.as_deref()?.parse().ok()
    }
}

fn text(path: &str) -> Option<String> {
    procfs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The word in brackets: `integrity` in `none [integrity] confidentiality`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// The mount points and kinds of the cgroup mounts in the text of `/proc/self/mounts`.
fn hierarchies(mounts: &str) -> Vec<(String, String)> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            match kind {
                "cgroup2" => Some((place.to_owned(), "v2".to_owned())),
                "cgroup" => {
                    let generic = ["rw", "ro", "nosuid", "nodev", "noexec", "relatime"];
                    let own = options.split(',').filter(|option| !generic.contains(option));
                    Some((place.to_owned(), format!("v1 {}", own.collect::<Vec<_>>().join(","))))
                }
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{HostFacts, chosen, hierarchies, pretty_name};

    #[test]
    fn texts_are_read() {
        assert_eq!(chosen("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nproc /proc proc rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,cpu,cpuacct 0 0\nshort\n";
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let expected = [pair("/sys/fs/cgroup/unified", "v2"), pair("/sys/fs/cgroup/cpu", "v1 cpu,cpuacct")];
        assert_eq!(hierarchies(mounts), expected);
    }

    #[test]
    fn this_host_says_what_it_is() {
        let facts = HostFacts::gather();
        assert!(facts.release.is_some() && facts.cpus > 0 && !facts.machine.is_empty());
        assert!(facts.init_pid_namespace.is_some() && facts.sysctls.iter().any(|(_, value)| value.is_some()));
    }
}
