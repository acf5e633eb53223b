//! Waiting time of a program that measures its own waits: each is sampled in proportion to its length, in its function,
//! with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, ensure};
use testkit::reasons::{LEAVES, LOCK_LEAVES, mistakes};
use testkit::waits::{Waited, waited};

use super::super::profiler;
use super::super::program::{native, path};
use crate::plan::Found;

/// How long the program's threads wait, ms.
const LENGTH_MS: u32 = 4000;
/// Where the program writes what it measured.
const MEASURED: &str = "/tmp/waits.txt";
/// Functions whose waits have this leaf.
const REASONS: [(&str, &str); 5] = [
    ("sleep_10ms", "[wait: timer]"),
    ("sleep_1s", "[wait: timer]"),
    ("read_answer", "[wait: pipe read]"),
    ("take_mutex", "[wait: mutex]"),
    ("share_cpu", RUNNABLE),
];
/// Functions whose waits with this leaf were ended by such a frame.
const WAKERS: [(&str, &str, &str); 3] = [
    ("sleep_1ms", "[wait: timer]", "[interrupt]"),
    ("read_answer", "[wait: pipe read]", "answer_[w]"),
    ("take_mutex", "[wait: mutex]", "contend_[w]"),
];
const RUNNABLE: &str = "[runnable]";

/// Whether no sample was lost, but for a few whose insert the kernel refused: an interrupt came between the two steps in which
/// it locks a part of the map, and its own insert found the first one done (`htab_lock_bucket` in kernel/bpf/hashtab.c).
fn is_whole(accounts: &serde_json::Value) -> bool {
    let lost: Option<Vec<(String, u64)>> = serde_json::from_value(accounts["lost"].clone()).ok();
    let ticks = accounts["ticks"].as_u64().unwrap_or_default();
    lost.is_some_and(|lost| lost.iter().all(|(reason, n)| reason == "counts busy" && n * 1000 < ticks))
}

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let program = path("waits");
    // The program waits for a file; this file exists already. Its output would be in the report.
    let command = format!("exec {program} /proc/self/exe {LENGTH_MS} '' end >{MEASURED}");
    let line = ["-e", "wait", "--wakers", "-F", "99", "-d", "60", "--", "sh", "-c", &command];
    let profile = profiler::record(&line)?;
    let (report, accounts) = (&profile.report, &profile.report["accounts"]);
    ensure!(report["event"] == "wait", "the report is of another event: {report}");
    ensure!(is_whole(accounts), "not whole: {accounts}");
    ensure!(report["waits"]["untimed"] == 0, "waits were not measured: {}", report["waits"]);
    let period = accounts["period_ns"].as_f64().context("no period")?;
    let mut found = Found { samples: profile.folded.total(), ..Found::default() };
    for (function, waited) in measured()? {
        let sampled = profile.folded.within(&function).total() as f64 * period;
        let ns = waited.ns;
        let tolerance = 0.05 * ns + 8.0 * period + waited.chance(period);
        // The threads of an emulated CPU stop anywhere, also in a switch.
        let range = waited.range(&function, tolerance);
        ensure!(range.contains(&sampled), "{}\n{function}: {sampled} ns, {waited:?}", profile.folded.top(8));
        found.figure(&function, sampled / ns);
    }
    let folded = profile.folded.without_wakers();
    for (function, leaf) in REASONS {
        let stacks = folded.within(function);
        let with = |leaf: &str| stacks.count(|frames| frames.last().is_some_and(|last| last == leaf));
        // After its wait a thread waits for a CPU, since three others share one: after a short wait for longer than it slept.
        let (waiting, queued) = (with(leaf), if leaf == RUNNABLE { 0 } else { with(RUNNABLE) });
        ensure!(
            waiting * 5 >= stacks.total() && (waiting + queued) * 20 >= stacks.total() * 19,
            "{}\n{waiting} of {} in {function} are {leaf}, {queued} are runnable",
            stacks.top(5),
            stacks.total()
        );
    }
    for (function, leaf, waker) in WAKERS {
        let share = profile.folded.woken_by(function, leaf, waker);
        ensure!(share > 0.9, "{}\n{share} of {function} by {waker}", profile.folded.within(function).top(5));
        found.figure(waker, share);
    }
    found.figure("hung", hung_and_waiting()?);
    Ok(found)
}

