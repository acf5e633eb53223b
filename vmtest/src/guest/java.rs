//! Java programs of `tests/programs` on the JDKs of the guest.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;

use super::folded::{Folded, bare, is, reaches_root};
use super::program::leisurely;
use super::share;
use crate::arch::Arch;
use crate::plan::{Found, PAYLOAD};

/// The launcher of a JDK.
fn java(jdk: u32) -> anyhow::Result<String> {
    let java = format!("/usr/lib/jvm/java-{jdk}-openjdk-{}/bin/java", Arch::OWN);
    ensure!(Path::new(&java).exists(), "this guest has no JDK {jdk}");
    Ok(java)
}

/// `Chains`, of which nothing is ever compiled.
pub(super) fn interpreted(jdk: u32) -> anyhow::Result<Command> {
    let mut command = leisurely(java(jdk)?);
    command.args(["-Xint", "-Xmx256m", "-cp", &format!("{PAYLOAD}/classes"), "Chains"]);
    Ok(command)
}

/// What the report says of the one JVM that was profiled, which must have been as users start theirs: with no frame
/// pointers in compiled code, and walked by its own description of that.
pub(super) fn described(report: &Value) -> anyhow::Result<&Value> {
    let jvm = &report["jvms"][0];
    ensure!(jvm["frame_pointers"] == false, "the JVM has frame pointers, or its flags were not read: {jvm}");
    ensure!(jvm["undescribed"].is_null(), "the JVM was walked by frame pointers alone: {jvm}");
    Ok(jvm)
}

/// `Known`, which holds several known truths: see its source.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    flags: Vec<String>,
}

/// The depth of the recursion of `Known`'s second thread.
const DEPTH: usize = 1_000;

impl Known {
    /// With the agent from the start.
    pub(super) fn with_agent() -> Known {
        let agent = format!("-agentpath:{PAYLOAD}/libjvm_symbols_agent.so");
        Known { flags: vec![agent] }
    }

    /// The command that runs it.
    pub(super) fn line(&self, jdk: u32) -> anyhow::Result<Vec<String>> {
        let mut line = vec![java(jdk)?];
        line.extend(self.flags.iter().cloned());
        line.extend(
            [
                "-XX:CompileCommand=quiet",
                "-Xms64m",
                "-Xmx256m",
                "-Xss8m",
                "-XX:+UnlockDiagnosticVMOptions",
                "-XX:+DebugNonSafepoints",
                // What is to be compiled is so before the program goes on.
                "-Xbatch",
                "-XX:CompileCommand=dontinline,Known::round",
                "-XX:CompileCommand=dontinline,Deep::*",
            ]
            .map(str::to_owned),
        );
        line.extend(
            ["InlinedShares::burn*", "InlinedShares::twice", "InlinedShares::inner", "InlinedShares::other"]
                .into_iter()
                .chain(["Known::third", "Known::fourth", "Known::took"])
                .map(|method| format!("-XX:CompileCommand=inline,{method}")),
        );
        line.extend(["-cp".to_owned(), format!("{PAYLOAD}/classes"), "Known".to_owned(), DEPTH.to_string()]);
        Ok(line)
    }

