//! Restrictions of a host: each gives its documented error and exit code, or degrades the profile only as the manual
//! says.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::super::folded::{Folded, is};
use super::super::profiler::{self, Profile, RATE};
use super::super::program::native;
use super::super::share::{self, at_least, seen};
use super::super::target::Target;
use crate::plan::{Found, PAYLOAD};

/// The samples that each run that is not refused must have.
const MIN_SAMPLES: u64 = 100;

/// The lockdown comes last, because only a reboot undoes it.
pub(in super::super) fn run() -> anyhow::Result<Found> {
    let target = Target::start(&mut native("kernel"));
    let host = Host { pid: target.pid().to_string() };
    let mut found = Found::default();
    host.no_root().context("without root")?;
    host.no_btf().context("without BTF")?;
    host.no_capability().context("without CAP_BPF and CAP_SYS_ADMIN")?;
    for samples in [
        host.no_syslog().context("without CAP_SYSLOG")?,
        host.hidden_symbols().context("with kernel.kptr_restrict=2")?,
        host.paranoid().context("with kernel.perf_event_paranoid=3")?,
        host.little_memory().context("with RLIMIT_MEMLOCK of 64 KiB")?,
        host.few_samples().context("with kernel.perf_event_max_sample_rate=199")?,
        host.held_back().context("with kernel.perf_event_max_sample_rate lowered to 100")?,
    ] {
        found.samples += samples;
    }
    host.lockdown().context("with lockdown=confidentiality")?;
    Ok(found)
}

struct Host {
    pid: String,
}

impl Host {
    fn args<'a>(&'a self, seconds: &'a str) -> [&'a str; 6] {
        ["-F", RATE, "-d", seconds, "-p", &self.pid]
    }

    /// Takes profiles until they have enough samples, with the program's own names, and returns the number of samples.
    /// `is_right` judges each profile.
    fn proved(
        &self,
        command: impl Fn() -> Command,
        is_right: impl Fn(&Profile) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let mut all = Folded::default();
        share::prove(1, |seconds| {
            let profile = profiler::recorded_by(command(), &self.args(&seconds.to_string()))?;
            is_right(&profile)?;
            all.add(profile.folded);
            let is_of_program = |stack: &[String]| stack.iter().any(|frame| is(frame, "main"));
            Ok(vec![
                seen(MIN_SAMPLES, "samples", &all, |_| true),
                at_least(0.5, "the program's own names", &all, is_of_program),
            ])
        })?;
        Ok(all.total())
    }

    fn refused(&self, mut command: Command, words: &str) -> anyhow::Result<()> {
        profiler::refused(command.args(self.args("2")).args(["-o", "/tmp/none.folded"]), 3, words)
    }

    fn no_root(&self) -> anyhow::Result<()> {
        self.refused(by("setpriv", &["--reuid=65534", "--regid=65534", "--clear-groups"]), "this needs root")
    }

    fn no_btf(&self) -> anyhow::Result<()> {
        let place = "/sys/kernel/btf";
        mount("none", place, "tmpfs", MountFlags::empty(), None).context("hiding BTF")?;
        let result = self.refused(profiler::binary(), "this kernel has no BTF");
        unmount(place, UnmountFlags::empty()).context("showing BTF")?;
        result
    }

    fn no_capability(&self) -> anyhow::Result<()> {
        self.refused(without("-bpf,-sys_admin"), "CAP_BPF is missing")
    }

    /// Only kernel frames have no names.
    fn no_syslog(&self) -> anyhow::Result<u64> {
        self.proved(|| without("-syslog"), |profile| nameless_kernel(profile, "CAP_SYSLOG is missing"))
    }

    fn hidden_symbols(&self) -> anyhow::Result<u64> {
        let _restore = Sysctl::set("kernel/kptr_restrict", "2")?;
        self.proved(profiler::binary, |profile| nameless_kernel(profile, "kernel.kptr_restrict is 2"))
    }

    fn paranoid(&self) -> anyhow::Result<u64> {
        let _restore = Sysctl::set("kernel/perf_event_paranoid", "3")?;
        self.proved(profiler::binary, |profile| said(profile, "kernel.perf_event_paranoid is 3"))
    }

    /// Before 5.11 BPF maps count as locked memory, and only CAP_SYS_RESOURCE may raise its limit.
    fn little_memory(&self) -> anyhow::Result<u64> {
        let limited = || {
            let drop =
                ["--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "prlimit", "--memlock=65536"];
            by("setpriv", &drop)
        };
        if maps_are_locked()? {
            self.refused(limited(), "of memory may be locked")?;
            return Ok(0);
        }
        self.proved(limited, |_| Ok(()))
    }

    /// `-F` is higher than the host allows.
    fn few_samples(&self) -> anyhow::Result<u64> {
        let _restore = Sysctl::set("kernel/perf_event_max_sample_rate", "199")?;
        self.proved(profiler::binary, |profile| {
            said(profile, "--frequency 499: this host allows 199 samples a second")?;
            let rates =
                ["requested_hz", "effective_hz"].map(|name| profile.report[name].as_f64().map(f64::round));
            ensure!(rates == [Some(499.0), Some(199.0)], "{rates:?}");
            Ok(())
        })
    }

    /// The limit is lowered after the profiler has read it, and the kernel throttles the clock again and again. The
    /// lost time must show as missed samples.
    fn held_back(&self) -> anyhow::Result<u64> {
        let profiler = profiler::start(profiler::binary(), &self.args("3"))?;
        profiler.wait_until_it_samples()?;
        let _restore = Sysctl::set("kernel/perf_event_max_sample_rate", "100")?;
        let profile = profiler.finish()?;
        let of = |name: &str| profile.report["accounts"][name].as_f64().unwrap_or_default();
        let (expected, missed) = (of("expected"), of("missed"));
        let seconds = profile.report["duration_s"].as_f64().unwrap_or_default();
        let owed = 499.0 * seconds * profile.report["cpus"].as_f64().unwrap_or_default();
        ensure!(expected > 0.9 * owed, "{expected} expected, {owed} owed");
        ensure!(missed > 0.2 * owed, "only {missed} of {owed} missed: this case did not test");
        Ok(profile.folded.total())
    }

    fn lockdown(&self) -> anyhow::Result<()> {
        fs::write("/sys/kernel/security/lockdown", "confidentiality").context("locking the kernel down")?;
        self.refused(profiler::binary(), "kernel lockdown is in confidentiality mode")
    }
}

