//! Page faults of a program that touches known numbers of new pages in two functions: each fault is counted in its
//! function.

use anyhow::ensure;

use super::super::profiler;
use super::super::program::path;
use crate::plan::Found;

/// Rounds of `touched.c`, each of which touches 10 and 30 new pages.
const ROUNDS: u64 = 100;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let rounds = ROUNDS.to_string();
    // The program waits for a file; this file exists already.
    let command = [path("touched"), "/proc/self/exe".to_owned(), rounds];
    let mut line = vec!["-e", "page-faults", "-d", "6", "--"];
    line.extend(command.iter().map(String::as_str));
    let profile = profiler::record(&line)?;
    let accounts = &profile.report["accounts"];
    ensure!(profile.report["event"] == "page-faults", "the report is of another event: {}", profile.report);
    ensure!(accounts["missed"] == 0 && accounts["lost"] == serde_json::json!([]), "not whole: {accounts}");
    for (name, pages) in [("touch10", 10), ("touch30", 30)] {
        let stacks = profile.folded.within(name);
        let n = stacks.total();
        ensure!(n == pages * ROUNDS, "{n} faults in {name}, not {}:\n{}", pages * ROUNDS, stacks.top(5));
    }
    Ok(Found { samples: profile.folded.total(), ..Found::default() })
}
