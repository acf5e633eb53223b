//! Java programs of `tests/programs` on the JDKs of the guest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

use super::folded::{Folded, bare, is, reaches_root};
use super::share;
use crate::plan::{Found, PAYLOAD};

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
        Known { flags: vec![format!("-agentpath:{PAYLOAD}/libjvm_symbols_agent.so")] }
    }

    /// The command that runs it.
    pub(super) fn line(&self, jdk: u32) -> anyhow::Result<Vec<String>> {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let java = PathBuf::from(format!("/usr/lib/jvm/java-{jdk}-openjdk-{arch}/bin/java"));
        ensure!(java.exists(), "this guest has no JDK {jdk}");
        let mut line = vec![java.to_string_lossy().into_owned()];
        line.extend(self.flags.iter().cloned());
        line.extend(
            [
                "-XX:+PreserveFramePointer",
                "-XX:CompileCommand=quiet",
                "-Xms64m",
                "-Xmx256m",
                "-Xss8m",
                "-XX:+UnlockDiagnosticVMOptions",
                "-XX:+DebugNonSafepoints",
                // Emulation is slow: compile sooner.
                "-XX:Tier4InvocationThreshold=600",
                "-XX:Tier4MinInvocationThreshold=100",
                "-XX:Tier4CompileThreshold=1000",
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
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }
}

/// The stacks of the threads of this name; profiled with `--per-thread`.
fn thread(all: &Folded, name: &str) -> Folded {
    let frame = format!("[{name} tid=");
    all.keep(|stack| stack.get(1).is_some_and(|thread| thread.starts_with(&frame)))
}

/// Whether a profile of `Known` has enough samples to be judged.
pub(super) fn enough(all: &Folded) -> bool {
    round(all).total() >= share::ENOUGH && leaf(all).total() >= share::ENOUGH / 10
}

fn round(all: &Folded) -> Folded {
    thread(all, "shares").within("Known.round")
}

fn leaf(all: &Folded) -> Folded {
    thread(all, "deep").within("Deep.leaf")
}

/// The shares that `Known` measured between two of its lines `truth …`; from its start, if there is none before.
pub(super) fn truth(before: Option<&str>, after: &str) -> anyhow::Result<[f64; 4]> {
    let read = |line: &str| -> anyhow::Result<Vec<f64>> {
        let numbers = line.strip_prefix("truth ").context("no line of the truth")?;
        numbers.split(' ').map(|n| Ok(n.parse()?)).collect()
    };
    let mut took = read(after)?;
    for (took, earlier) in took.iter_mut().zip(before.map(read).transpose()?.unwrap_or_default()) {
        *took -= earlier;
    }
    let sum: f64 = took.iter().sum();
    ensure!(sum > 0.0 && took.len() == 4, "the truth is {after:?}");
    Ok([0, 1, 2, 3].map(|part| took[part] / sum))
}

/// The newest line of the truth.
pub(super) fn newest(lines: &[String]) -> Option<&str> {
    lines.iter().rev().find(|line| line.starts_with("truth ")).map(String::as_str)
}

/// Holds a profile of `Known` to its truth.
pub(super) fn judge(all: &Folded, truth: [f64; 4]) -> anyhow::Result<Found> {
    let round = round(all);
    let chains: [&[&str]; 4] = [
        &["InlinedShares.burn10"],
        &["InlinedShares.twice", "InlinedShares.burn20"],
        &["Known.third", "InlinedShares.inner", "InlinedShares.burn30"],
        &["Known.fourth", "InlinedShares.other", "InlinedShares.burn40"],
    ];
    for (chain, truth) in chains.into_iter().zip(truth) {
        let got = round.share(|stack| is_chain(stack, chain));
        share::check(&chain.join(" > "), got, truth, round.total())
            .map_err(|error| error.context(round.top(12)))?;
    }
    let deep = leaf(all);
    ensure!(deep.total() > 0, "no sample of the recursion");
    let whole = deep.share(|stack| {
        stack.iter().filter(|frame| is(frame, "Deep.down")).count() == DEPTH && reaches_root(stack)
    });
    ensure!(whole > 0.99, "only {whole} of {} stacks of the recursion are whole", deep.total());
    let java =
        all.keep(|stack| stack.iter().any(|frame| ["_[j]", "_[i]"].iter().any(|kind| frame.ends_with(kind))));
    let rooted = java.share(reaches_root);
    ensure!(rooted > 0.95, "only {rooted} of the Java samples reach the root:\n{}", java.top(12));
    let mut found = Found { samples: round.total(), ..Found::default() };
    found.figure("burn40", rounded(truth[3]));
    found.figure("to_root", rounded(rooted));
    found.figure("deep", deep.total() as f64);
    found.figure("deep_whole", rounded(whole));
    Ok(found)
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
