//! `jbpf-prof doctor`: reports what this host allows, in a form that users paste into bug reports.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;

use super::explanation;
use crate::capture::window::{Capture, CaptureOptions};
use crate::capture::{Filter, SwitchHook};
use crate::failure::Exit;
use crate::host::{self, CapabilityNeed, HostFacts, HostRefusal, capability};
use crate::sample::{Event, EventPeriod};

/// Duration of the trial, and its period: a few hundred ticks.
const TRIAL: Duration = Duration::from_millis(300);
const TRIAL_PERIOD_NS: u64 = 1_001_001;
const TRIAL_HZ: u64 = 1_000_000_000 / TRIAL_PERIOD_NS;

/// Result of a trial with the real BPF program.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Ticks of the CPU clock.
    pub ticks: u64,
    /// Ticks whose samples were kept.
    pub kept: u64,
}

/// Loads the BPF program and samples everything for 300 ms.
///
/// # Errors
/// If the kernel refuses to load the program or to open an event.
pub fn trial_run() -> anyhow::Result<Trial> {
    let filter = Filter { user: true, kernel: true, include_self: true, ..Filter::default() };
    let mut capture = Capture::prepare(&CaptureOptions {
        events: vec![EventPeriod { event: Event::Cpu, period: TRIAL_PERIOD_NS }],
        functions: BTreeMap::new(),
        filter,
        btf: None,
    })?;
    capture.start()?;
    std::thread::sleep(TRIAL);
    capture.stop()?;
    let window = capture.take_window(true).context("reading what was sampled")?;
    let of = window.events.first().context("nothing was counted")?;
    Ok(Trial { ticks: of.counters.ticks, kept: of.kept })
}

/// What `doctor` prints, and its exit code.
pub struct DoctorReport {
    /// One fact a line.
    pub text: String,
    /// [`Exit::Done`] if recording works here.
    pub exit: Exit,
}

/// Reports facts, refusals and a trial. `jvms`: a line for each JVM of the host.
#[must_use]
pub fn report(
    facts: &HostFacts,
    refusals: &[HostRefusal],
    trial: &anyhow::Result<Trial>,
    jvms: &[String],
) -> DoctorReport {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name:<36}{value}");
    };
    line("jbpf-prof", env!("CARGO_PKG_VERSION"));
    line("kernel", &facts.kernel);
    line("machine", &format!("{}, {} CPUs", facts.machine, facts.cpus));
    line("system", facts.system.as_deref().unwrap_or("unknown"));
    line(
        "BTF",
        &facts
            .btf_bytes
            .map_or("none".into(), |bytes| format!("/sys/kernel/btf/vmlinux, {} KiB", bytes >> 10)),
    );
    line("lockdown", facts.lockdown.as_deref().unwrap_or("not built in"));
    line("effective user id", &facts.euid.to_string());
    let held = capability::USED.iter().filter(|c| facts.capabilities.have(**c)).map(|c| c.name);
    line("capabilities", &held.collect::<Vec<_>>().join(" "));
    let (optional, missing): (Vec<_>, Vec<_>) =
        facts.capabilities.missing().partition(|c| c.need == CapabilityNeed::Optional);
    for (title, lacking) in [("missing capabilities", missing), ("missing, but optional", optional)] {
        if !lacking.is_empty() {
            line(title, &lacking.iter().map(|c| c.name).collect::<Vec<_>>().join(" "));
        }
    }
    line(
        "pid namespace",
        match facts.init_pid_namespace {
            Some(true) => "the host's",
            Some(false) => "a container's",
            None => "unknown",
        },
    );
    line("lockable memory", &facts.memlock_kib.map_or("unlimited".into(), |kib| format!("{kib} KiB")));
    let waits = match SwitchHook::find() {
        Ok(SwitchHook::SchedExit) => "the tracepoint sched_exit_tp".to_owned(),
        Ok(SwitchHook::FinishSwitch(function)) => format!("a kprobe on {function}"),
        Err(why) => format!("not possible: {why}"),
    };
    line("waiting time (-e wait)", &waits);
    for (name, value) in &facts.sysctls {
        line(name, value.as_deref().unwrap_or("absent"));
    }
    for (place, kind) in &facts.cgroups {
        line("cgroups", &format!("{kind} at {place}"));
    }
    for jvm in jvms {
        line("JVM", jvm);
    }
    for refusal in refusals {
        let word = if refusal.is_fatal() { "REFUSED" } else { "degraded" };
        line(word, &format!("{refusal}; {} (docs/troubleshooting.md#{})", refusal.hint(), refusal.anchor()));
    }
    let samples = match trial {
        Ok(Trial { ticks, kept }) => {
            let length = TRIAL.as_millis();
            let rate = format!("{TRIAL_HZ} a second on each busy CPU");
            line("trial", &format!("{ticks} ticks in {length} ms ({rate}), {kept} samples"));
            *ticks > 0
        }
        Err(error) => {
            line("trial", &format!("failed: {error:#}"));
            false
        }
    };
    // The trial identifies no process, so it works where a run is refused.
    let works = samples && !refusals.iter().any(HostRefusal::is_fatal);
    line("verdict", if works { "jbpf-prof works here" } else { "jbpf-prof does not work here" });
    DoctorReport { text, exit: if works { Exit::Done } else { Exit::Host } }
}