    /// The same as a command to start.
    pub(super) fn command(&self, jdk: u32) -> anyhow::Result<Command> {
        let line = self.line(jdk)?;
        let mut command = leisurely(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }
}

/// The stacks of the threads of this name; profiled with `--per-thread`.
fn thread(all: &Folded, name: &str) -> Folded {
    let frame = format!("[{name} tid=");
    all.keep(|stack| stack.get(1).is_some_and(|thread| thread.starts_with(&frame)))
}

/// What part of the samples a profile of `Known` has that it takes to be judged: 1 is enough.
pub(super) fn part(all: &Folded) -> f64 {
    // Of the recursion a tenth will do: nothing of it is a share.
    share::part(round(all).total()).min(share::part(leaf(all).total()) * 10.0)
}

/// All but the looks at the clock.
fn round(all: &Folded) -> Folded {
    let looks = |stack: &[String]| stack.iter().any(|frame| frame.contains("clock_gettime"));
    thread(all, "shares").within("Known.round").keep(|stack| !looks(stack))
}

fn leaf(all: &Folded) -> Folded {
    thread(all, "deep").within("Deep.leaf")
}

/// Between what shares the true ones are, by what `Known` measured and printed meanwhile.
pub(super) fn truth(lines: &[String]) -> anyhow::Result<[RangeInclusive<f64>; 4]> {
    let read = |line: &str| line.split(' ').map(|n| Ok(n.parse()?)).collect::<anyhow::Result<Vec<u64>>>();
    let rows = lines.iter().filter_map(|line| line.strip_prefix("truth "));
    let rows = rows.map(read).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(rows.len() >= 3 && rows.iter().all(|row| row.len() == 8), "too little of the truth: {rows:?}");
    let shares = |first: usize| {
        let took = [0, 1, 2, 3].map(|part| rows.iter().map(|row| row[first + part]).sum::<u64>() as f64);
        took.map(|part| part / took.iter().sum::<f64>().max(1.0))
    };
    let (all, fast) = (shares(0), shares(4));
    Ok([0, 1, 2, 3].map(|part| all[part].min(fast[part])..=all[part].max(fast[part])))
}

/// Holds a profile of `Known` to its truth.
pub(super) fn judge(all: &Folded, truth: &[RangeInclusive<f64>; 4]) -> anyhow::Result<Found> {
    let round = round(all);
    let chains: [&[&str]; 4] = [
        &["InlinedShares.burn10"],
        &["InlinedShares.twice", "InlinedShares.burn20"],
        &["Known.third", "InlinedShares.inner", "InlinedShares.burn30"],
        &["Known.fourth", "InlinedShares.other", "InlinedShares.burn40"],
    ];
    for (chain, truth) in chains.into_iter().zip(truth) {
        let got = round.share(|stack| is_chain(stack, chain));
        let nearest = got.clamp(*truth.start(), *truth.end());
        share::check(&chain.join(" > "), got, nearest, round.total())
            .map_err(|error| error.context(round.top(12)))?;
    }
    let deep = leaf(all);
    ensure!(deep.total() > 0, "no sample of the recursion");
    let whole = deep.share(is_whole);
    ensure!(
        whole > 0.99,
        "only {whole} of {} stacks of the recursion are whole:\n{}",
        deep.total(),
        short(&deep)
    );
    let java =
        all.keep(|stack| stack.iter().any(|frame| ["_[j]", "_[i]"].iter().any(|kind| frame.ends_with(kind))));
    let rooted = java.share(reaches_root);
    // Without frame pointers a slow guest samples some stacks before it has the tables of libjvm.so.
    ensure!(rooted > 0.98, "only {rooted} of the Java samples reach the root:\n{}", java.top(12));
    let mut found = Found { samples: round.total(), ..Found::default() };
    found.figure("burn40", rounded(*truth[3].start()));
    found.figure("burn40_wide", rounded(truth[3].end() - truth[3].start()));
    found.figure("to_root", rounded(rooted));
    found.figure("deep", deep.total() as f64);
    found.figure("deep_whole", rounded(whole));
    Ok(found)
}

/// Whether the whole recursion is there. Its first call is interpreted now and then, and has no name if the JVM ended in
/// that second.
fn is_whole(stack: &[String]) -> bool {
    let nameless = stack.iter().any(|frame| frame == "Interpreter_[0]");
    let calls = recursions(stack);
    (calls == DEPTH || (nameless && calls + 1 == DEPTH)) && reaches_root(stack)
}

fn recursions(stack: &[String]) -> usize {
    stack.iter().filter(|frame| is(frame, "Deep.down")).count()
}

/// Stacks of the recursion that are not whole, without most of it.
fn short(deep: &Folded) -> String {
    let bad = deep.stacks().filter(|(stack, _)| !is_whole(stack));
    let told = bad.map(|(stack, n)| {
        let mut frames = stack.to_vec();
        frames.dedup();
        format!("{n} with {} calls: {}\n", recursions(stack), frames.join(";"))
    });
    told.collect()
}

/// Whether exactly this chain of inlined methods stands on the compiled method `round`.
fn is_chain(stack: &[String], chain: &[&str]) -> bool {
    let own =
        |frame: &&String| ["InlinedShares.", "Known."].iter().any(|class| bare(frame).starts_with(class));
    let java: Vec<&String> = stack.iter().filter(own).collect();
    let Some(round) = java.iter().position(|frame| *frame == "Known.round_[j]") else { return false };
    let wanted = chain.iter().map(|method| format!("{method}_[i]"));
    java[round + 1..].iter().map(|frame| frame.as_str()).eq(wanted)
}

/// A share with four digits.
pub(super) fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}
