//! Waiting time of a program that measures its own waits: each is sampled in proportion to its length, in its function,
//! with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context, ensure};

use super::super::profiler;
use super::super::program::{native, path};
use crate::plan::Found;

/// How long the program's threads wait, ms.
const LENGTH_MS: u32 = 4000;
/// Where the program writes what it measured.
const MEASURED: &str = "/tmp/waits.txt";
/// Functions whose waits have this leaf.
const REASONS: [(&str, &str); 5] = [
    ("sleep_1ms", "[wait: timer]"),
    ("sleep_1s", "[wait: timer]"),
    ("read_answer", "[wait: pipe read]"),
    ("take_mutex", "[wait: mutex]"),
    ("burn", RUNNABLE),
];
/// Functions whose waits with this leaf were ended by such a frame.
const WAKERS: [(&str, &str, &str); 3] = [
    ("sleep_1ms", "[wait: timer]", "[interrupt]"),
    ("read_answer", "[wait: pipe read]", "answer_[w]"),
    ("take_mutex", "[wait: mutex]", "contend_[w]"),
];
const RUNNABLE: &str = "[runnable]";

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let program = path("waits");
    // The program waits for a file; this file exists already. Its output would be in the report.
    let command = format!("exec {program} /proc/self/exe {LENGTH_MS} '' end >{MEASURED}");
    let line = ["-e", "wait", "--wakers", "-F", "99", "-d", "60", "--", "sh", "-c", &command];
    let profile = profiler::record(&line)?;
    let (report, accounts) = (&profile.report, &profile.report["accounts"]);
    ensure!(report["event"] == "wait", "the report is of another event: {report}");
    ensure!(accounts["lost"] == serde_json::json!([]), "not whole: {accounts}");
    ensure!(report["waits"]["untimed"] == 0, "waits were not measured: {}", report["waits"]);
    let period = accounts["period_ns"].as_f64().context("no period")?;
    let mut found = Found { samples: profile.folded.total(), ..Found::default() };
    for (function, ns) in measured()? {
        let sampled = profile.folded.within(&function).total() as f64 * period;
        // The emulated clock is read a moment outside of the wait, and threads are stopped between the two.
        let limit = 0.05 * ns + 8.0 * period + if function.starts_with("half") { 0.25 * ns } else { 0.0 };
        ensure!(
            (sampled - ns).abs() <= limit,
            "{function}: {sampled} ns of {ns}:\n{}",
            profile.folded.top(8)
        );
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
            "{waiting} of {} in {function} are {leaf}, {queued} are runnable:\n{}",
            stacks.total(),
            stacks.top(5)
        );
    }
    for (function, leaf, waker) in WAKERS {
        let share = profile.folded.woken_by(function, leaf, waker);
        ensure!(share > 0.9, "{share} of {function} by {waker}:\n{}", profile.folded.within(function).top(5));
        found.figure(waker, share);
    }
    found.figure("hung", hung()?);
    Ok(found)
}

/// Calls of the program whose thread waits for ever.
const LEVELS: usize = 40;

/// The share of whole stacks in the waits of a thread that hangs.
fn hung() -> anyhow::Result<f64> {
    let mut target = native("hung").arg(LEVELS.to_string()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(target.stdout.take().context("no output")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "the program said {line}");
    let recorded = profiler::record(&["-e", "wait", "-F", "99", "-d", "2", "-p", &target.id().to_string()]);
    target.kill().and_then(|()| target.wait())?;
    let stacks = recorded?.folded.within("wait_for_ever");
    let is_whole = |frames: &[String]| frames.iter().filter(|frame| *frame == "level").count() == LEVELS + 1;
    ensure!(stacks.total() > 150, "{} samples of the thread", stacks.total());
    ensure!(stacks.count(is_whole) == stacks.total(), "{}", stacks.top(3));
    Ok(stacks.count(|frames| frames.iter().any(|frame| frame == "begin")) as f64 / stacks.total() as f64)
}

/// Nanoseconds that the program measured in each function.
fn measured() -> anyhow::Result<BTreeMap<String, f64>> {
    let text = fs::read_to_string(MEASURED).context(MEASURED)?;
    let mut sums = BTreeMap::new();
    for (name, ns) in text.lines().filter_map(|line| line.split_once(' ')) {
        *sums.entry(name.to_owned()).or_insert(0.0) += ns.parse::<f64>().context("what it measured")?;
    }
    ensure!(sums.len() > 8, "the program measured too little: {text}");
    Ok(sums)
}
