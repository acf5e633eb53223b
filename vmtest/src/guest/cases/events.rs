//! A program that touches known numbers of new pages in two functions: each page fault is counted in its function, as a
//! counter, at a tracepoint and at a kprobe, and so is each call of a function, at a uprobe.

use anyhow::ensure;

use super::super::profiler;
use super::super::program::path;
use crate::plan::Found;

/// Rounds of `touched.c`, each of which touches 10 and 30 new pages.
const ROUNDS: u64 = 100;

/// Events, and how often each occurs in `touch10` and in `touch30` in a round. `FILE` is the program.
const EVENTS: [(&str, [u64; 2]); 4] = [
    ("page-faults", [10, 30]),
    ("exceptions:page_fault_user", [10, 30]),
    ("kprobe:handle_mm_fault", [10, 30]),
    ("uprobe:FILE:touch10", [1, 0]),
];

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = Found::default();
    for (event, times) in EVENTS {
        found.samples += samples_of(&event.replace("FILE", &path("touched")), times)?;
    }
    Ok(found)
}

fn samples_of(event: &str, times: [u64; 2]) -> anyhow::Result<u64> {
    let rounds = ROUNDS.to_string();
    // The program waits for a file; this file exists already.
    let command = [path("touched"), "/proc/self/exe".to_owned(), rounds];
    let mut line = vec!["-e", event, "-d", "6", "--"];
    line.extend(command.iter().map(String::as_str));
    let profile = profiler::record(&line)?;
    let accounts = &profile.report["accounts"];
    ensure!(profile.report["event"] == event, "the report is of another event: {}", profile.report);
    ensure!(accounts["missed"] == 0 && accounts["lost"] == serde_json::json!([]), "not whole: {accounts}");
    for (name, times) in ["touch10", "touch30"].into_iter().zip(times) {
        let stacks = profile.folded.within(name);
        let (n, right) = (stacks.total(), times * ROUNDS);
        ensure!(n == right, "{n} samples of {event} in {name}, not {right}:\n{}", stacks.top(5));
    }
    Ok(profile.folded.total())
}
