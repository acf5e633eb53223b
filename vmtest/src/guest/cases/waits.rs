//! Waiting time of a program that measures its own waits: each is sampled in proportion to its length, in its function,
//! with its reason.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, ensure};
use testkit::reasons::{LEAVES, LOCK_LEAVES, contends, is_of, mistakes};
use testkit::waits::waited;

use super::super::folded::{Folded, is};
use super::super::profiler::{self, UNTIL_STOPPED};
use super::super::program::{native, path};
use super::super::share::{self, ShareClaim, at_least, seen};
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
/// Samples that there must be of the waits with each leaf of [`REASONS`]. After its wait a thread waits for a CPU, on a
/// busy host for longer than it slept.
const MIN_WAITS: u64 = 80;

/// Whether no sample was lost, but for a few whose insert the kernel refused: an interrupt came between the two steps
/// in which it locks a part of the map, and its own insert found the first one done (`htab_lock_bucket` in
/// kernel/bpf/hashtab.c).
fn is_whole(accounts: &serde_json::Value) -> bool {
    let lost: Option<Vec<(String, u64)>> = serde_json::from_value(accounts["lost"].clone()).ok();
    let ticks = accounts["ticks"].as_u64().unwrap_or_default();
    lost.is_some_and(|lost| lost.iter().all(|(reason, n)| reason == "counts busy" && n * 1000 < ticks))
}

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut runs = Runs::default();
    share::prove(0, |_| {
        runs.add_one()?;
        Ok(runs.claims())
    })?;
    let mut found = Found { samples: runs.folded.total(), ..Found::default() };
    runs.agree_with_the_program(&mut found)?;
    for (function, leaf, waker) in WAKERS {
        found.figure(waker, runs.ended(function, leaf).share(|frames| has_waker(frames, waker)));
    }
    found.figure("hung", hung_and_waiting()?);
    Ok(found)
}

/// Profiles of the program, all at one rate, and what the program measured in them.
#[derive(Default)]
struct Runs {
    folded: Folded,
    period_ns: f64,
    measured: String,
}

impl Runs {
    fn add_one(&mut self) -> anyhow::Result<()> {
        // The program waits for a file; this file exists already. Its output would be in the report.
        let command = format!("exec {} /proc/self/exe {LENGTH_MS} '' end >{MEASURED}", path("waits"));
        let line = ["-e", "wait", "--wakers", "-F", "99", "-d", UNTIL_STOPPED, "--", "sh", "-c", &command];
        let profile = profiler::record(&line)?;
        let (report, accounts) = (&profile.report, &profile.report["accounts"]);
        ensure!(report["event"] == "wait", "the report is of another event: {report}");
        ensure!(is_whole(accounts), "not whole: {accounts}");
        ensure!(report["waits"]["untimed"] == 0, "waits were not measured: {}", report["waits"]);
        self.period_ns = accounts["period_ns"].as_f64().context("no period")?;
        self.folded.add(profile.folded);
        self.measured += &fs::read_to_string(MEASURED).context(MEASURED)?;
        Ok(())
    }

    /// The reasons of the waits, and what ended them.
    fn claims(&self) -> Vec<ShareClaim> {
        let folded = self.folded.without_wakers();
        let is_leaf = |frames: &[String], leaf: &str| frames.last().is_some_and(|last| last == leaf);
        let mut claims = Vec::new();
        for (function, leaf) in REASONS {
            let stacks = folded.within(function);
            let waits = format!("{function}: {leaf}");
            claims.push(seen(MIN_WAITS, waits.clone(), &stacks, |frames| is_leaf(frames, leaf)));
            claims.push(at_least(0.95, format!("{waits} or runnable"), &stacks, |frames| {
                is_leaf(frames, leaf) || is_leaf(frames, RUNNABLE)
            }));
        }
        for (function, leaf, waker) in WAKERS {
            let waits = self.ended(function, leaf);
            claims.push(at_least(0.9, format!("{function}: {leaf} by {waker}"), &waits, |frames| {
                has_waker(frames, waker)
            }));
        }
        claims
    }

    /// The waits in a function with this leaf that were ended, with the stacks that ended them.
    fn ended(&self, function: &str, leaf: &str) -> Folded {
        self.folded.keep(|frames| {
            let Some(end) = frames.iter().position(|frame| frame == "--") else { return false };
            let wait = &frames[..end];
            wait.last().is_some_and(|last| last == leaf) && wait.iter().any(|frame| is(frame, function))
        })
    }