/// Where programs put their files.
const FILES: &str = "/tmp/reasons";
/// Calls of the program whose thread waits for ever.
const LEVELS: usize = 40;

/// Threads whose waits are not over: one has a deep stack, the others wait in one way each. Returns the share of whole
/// stacks in the waits of the first one.
fn hung_and_waiting() -> anyhow::Result<f64> {
    fs::create_dir_all(FILES)?;
    let mut targets = [
        Waiting::start("hung", &LEVELS.to_string())?,
        Waiting::start("reasons", FILES)?,
        Waiting::start("lock_reasons", FILES)?,
    ];
    let pids = targets.each_ref().map(|target| target.child.id().to_string()).join(",");
    // The programs publish no traces; the kernel must accept the BPF programs that read them.
    let events = ["-e", "wait,cpu", "--trace-context"];
    let args = ["--idle", "--per-thread", "--raw-threads", "--children", "-F", "99", "-d", "2", "-p", &pids];
    let profile = profiler::record(&[&events[..], &args].concat())?;
    let traces = &profile.report["traces"];
    ensure!(traces["unpublished"] == profile.report["accounts"]["kept"], "wrong counts: {traces}");
    let periods = 2e9 / profile.report["accounts"]["period_ns"].as_f64().context("no period")?;
    for (target, leaves) in targets[1..].iter_mut().zip([&LEAVES[..], &LOCK_LEAVES]) {
        let mistakes = mistakes(&profile.folded, leaves, &target.end()?, periods);
        ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    }
    targets[0].end()?;
    let stacks = profile.folded.within("wait_for_ever");
    let is_whole = |frames: &[String]| frames.iter().filter(|frame| *frame == "level").count() == LEVELS + 1;
    ensure!(stacks.total() > 150, "{} samples of the thread", stacks.total());
    ensure!(stacks.count(is_whole) == stacks.total(), "{}", stacks.top(3));
    Ok(stacks.count(|frames| frames.iter().any(|frame| frame == "begin")) as f64 / stacks.total() as f64)
}

/// A program whose threads wait until its standard input ends.
struct Waiting {
    child: Child,
    output: BufReader<ChildStdout>,
    lines: Vec<String>,
}

impl Waiting {
    /// Starts the program, and waits until it prints `ready`.
    fn start(name: &str, argument: &str) -> anyhow::Result<Waiting> {
        let mut command = native(name);
        let mut child = command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut waiting = Waiting { child, output, lines: Vec::new() };
        while waiting.lines.last().is_none_or(|line| line != "ready") {
            let mut line = String::new();
            ensure!(waiting.output.read_line(&mut line)? > 0, "{name} said only {:?}", waiting.lines);
            waiting.lines.push(line.trim_end().to_owned());
        }
        Ok(waiting)
    }

    /// Ends the program; returns all lines that it printed.
    fn end(&mut self) -> anyhow::Result<Vec<String>> {
        self.child.kill().and_then(|()| self.child.wait())?;
        let mut lines = std::mem::take(&mut self.lines);
        for line in self.output.by_ref().lines() {
            lines.push(line?);
        }
        Ok(lines)
    }
}

/// What the program measured in each function.
fn measured() -> anyhow::Result<BTreeMap<String, Waited>> {
    let text = fs::read_to_string(MEASURED).context(MEASURED)?;
    let sums = waited(text.lines());
    ensure!(sums.len() > 8, "the program measured too little: {text}");
    Ok(sums)
}
