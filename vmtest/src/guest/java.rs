//! Java programs of `tests/programs` on the guest's JDKs.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;
use testkit::claims::Tally;

use super::folded::{Folded, bare, is, reaches_root};
use super::program::leisurely;
use super::share::{Right, ShareClaim, at_least, between, counted};
use crate::arch::Arch;
use crate::plan::{Found, PAYLOAD};

/// The launcher of a JDK.
fn java(jdk: u32) -> anyhow::Result<String> {
    let java = format!("/usr/lib/jvm/java-{jdk}-openjdk-{}/bin/java", Arch::OWN);
    ensure!(Path::new(&java).exists(), "this guest has no JDK {jdk}");
    Ok(java)
}

/// The program `Chains`, run with `-Xint`.
pub(super) fn interpreted(jdk: u32) -> anyhow::Result<Command> {
    program(jdk, &["-Xint"], "Chains")
}

/// The program `Hashes`, whose methods are not inlined.
pub(super) fn hashes(jdk: u32) -> anyhow::Result<Command> {
    program(jdk, &["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Hashes::*"], "Hashes")
}

/// The program `Locks`.
pub(super) fn locks(jdk: u32) -> anyhow::Result<Command> {
    program(jdk, &[], "Locks")
}

fn program(jdk: u32, flags: &[&str], class: &str) -> anyhow::Result<Command> {
    let mut command = leisurely(java(jdk)?);
    command.args(flags).args(["-Xmx256m", "-cp", &format!("{PAYLOAD}/classes"), class]);
    Ok(command)
}

/// The report's row of the one profiled JVM. The JVM must have default flags, so no frame pointers in compiled code,
/// and the unwinder must use its VMStructs.
pub(super) fn described(report: &Value) -> anyhow::Result<&Value> {
    let jvm = &report["jvms"][0];
    ensure!(jvm["frame_pointers"] == false, "the JVM has frame pointers, or its flags were not read: {jvm}");
    ensure!(jvm["undescribed"].is_null(), "the JVM was walked by frame pointers alone: {jvm}");
    Ok(jvm)
}

/// `Known`, which has several known truths: see its source.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    flags: Vec<String>,
}

/// The depth of the recursion in the second thread of `Known`.
const DEPTH: usize = 1_000;

impl Known {
    /// Runs `Known` with `-agentpath`.
    pub(super) fn with_agent() -> Known {
        let agent = format!("-agentpath:{PAYLOAD}/libjvm_symbols_agent.so");
        Known { flags: vec![agent] }
    }

    /// The command line, which begins with the launcher.
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
                // The program waits until its code is compiled.
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

    pub(super) fn command(&self, jdk: u32) -> anyhow::Result<Command> {
        let line = self.line(jdk)?;
        let mut command = leisurely(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }
}

/// The stacks of threads with this name, profiled with `--per-thread`.
fn thread(all: &Folded, name: &str) -> Folded {
    let frame = format!("[{name} tid=");
    all.keep(|stack| stack.get(1).is_some_and(|thread| thread.starts_with(&frame)))
}

/// The stacks of the shares, without those that read the clock.
fn round(all: &Folded) -> Folded {
    let looks = |stack: &[String]| stack.iter().any(|frame| frame.contains("clock_gettime"));
    thread(all, "shares").within("Known.round").keep(|stack| !looks(stack))
}

fn leaf(all: &Folded) -> Folded {
    thread(all, "deep").within("Deep.leaf")
}

/// The stacks with compiled or inlined Java code.
fn java_stacks(all: &Folded) -> Folded {
    all.keep(|stack| stack.iter().any(|frame| ["_[j]", "_[i]"].iter().any(|kind| frame.ends_with(kind))))
}

/// The truth of `Known`, as it measured itself during the profiles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    lines: u64,
    /// Each true share is between the least and the most.
    least: [f64; 4],
    most: [f64; 4],
}

impl Truth {
    /// Reads what `Known` printed.
    pub(super) fn read(lines: &[String]) -> anyhow::Result<Truth> {
        let read = |line: &str| line.split(' ').map(|n| Ok(n.parse()?)).collect::<anyhow::Result<Vec<u64>>>();
        let rows = lines.iter().filter_map(|line| line.strip_prefix("truth "));
        let rows = rows.map(read).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(rows.iter().all(|row| row.len() == 8), "the truth has another form: {rows:?}");
        let shares = |first: usize| {
            let took = [0, 1, 2, 3].map(|part| rows.iter().map(|row| row[first + part]).sum::<u64>() as f64);
            took.map(|part| part / took.iter().sum::<f64>().max(1.0))
        };
        let (all, fast) = (shares(0), shares(4));
        Ok(Truth {
            lines: rows.len() as u64,
            least: [0, 1, 2, 3].map(|part| all[part].min(fast[part])),
            most: [0, 1, 2, 3].map(|part| all[part].max(fast[part])),
        })
    }

