//! A Java program of known truth: shares, inlined chains, depth, whole stacks; with a late attach and with
//! `-agentpath`.

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::java::{Known, described, judge, part, truth};
use super::super::profiler;
use super::super::share::Effort;
use super::super::target::Target;
use crate::plan::Found;

/// Samples a second on each CPU.
const RATE: &str = "499";

/// Attaches when all code is compiled.
pub(in super::super) fn attached(jdk: u32) -> anyhow::Result<Found> {
    let mut target = Target::start(&mut Known::default().command(jdk)?);
    let pid = target.pid().to_string();
    let before = target.lines().len();
    let mut all = Folded::default();
    let mut attach_ms = 0;
    let mut effort = Effort::first();
    loop {
        let seconds = effort.seconds().to_string();
        let got = profiler::record(&["-F", RATE, "-d", &seconds, "--per-thread", "-p", &pid])?;
        let jvm = described(&got.report)?;
        ensure!(jvm["names"]["agent_late"].is_object(), "the names of the JVM come from {}", jvm["names"]);
        attach_ms = attach_ms.max(jvm["names"]["agent_late"]["ms"].as_u64().unwrap_or_default());
        all.add(got.folded);
        if !effort.needs_more(part(&all)) {
            break;
        }
    }
    let mut found = judge(&all, &truth(&target.lines()[before..])?)?;
    found.figure("attach_ms", attach_ms as f64);
    Ok(found)
}

/// Starts the program with the agent, under the profiler.
pub(in super::super) fn from_the_start(jdk: u32) -> anyhow::Result<Found> {
    let line = Known::with_agent().line(jdk)?;
    // Each run has its own code and its own truth, so that a run with too few samples is discarded.
    let mut effort = Effort::first();
    loop {
        let mut args = vec!["-F", RATE, "--per-thread", "--"];
        args.extend(line.iter().map(String::as_str));
        // The program ends after this much CPU time, and the profile with it.
        let limit = effort.sum().to_string();
        args.push(&limit);
        let got = profiler::record(&args)?;
        let jvm = &got.report["jvms"][0];
        ensure!(jvm["names"] == "agent_at_start", "the names of the JVM come from {}", jvm["names"]);
        described(&got.report)?;
        if !effort.needs_more(part(&got.folded)) {
            let lines: Vec<String> = got.stdout.lines().map(str::to_owned).collect();
            return judge(&got.folded, &truth(&lines)?);
        }
    }
}
