//! Two profilers at the same time: two of jbpf-prof, and jbpf-prof beside perf.

use std::process::Command;

use anyhow::{Context, ensure};

use super::super::folded::Folded;
use super::super::java::{Known, described, judge, part, truth};
use super::super::program::native;
use super::super::share::Effort;
use super::super::target::Target;
use super::super::{profiler, share};
use crate::matrix::ANY_JDK;
use crate::plan::Found;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = beside_itself()?;
    beside_perf(&mut found)?;
    Ok(found)
}

fn beside_itself() -> anyhow::Result<Found> {
    let mut target = Target::start(&mut Known::default().command(ANY_JDK)?);
    let before = target.lines().len();
    let pid = target.pid().to_string();
    let mut all = [Folded::default(), Folded::default()];
    let mut effort = Effort::first();
    loop {
        let seconds = effort.seconds().to_string();
        let args = ["-F", "499", "-d", &seconds, "--per-thread", "-p", &pid];
        let runs = [profiler::start(profiler::binary(), &args)?, profiler::start(profiler::binary(), &args)?];
        for (all, run) in all.iter_mut().zip(runs) {
            let got = run.finish()?;
            described(&got.report)?;
            all.add(got.folded);
        }
        if !effort.needs_more(all.iter().map(part).fold(1.0, f64::min)) {
            break;
        }
    }
    let truth = truth(&target.lines()[before..])?;
    let mut found = judge(&all[0], &truth).context("the first of two")?;
    let second = judge(&all[1], &truth).context("the second of two")?;
    found.figure("second", second.samples as f64);
    Ok(found)
}

fn beside_perf(found: &mut Found) -> anyhow::Result<()> {
    let target = Target::start(&mut native("native"));
    let pid = target.pid().to_string();
    let mut effort = Effort::first();
    loop {
        let (ours, perf) = both(&pid, effort.sum())?;
        let n = perf.len() as u64;
        if effort.needs_more(share::part(n.min(ours.total()))) {
            continue;
        }
        let own = perf.iter().filter(|symbol| *symbol == "burn40").count();
        share::check("burn40, by jbpf-prof", ours.self_share("burn40"), 0.4, ours.total())?;
        share::check("burn40, by perf", own as f64 / n as f64, 0.4, n)?;
        found.samples += ours.total();
        found.figure("perf", n as f64);
        return Ok(());
    }
}

/// A profile beside perf's, and the symbol of each of perf's samples. Only user mode: perf shows an interrupt as a
/// symbol, while jbpf-prof attributes it to the interrupted function.
fn both(pid: &str, seconds: u64) -> anyhow::Result<(Folded, Vec<String>)> {
    let data = "/tmp/perf.data";
    // jbpf-prof needs time to start, and perf must run all the time.
    let longer = (seconds + 2).to_string();
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock:u", "-F", "499", "-o", data, "--", "sleep", &longer])
        .spawn()
        .context("perf record")?;
    let ours = profiler::record(&["-F", "499", "-d", &seconds.to_string(), "-p", pid])?.folded;
    ensure!(perf.wait()?.success(), "perf record failed beside jbpf-prof");
    let script = Command::new("perf")
        .args(["script", "-i", data, "--pid", pid, "-F", "ip,sym"])
        .output()
        .context("perf script")?;
    let text = String::from_utf8_lossy(&script.stdout);
    Ok((ours, text.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()))
}
