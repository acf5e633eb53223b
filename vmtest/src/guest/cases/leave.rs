//! A program whose first thread has ended, by its pid and by its cgroup. Its `/proc/PID` then shows a zombie, with
//! contents that differ between kernels. The program has no frame pointers, so that its stacks are whole only if its
//! mappings are known.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::super::folded::{Folded, bare, reaches_root};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::native;
use super::super::target::Target;
use crate::plan::Found;

/// Samples that suffice to see whether stacks are whole.
const ENOUGH: u64 = 200;
/// The calls of `leave.c`.
const CALLS: [&str; 3] = ["outer", "middle", "burn"];

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let target = Target::start(&mut native("leave"));
    let pid = target.pid().to_string();
    // The other thread has waited for the end of the first thread, which becomes a zombie a moment later.
    while !fs::read(format!("/proc/{pid}/maps"))?.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let group = PathBuf::from("/sys/fs/cgroup/leave");
    fs::create_dir(&group).context("a cgroup")?;
    fs::write(group.join("cgroup.procs"), &pid).context("moving the program")?;
    let mut found = Found::default();
    for (what, target) in [("pid", ["-p", &pid]), ("group", ["-G", "/sys/fs/cgroup/leave"])] {
        let all = profiler::record(&[&["-F", "499", "-d", "4"], &target[..]].concat())?.folded;
        found.figure(&format!("{what}_whole"), rounded(whole(&all).context(what)?));
        found.samples += all.total();
    }
    Ok(found)
}

fn whole(all: &Folded) -> anyhow::Result<f64> {
    let n = all.total();
    ensure!(n >= ENOUGH, "{n} samples are too few to decide");
    let is_whole = |stack: &[String]| {
        let names: Vec<&str> = stack.iter().map(|frame| bare(frame)).collect();
        names.windows(CALLS.len()).any(|part| part == CALLS) && reaches_root(stack)
    };
    let whole = all.share(is_whole);
    ensure!(whole > 0.95, "only {whole} of {n} stacks are whole:\n{}", all.top(5));
    Ok(whole)
}