    /// The truth of all runs together: each has a part as large as its number of samples.
    pub(super) fn of_runs(runs: &[(Truth, u64)]) -> Truth {
        let all = runs.iter().map(|(_, samples)| samples).sum::<u64>().max(1) as f64;
        let mean = |shares: fn(&Truth) -> [f64; 4]| {
            [0, 1, 2, 3].map(|part| {
                runs.iter().map(|(truth, samples)| shares(truth)[part] * *samples as f64).sum::<f64>() / all
            })
        };
        Truth {
            lines: runs.iter().map(|(truth, _)| truth.lines).sum(),
            least: mean(|truth| truth.least),
            most: mean(|truth| truth.most),
        }
    }
}

/// The number of samples of the shares of `Known`.
pub(super) fn samples(all: &Folded) -> u64 {
    round(all).total()
}

/// The inlined chains of `Known`, by their place in the truth.
const CHAINS: [&[&str]; 4] = [
    &["InlinedShares.burn10"],
    &["InlinedShares.twice", "InlinedShares.burn20"],
    &["Known.third", "InlinedShares.inner", "InlinedShares.burn30"],
    &["Known.fourth", "InlinedShares.other", "InlinedShares.burn40"],
];

/// Seconds of the first profile of `Known`. The recursion needs 1,000 samples, and has an eighth of the time.
pub(super) const SECONDS: u64 = 20;

/// What must be right in profiles of `Known`.
pub(super) fn claims(all: &Folded, truth: &Truth) -> Vec<ShareClaim> {
    let deep = leaf(all);
    let whole = at_least(0.99, "whole stacks of the recursion", &deep, is_whole).but(short(&deep));
    shares(all, truth).into_iter().chain([whole]).collect()
}

/// The same without the recursion, which needs most of the samples.
pub(super) fn shares(all: &Folded, truth: &Truth) -> Vec<ShareClaim> {
    let round = round(all);
    let lines = Tally { hits: truth.lines, samples: truth.lines };
    let mut claims = vec![counted(Right::Number(3), "lines of the truth", lines)];
    claims.extend(CHAINS.iter().enumerate().map(|(part, chain)| {
        let truth = truth.least[part]..=truth.most[part];
        between(truth, chain.join(" > "), &round, |stack| is_chain(stack, chain))
    }));
    // Without frame pointers a slow guest has some samples before the tables of libjvm.so are loaded.
    claims.push(at_least(0.98, "Java samples that reach the root", &java_stacks(all), reaches_root));
    claims
}

/// The figures of profiles of `Known`.
pub(super) fn found(all: &Folded, truth: &Truth) -> Found {
    let (round, deep) = (round(all), leaf(all));
    let mut found = Found { samples: round.total(), ..Found::default() };
    found.figure("burn40", rounded(round.share(|stack| is_chain(stack, CHAINS[3]))));
    found.figure("burn40_true", rounded(truth.least[3]));
    found.figure("burn40_wide", rounded(truth.most[3] - truth.least[3]));
    found.figure("to_root", rounded(java_stacks(all).share(reaches_root)));
    found.figure("deep", deep.total() as f64);
    found.figure("deep_whole", rounded(deep.share(is_whole)));
    found
}

/// Whether the whole recursion is there. Its first call is interpreted now and then, and has no name if the JVM ended
/// in the same second.
fn is_whole(stack: &[String]) -> bool {
    let nameless = stack.iter().any(|frame| frame == "Interpreter_[0]");
    let calls = recursions(stack);
    (calls == DEPTH || (nameless && calls + 1 == DEPTH)) && reaches_root(stack)
}

fn recursions(stack: &[String]) -> usize {
    stack.iter().filter(|frame| is(frame, "Deep.down")).count()
}

/// Stacks of the recursion that are not whole, without repeated frames.
fn short(deep: &Folded) -> String {
    let bad = deep.stacks().filter(|(stack, _)| !is_whole(stack));
    let shown = bad.map(|(stack, n)| {
        let mut frames = stack.to_vec();
        frames.dedup();
        format!("{n} with {} calls: {}\n", recursions(stack), frames.join(";"))
    });
    shown.collect()
}

/// Whether exactly this chain of inlined methods is above the compiled method `round`.
fn is_chain(stack: &[String], chain: &[&str]) -> bool {
    let own =
        |frame: &&String| ["InlinedShares.", "Known."].iter().any(|class| bare(frame).starts_with(class));
    let java: Vec<&String> = stack.iter().filter(own).collect();
    let Some(round) = java.iter().position(|frame| *frame == "Known.round_[j]") else { return false };
    let wanted = chain.iter().map(|method| format!("{method}_[i]"));
    java[round + 1..].iter().map(|frame| frame.as_str()).eq(wanted)
}

/// Rounds a share to four digits.
pub(super) fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}