/// A tool that starts jbpf-prof.
fn by(tool: &str, args: &[&str]) -> Command {
    let mut command = Command::new(tool);
    command.args(args).arg(format!("{PAYLOAD}/jbpf-prof"));
    command
}

/// Runs jbpf-prof as root without these capabilities.
fn without(capabilities: &str) -> Command {
    let (bounding, inheritable) =
        (format!("--bounding-set={capabilities}"), format!("--inh-caps={capabilities}"));
    by("setpriv", &[&bounding, &inheritable])
}

fn said(profile: &Profile, words: &str) -> anyhow::Result<()> {
    ensure!(profile.stderr.contains(words), "it did not say {words:?}: {}", profile.stderr);
    Ok(())
}

fn nameless_kernel(profile: &Profile, words: &str) -> anyhow::Result<()> {
    said(profile, words)?;
    let folded = &profile.folded;
    let nameless = folded.count(|stack| stack.iter().any(|frame| frame.contains("[kernel]")));
    ensure!(nameless > 0, "no frame is [kernel]:\n{}", folded.top(5));
    let named = folded.count(|stack| stack.iter().any(|f| f.ends_with("_[k]") && f.contains("read")));
    ensure!(named == 0, "kernel symbols are hidden, and yet named:\n{}", folded.top(5));
    Ok(())
}

fn maps_are_locked() -> anyhow::Result<bool> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or_default());
    let version = numbers.next().zip(numbers.next()).context("the kernel's release")?;
    Ok(version < (5, 11))
}

/// Sets a sysctl, and restores its old value on drop.
struct Sysctl {
    path: String,
    before: String,
}

impl Sysctl {
    fn set(name: &str, value: &str) -> anyhow::Result<Sysctl> {
        let path = format!("/proc/sys/{name}");
        let before = fs::read_to_string(&path).with_context(|| path.clone())?.trim().to_owned();
        fs::write(&path, value).with_context(|| path.clone())?;
        Ok(Sysctl { path, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, &self.before);
    }
}