/// Gathers facts about this host, runs a trial, and reports both.
#[must_use]
pub fn diagnose(jvms: &[String]) -> DoctorReport {
    let facts = HostFacts::gather();
    let trial = trial_run();
    let mut refusals = host::refusals_of(&facts, false);
    let found = trial.as_ref().err().and_then(|error| explanation::reason(error, &refusals));
    // A missing right explains why the trial failed.
    if !refusals.iter().any(HostRefusal::is_fatal) {
        refusals.extend(found.filter(|found| !refusals.contains(found)));
    }
    report(&facts, &refusals, &trial, jvms)
}

#[cfg(test)]
mod tests {
    use super::{DoctorReport, Exit, HostFacts, HostRefusal, Trial, report};

    #[test]
    fn a_bug_report_has_one_fact_a_line() {
        let facts = HostFacts {
            kernel: "6.1.0 #1".into(),
            cgroups: vec![("/x".into(), "v2".into())],
            ..HostFacts::default()
        };
        let trial = Ok(Trial { ticks: 600, kept: 590 });
        let DoctorReport { text, exit } =
            report(&facts, &[HostRefusal::HiddenKernelSymbols], &trial, &["pid 7".into()]);
        assert_eq!(exit, Exit::Done);
        for (name, value) in [
            ("kernel", "6.1.0 #1"),
            ("BTF", "none"),
            ("cgroups", "v2 at /x"),
            ("JVM", "pid 7"),
            ("degraded", "kernel.kptr_restrict is 2"),
            ("trial", "600 ticks in 300 ms (999 a second on each busy CPU), 590 samples"),
            ("verdict", "jbpf-prof works here"),
        ] {
            let lines = text.lines().filter(|l| l.starts_with(&format!("{name} "))).collect::<Vec<_>>();
            assert!(lines.iter().any(|l| l[36..].starts_with(value)), "{name}: {text}");
        }
    }

    #[test]
    fn a_host_that_cannot_has_its_exit_code() {
        let trial = Err(anyhow::anyhow!("EPERM").context("loading the BPF program"));
        let DoctorReport { text, exit } = report(&HostFacts::default(), &[HostRefusal::NotRoot], &trial, &[]);
        assert_eq!(exit, Exit::Host);
        assert!(text.contains("REFUSED") && text.contains("loading the BPF program: EPERM"), "{text}");
        let works = Ok(Trial { ticks: 600, kept: 590 });
        let DoctorReport { text, exit } =
            report(&HostFacts::default(), &[HostRefusal::NotInitPidNamespace], &works, &[]);
        assert_eq!(exit, Exit::Host);
        assert!(text.ends_with("jbpf-prof does not work here\n"), "{text}");
        let silent = Ok(Trial { ticks: 0, kept: 0 });
        assert_eq!(report(&HostFacts::default(), &[], &silent, &[]).exit, Exit::Host);
    }
}
