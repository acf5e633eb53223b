//! A program whose first thread has ended, by its pid and by its cgroup. Its `/proc/PID` then shows a zombie, with
//! contents that differ between kernels. The program has no frame pointers, so that its stacks are whole only if its
//! mappings are known.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::super::folded::{Folded, bare, reaches_root};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::native;
use super::super::share::{self, at_least};
use super::super::target::Target;
use crate::plan::Found;

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
        let mut all = Folded::default();
        share::prove(share::STACKS, |seconds| {
            all.add(profiler::sample(seconds, &target)?.folded);
            Ok(vec![at_least(0.95, format!("whole stacks, by its {what}"), &all, is_whole)])
        })?;
        found.figure(&format!("{what}_whole"), rounded(all.share(is_whole)));
        found.samples += all.total();
    }
    Ok(found)
}

fn is_whole(stack: &[String]) -> bool {
    let names: Vec<&str> = stack.iter().map(|frame| bare(frame)).collect();
    names.windows(CALLS.len()).any(|part| part == CALLS) && reaches_root(stack)
}
