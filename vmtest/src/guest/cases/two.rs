//! Two profilers at the same time: two of jbpf-prof, and jbpf-prof beside perf.

use std::process::Command;

use anyhow::{Context, ensure};
use testkit::claims::Tally;

use super::super::folded::{Folded, is, user_leaf};
use super::super::java::{self, Known, Truth, described};
use super::super::profiler::{self, RATE};
use super::super::program::native;
use super::super::share::{self, counted, of_copies, of_stacks};
use super::super::target::Target;
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
    let mut truth = Truth::default();
    share::prove(share::SHARES, |seconds| {
        let seconds = seconds.to_string();
        let args = ["-F", RATE, "-d", &seconds, "--per-thread", "-p", &pid];
        let runs = [profiler::start(profiler::binary(), &args)?, profiler::start(profiler::binary(), &args)?];
        for (all, run) in all.iter_mut().zip(runs) {
            let got = run.finish()?;
            described(&got.report)?;
            all.add(got.folded);
        }
        truth = Truth::read(&target.lines()[before..])?;
        let mut claims = Vec::new();
        for (all, which) in all.iter().zip(["the first of two", "the second of two"]) {
            claims.extend(java::shares(all, &truth).into_iter().map(|claim| claim.of(which)));
        }
        Ok(claims)
    })?;
    let mut found = java::found(&all[0], &truth);
    found.figure("second", java::samples(&all[1]) as f64);
    Ok(found)
}

fn beside_perf(found: &mut Found) -> anyhow::Result<()> {
    let target = Target::start(&mut native("native"));
    let pid = target.pid().to_string();
    let mut ours = Folded::default();
    let mut perf = Tally::default();
    share::prove(share::SHARES, |seconds| {
        let (folded, symbols) = both(&pid, seconds)?;
        ours.add(folded);
        perf.samples += symbols.len() as u64;
        perf.hits += symbols.iter().filter(|symbol| *symbol == "burn40").count() as u64;
        let is_own = |stack: &[String]| user_leaf(stack).is_some_and(|frame| is(frame, "burn40"));
        Ok(vec![
            of_stacks(of_copies(0.4), "burn40, by jbpf-prof", &ours, is_own),
            counted(of_copies(0.4), "burn40, by perf", perf),
        ])
    })?;
    found.samples += ours.total();
    found.figure("perf", perf.samples as f64);
    Ok(())
}

/// A profile beside perf's, and the symbol of each of perf's samples. Only user mode: perf shows an interrupt as a
/// symbol, while jbpf-prof attributes it to the interrupted function.
fn both(pid: &str, seconds: u64) -> anyhow::Result<(Folded, Vec<String>)> {
    let data = "/tmp/perf.data";
    // jbpf-prof needs time to start, and perf must run all the time.
    let longer = (seconds + 2).to_string();
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock:u", "-F", RATE, "-o", data, "--", "sleep", &longer])
        .spawn()
        .context("perf record")?;
    let ours = profiler::sample(seconds, &["-p", pid])?.folded;
    ensure!(perf.wait()?.success(), "perf record failed beside jbpf-prof");
    let script = Command::new("perf")
        .args(["script", "-i", data, "--pid", pid, "-F", "ip,sym"])
        .output()
        .context("perf script")?;
    let text = String::from_utf8_lossy(&script.stdout);
    Ok((ours, text.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()))
}
