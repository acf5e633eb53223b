//! A Java program of known truth: shares, inlined chains, depth, ways to the root; attached late and from the start.

use anyhow::{Context, ensure};

use super::super::folded::Folded;
use super::super::java::{Known, enough, judge, newest, truth};
use super::super::profiler;
use super::super::target::Target;
use crate::plan::Found;

/// How often a profile is taken until there are samples enough: a busy host gives a guest few.
const TRIES: u32 = 4;
/// A second and CPU; the issue's own.
const RATE: &str = "499";

/// The agent comes when everything is compiled.
pub(in super::super) fn attached(jdk: u32) -> anyhow::Result<Found> {
    let mut target = Target::start(&mut Known::default().command(jdk)?);
    let pid = target.pid().to_string();
    let before = newest(target.lines()).map(str::to_owned);
    let mut all = Folded::default();
    let mut attach_ms = 0;
    for nr in 0..TRIES {
        let got = profiler::record(&["-F", RATE, "-d", "8", "--per-thread", "-p", &pid])?;
        let jvm = &got.report["jvms"][0];
        ensure!(jvm["names"]["agent_late"].is_object(), "the names of the JVM come from {}", jvm["names"]);
        ensure!(jvm["frame_pointers"] == true, "the JVM's flags were not read: {jvm}");
        if nr == 0 {
            attach_ms = jvm["names"]["agent_late"]["ms"].as_u64().unwrap_or_default();
        }
        all.add(got.folded);
        if enough(&all) {
            break;
        }
    }
    let after = newest(target.lines()).context("the program has not measured its truth")?;
    let mut found = judge(&all, truth(before.as_deref(), after)?)?;
    found.figure("attach_ms", attach_ms as f64);
    Ok(found)
}

/// The agent is there from the start, and so is the profiler.
pub(in super::super) fn from_the_start(jdk: u32) -> anyhow::Result<Found> {
    let mut line = Known::with_agent().line(jdk)?;
    // The program ends by itself after so much CPU time, and the run with it.
    line.push("8".to_owned());
    let mut all = Folded::default();
    // Each run has code of its own, and a truth: one that is short of samples is left.
    let mut last = None;
    for _ in 0..TRIES {
        let mut args = vec!["-F", RATE, "--per-thread", "--"];
        args.extend(line.iter().map(String::as_str));
        let got = profiler::record(&args)?;
        let jvm = &got.report["jvms"][0];
        ensure!(jvm["names"] == "agent_at_start", "the names of the JVM come from {}", jvm["names"]);
        all = got.folded;
        let lines: Vec<String> = got.stdout.lines().map(str::to_owned).collect();
        last = newest(&lines).map(str::to_owned);
        if enough(&all) {
            break;
        }
    }
    judge(&all, truth(None, &last.context("the program has not measured its truth")?)?)
}
