//! Features that read kernel fields that differ between versions. First, the original return addresses of functions
//! with uretprobes of another tool, in 64-bit and 32-bit code. Second, stacks of 32-bit code without frame pointers.

use anyhow::{Context, ensure};

use super::super::folded::{Folded, reaches_root};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::native;
use super::super::share::Effort;
use super::super::target::Target;
use crate::plan::Found;

/// Samples of each program that suffice to see whether stacks are whole.
const MIN_SAMPLES: u64 = 300;
/// How many seconds of profile usually have [`MIN_SAMPLES`] samples.
const SECONDS: u64 = 4;
/// The calls of `chain`.
const CALLS: usize = 40;

struct ProbedProgram {
    name: &'static str,
    args: &'static [&'static str],
    /// The function that `main` calls.
    called: &'static str,
}

const PROGRAMS: [ProbedProgram; 3] = [
    ProbedProgram { name: "uprobes", args: &["chain", "40", "chain", "by_value", "work"], called: "run" },
    ProbedProgram { name: "uprobes-32", args: &["chain", "40", "chain", "by_value", "work"], called: "run" },
    ProbedProgram { name: "frames-32", args: &["chain", "40"], called: "in_thread" },
];

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = Found::default();
    for ProbedProgram { name, args, called } in PROGRAMS {
        let all = stacks(name, args)?.within("work");
        ensure!(all.total() >= MIN_SAMPLES, "{name} has only {} samples", all.total());
        let whole = all.share(|stack| is_whole(stack, called));
        let bad = all.keep(|stack| !is_whole(stack, called));
        // A tick may come between the change of the address and the kernel's record of it, most often on slow CPUs.
        ensure!(whole > 0.95, "only {whole} of {name}'s stacks are whole:\n{}", bad.top(5));
        found.samples += all.total();
        found.figure(name, rounded(whole));
    }
    Ok(found)
}

fn stacks(name: &'static str, args: &[&str]) -> anyhow::Result<Folded> {
    let target = Target::start(native(name).args(args));
    let pid = target.pid().to_string();
    let mut all = Folded::default();
    let mut effort = Effort::beginning_with(SECONDS);
    loop {
        let seconds = effort.seconds().to_string();
        let got = profiler::record(&["-F", "499", "-d", &seconds, "-p", &pid]).context(name)?;
        all.add(got.folded);
        if !effort.needs_more(all.within("work").total() as f64 / MIN_SAMPLES as f64) {
            return Ok(all);
        }
    }
}

/// Whether a stack has its whole chain. Other frames between `chain` and `by_value` are libc's, and those above `work`
/// are the kernel's, in the probes of `work`.
fn is_whole(stack: &[String], called: &str) -> bool {
    let wanted: Vec<&str> = [&["main", called][..], &["chain"; CALLS], &["by_value", "work"]].concat();
    let own = stack.iter().filter(|frame| wanted.contains(&frame.as_str()));
    reaches_root(stack) && own.map(String::as_str).eq(wanted.iter().copied())
}
