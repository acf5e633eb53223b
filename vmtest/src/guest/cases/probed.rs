//! What needs fields of the kernel that have changed between versions: the true return addresses of functions that another
//! tool has put uretprobes on, in 64-bit and in 32-bit code; and stacks of 32-bit code without frame pointers.

use anyhow::{Context, ensure};

use super::super::folded::{Folded, reaches_root};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::native;
use super::super::share::Effort;
use super::super::target::Target;
use crate::plan::Found;

/// So many samples of each program are enough: whether stacks are whole is seen in few.
const ENOUGH: u64 = 300;
/// How many seconds of profile mostly have them.
const SECONDS: u64 = 4;
/// The calls of `chain`.
const CALLS: usize = 40;

/// The programs, what each is told, and whom its `main` calls.
const PROGRAMS: [(&str, &[&str], &str); 3] = [
    ("uprobes", &["chain", "40", "chain", "by_value", "work"], "run"),
    ("uprobes-32", &["chain", "40", "chain", "by_value", "work"], "run"),
    ("frames-32", &["chain", "40"], "in_thread"),
];

/// The case.
pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = Found::default();
    for (name, args, called) in PROGRAMS {
        let all = stacks(name, args)?.within("work");
        ensure!(all.total() >= ENOUGH, "{name} has only {} samples", all.total());
        let whole = all.share(|stack| is_whole(stack, called));
        let bad = all.keep(|stack| !is_whole(stack, called));
        // Between the change of the address and the kernel's note of it a tick may come, and mostly on slow CPUs.
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
        if !effort.goes_on(all.within("work").total() as f64 / ENOUGH as f64) {
            return Ok(all);
        }
    }
}

/// Whether a stack has its whole chain. What is called between `chain` and `by_value` is libc's, and what the probes of
/// `work` itself take is the kernel's.
fn is_whole(stack: &[String], called: &str) -> bool {
    let wanted: Vec<&str> = [&["main", called][..], &["chain"; CALLS], &["by_value", "work"]].concat();
    let own = stack.iter().filter(|frame| wanted.contains(&frame.as_str()));
    reaches_root(stack) && own.map(String::as_str).eq(wanted.iter().copied())
}
