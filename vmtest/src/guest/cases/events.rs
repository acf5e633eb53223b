//! A program that touches known numbers of new pages in two functions: each page fault is counted in its function, as a
//! counter, at a tracepoint and at a kprobe, and so is each call of a function, at a uprobe. Another program's memory
//! grows by known amounts.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::super::profiler::{self, UNTIL_STOPPED};
use super::super::program::{native, path};
use super::super::target::Target;
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
    for (nr, (event, times)) in EVENTS.into_iter().enumerate() {
        let go = format!("/tmp/touched-{nr}");
        found.samples += samples_of(&event.replace("FILE", &path("touched")), times, Path::new(&go))?;
    }
    found.samples += growth()?;
    found.samples += allocations()?;
    java_allocations_are_accepted()?;
    Ok(found)
}

/// The kernel must accept the BPF programs that sample Java's allocations; no JVM runs here.
fn java_allocations_are_accepted() -> anyhow::Result<()> {
    let profile = profiler::record(&["-e", "cpu,alloc", "-d", "1", "-a"])?;
    let warnings = profile.report["warnings"].to_string();
    ensure!(warnings.contains("alloc has no samples: no JVM ran"), "{warnings}");
    Ok(())
}

/// Memory that `allocations.c` asks its allocator for, from its first instruction on.
fn allocations() -> anyhow::Result<u64> {
    let said = "/tmp/allocations.said";
    let program = format!("exec {} 200 < /dev/null > {said}", path("allocations"));
    let line =
        ["-e", "native-alloc", "--alloc-interval", "2KiB", "-d", UNTIL_STOPPED, "--", "sh", "-c", &program];
    let profile = profiler::record(&line)?;
    let text = std::fs::read_to_string(said)?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("allocated ")).context("the program did not end")?;
    let mut truth = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let calls = truth.pop().context("no calls")?;
    let all: u64 = truth.iter().sum();
    let allocated = &profile.report["allocated"];
    // The shell and the beginning of the program allocate a little, too.
    let near = |name: &str, right: u64, more: u64| {
        allocated[name].as_u64().is_some_and(|n| (right..right + more).contains(&n))
    };
    ensure!(
        near("profiled", all, 200_000) && near("profiled_calls", calls, 500),
        "{allocated}, not {all} bytes in {calls} calls: {}",
        profile.report["warnings"]
    );
    let found = profile.folded.within("by_malloc").total();
    ensure!(found.abs_diff(truth[0] >> 11) < 60, "{found} samples:\n{}", profile.folded.top(8));
    Ok(profile.folded.total())
}

/// Memory of three kinds that `grown.c` adds, and some that it gives back. The kernel counts several pages at a time: from
/// 6.2 on those of one kind, before those of 64 faults, whose kinds and functions differ. Then only the sum is known.
fn growth() -> anyhow::Result<u64> {
    let (file, said) = ("/tmp/grown", "/tmp/grown.said");
    let program = format!("exec {} /proc/self/exe 200 {file} end > {said}", path("grown"));
    let profile = profiler::record(&["-e", "rss", "-d", UNTIL_STOPPED, "--", "sh", "-c", &program])?;
    let text = std::fs::read_to_string(said)?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("grown ")).context("the program did not end")?;
    let truth = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let found = ["grow_anonymous", "grow_shared", "grow_file", "grow_again"]
        .map(|name| profile.folded.within(name).total());
    let near = |n: u64, right: u64| n.abs_diff(right) < right / 20;
    let by_kind = truth.len() == 4 && found.iter().zip(&truth).all(|(n, right)| near(*n, *right));
    let in_sum = near(found.iter().sum(), truth.iter().sum());
    let counts_by_kind = !std::fs::read_to_string("/proc/kallsyms")?.contains(" sync_mm_rss\n");
    ensure!(
        in_sum && (by_kind || !counts_by_kind),
        "{found:?} pages, not {truth:?}:\n{}",
        profile.folded.top(8)
    );
    Ok(profile.folded.total())
}

/// Samples of the rounds of a program, which begin when the file `go` exists.
fn samples_of(event: &str, times: [u64; 2], go: &Path) -> anyhow::Result<u64> {
    let mut target = Target::start(native("touched").arg(go).arg(ROUNDS.to_string()));
    let pid = target.pid().to_string();
    let args = ["-e", event, "-d", UNTIL_STOPPED, "-p", &pid];
    let profiler = profiler::start(profiler::binary(), &args)?;
    profiler.wait_until_it_samples()?;
    std::fs::write(go, "").context("the sign to begin")?;
    target.wait_for(|line| line == "touched");
    let profile = profiler.stop()?;
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