    /// Each function has its waiting time.
    fn agree_with_the_program(&self, found: &mut Found) -> anyhow::Result<()> {
        let measured = waited(self.measured.lines());
        ensure!(measured.len() > 8, "the program measured too little: {}", self.measured);
        for (function, waited) in measured {
            let sampled = self.folded.within(&function).total() as f64 * self.period_ns;
            // The threads of an emulated CPU stop anywhere, also in a switch.
            let tolerance = 0.05 * waited.ns + 8.0 * self.period_ns + waited.chance(self.period_ns);
            let range = waited.range(&function, tolerance);
            let top = self.folded.top(8);
            ensure!(range.contains(&sampled), "{top}\n{function}: {sampled} ns, {waited:?}");
            found.figure(&function, sampled / waited.ns);
        }
        Ok(())
    }
}

/// Whether this frame is on the stack that ended a wait.
fn has_waker(frames: &[String], waker: &str) -> bool {
    frames.iter().skip_while(|frame| *frame != "--").any(|frame| frame == waker)
}

/// Calls of the program whose thread waits for ever.
const LEVELS: usize = 40;

/// Threads whose waits are not over: one has a deep stack, the others wait in one way each. Some of them wait again and
/// again, so that chance decides on their samples. Returns the share of whole stacks in the waits of the first one.
fn hung_and_waiting() -> anyhow::Result<f64> {
    let mut all = Folded::default();
    let mut round = 0;
    share::prove(0, |_| {
        round += 1;
        let profile = Unending::profile(&format!("/tmp/reasons-{round}"))?;
        let mut lacks = Vec::new();
        for (leaves, lines) in [&LEAVES[..], &LOCK_LEAVES].into_iter().zip(&profile.lines) {
            let steady = leaves.iter().copied().filter(|(thread, _)| !contends(thread)).collect::<Vec<_>>();
            let mistakes = mistakes(&profile.folded, &steady, lines, profile.periods);
            ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
            lacks.extend(lines.iter().filter_map(|line| line.strip_prefix("without ")));
        }
        let hung = profile.folded.within("wait_for_ever");
        let levels = |frames: &[String]| frames.iter().filter(|frame| *frame == "level").count();
        ensure!(hung.total() > 150, "{} samples of the thread", hung.total());
        ensure!(hung.count(|frames| levels(frames) == LEVELS + 1) == hung.total(), "{}", hung.top(3));
        all.add(profile.folded);
        let contending = LEAVES.iter().chain(&LOCK_LEAVES).filter(|(thread, _)| contends(thread));
        let there = contending.filter(|(thread, _)| !lacks.contains(thread));
        let claims = there.map(|(thread, leaf)| {
            let is_last = |frames: &[String], wanted: &str| frames.last().is_some_and(|last| last == wanted);
            let waits = all.keep(|frames| is_of(frames, thread) && !is_last(frames, RUNNABLE));
            at_least(0.9, format!("{thread}: {leaf}"), &waits, |frames| is_last(frames, leaf))
        });
        Ok(claims.collect())
    })?;
    let hung = all.within("wait_for_ever");
    Ok(hung.share(|frames| frames.iter().any(|frame| frame == "begin")))
}

/// A profile of waits that are not over.
struct Unending {
    folded: Folded,
    /// How many periods it was long.
    periods: f64,
    /// What `reasons` and `lock_reasons` printed.
    lines: [Vec<String>; 2],
}

impl Unending {
    /// Starts the programs, which put their files into a directory of their own, and ends them.
    fn profile(dir: &str) -> anyhow::Result<Unending> {
        fs::create_dir_all(dir)?;
        let mut hung = Waiting::start("hung", &LEVELS.to_string())?;
        let mut waiting = [Waiting::start("reasons", dir)?, Waiting::start("lock_reasons", dir)?];
        let [first, second] = &waiting;
        let pids = format!("{},{},{}", hung.child.id(), first.child.id(), second.child.id());
        // The programs publish no traces; the kernel must accept the BPF programs that read them.
        let events = ["-e", "wait,cpu", "--trace-context"];
        let args =
            ["--idle", "--per-thread", "--raw-threads", "--children", "-F", "99", "-d", "2", "-p", &pids];
        let profile = profiler::record(&[&events[..], &args].concat())?;
        let (traces, accounts) = (&profile.report["traces"], &profile.report["accounts"]);
        ensure!(traces["unpublished"] == accounts["kept"], "wrong counts: {traces}");
        let periods = 2e9 / accounts["period_ns"].as_f64().context("no period")?;
        hung.end()?;
        let [first, second] = &mut waiting;
        let lines = [first.end()?, second.end()?];
        Ok(Unending { folded: profile.folded, periods, lines })
    }
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
