//! Two profilers at once: both jbpf-prof, and one beside perf.

use std::process::Command;

use anyhow::{Context, ensure};

use super::super::folded::Folded;
use super::super::java::{Known, enough, judge, newest, truth};
use super::super::target::Target;
use super::super::{profiler, share};
use super::native::program;
use crate::matrix::ANY_JDK;
use crate::plan::Found;

/// The case.
pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = beside_itself()?;
    beside_perf(&mut found)?;
    Ok(found)
}

fn beside_itself() -> anyhow::Result<Found> {
    let mut target = Target::start(&mut Known::default().command(ANY_JDK)?);
    let before = newest(target.lines()).map(str::to_owned);
    let pid = target.pid().to_string();
    let args = ["-F", "499", "-d", "8", "--per-thread", "-p", &pid];
    let mut all = [Folded::default(), Folded::default()];
    for _ in 0..4 {
        let runs = [profiler::start(profiler::binary(), &args)?, profiler::start(profiler::binary(), &args)?];
        for (all, run) in all.iter_mut().zip(runs) {
            all.add(run.finish()?.folded);
        }
        if all.iter().all(enough) {
            break;
        }
    }
    let after = newest(target.lines()).context("the program has not measured its truth")?;
    let truth = truth(before.as_deref(), after)?;
    let mut found = judge(&all[0], truth).context("the first of two")?;
    let second = judge(&all[1], truth).context("the second of two")?;
    found.figure("second", second.samples as f64);
    Ok(found)
}

fn beside_perf(found: &mut Found) -> anyhow::Result<()> {
    let target = Target::start(&mut program("native"));
    let data = "/tmp/perf.data";
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "499", "-o", data, "--", "sleep", "14"])
        .spawn()
        .context("perf record")?;
    let pid = target.pid().to_string();
    let ours = profiler::record(&["-F", "499", "-d", "12", "-p", &pid])?.folded;
    ensure!(perf.wait()?.success(), "perf record failed beside jbpf-prof");
    let script = Command::new("perf")
        .args(["script", "-i", data, "--pid", &pid, "-F", "ip,sym"])
        .output()
        .context("perf script")?;
    let text = String::from_utf8_lossy(&script.stdout);
    let symbols: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let own = symbols.iter().filter(|symbol| **symbol == "burn40").count();
    let n = symbols.len() as u64;
    share::check("burn40, by jbpf-prof", ours.self_share("burn40"), 0.4, ours.total())?;
    share::check("burn40, by perf", own as f64 / n as f64, 0.4, n)?;
    found.samples += ours.total();
    found.figure("perf", n as f64);
    Ok(())
}
