//! A Java program of known truth: shares, inlined chains, depth, whole stacks; with a late attach and with
//! `-agentpath`.

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::java::{self, Known, Truth, described};
use super::super::profiler::{self, RATE};
use super::super::share;
use super::super::target::Target;
use crate::plan::Found;

/// Attaches when all code is compiled.
pub(in super::super) fn attached(jdk: u32) -> anyhow::Result<Found> {
    let mut target = Target::start(&mut Known::default().command(jdk)?);
    let pid = target.pid().to_string();
    let before = target.lines().len();
    let mut all = Folded::default();
    let mut truth = Truth::default();
    let mut attach_ms = 0_u64;
    share::prove(java::SECONDS, |seconds| {
        let got = profiler::sample(seconds, &["--per-thread", "-p", &pid])?;
        let jvm = described(&got.report)?;
        ensure!(jvm["names"]["agent_late"].is_object(), "the names of the JVM come from {}", jvm["names"]);
        attach_ms = attach_ms.max(jvm["names"]["agent_late"]["ms"].as_u64().unwrap_or_default());
        all.add(got.folded);
        truth = Truth::read(&target.lines()[before..])?;
        Ok(java::claims(&all, &truth))
    })?;
    let mut found = java::found(&all, &truth);
    found.figure("attach_ms", attach_ms as f64);
    Ok(found)
}

/// Starts the program with the agent, under the profiler.
pub(in super::super) fn from_the_start(jdk: u32) -> anyhow::Result<Found> {
    let line = Known::with_agent().line(jdk)?;
    let mut all = Folded::default();
    let mut runs = Vec::new();
    // Another profile is of another JVM, whose code and truth are its own.
    share::prove(java::SECONDS, |seconds| {
        let mut args = vec!["-F", RATE, "--per-thread", "--"];
        args.extend(line.iter().map(String::as_str));
        // The program ends after this much CPU time, and the profile with it.
        let limit = seconds.to_string();
        args.push(&limit);
        let got = profiler::record(&args)?;
        let jvm = &got.report["jvms"][0];
        ensure!(jvm["names"] == "agent_at_start", "the names of the JVM come from {}", jvm["names"]);
        described(&got.report)?;
        let lines: Vec<String> = got.stdout.lines().map(str::to_owned).collect();
        runs.push((Truth::read(&lines)?, java::samples(&got.folded)));
        all.add(got.folded);
        Ok(java::claims(&all, &Truth::of_runs(&runs)))
    })?;
    Ok(java::found(&all, &Truth::of_runs(&runs)))
}
