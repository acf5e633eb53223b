//! Features that read kernel fields that differ between versions. First, the original return addresses of functions
//! with uretprobes of another tool, in 64-bit and 32-bit code. Second, stacks of 32-bit code without frame pointers.

use anyhow::Context;

use super::super::folded::{Folded, reaches_root};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::native;
use super::super::share::{self, at_least};
use super::super::target::Target;
use crate::plan::Found;

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
        let stacks = proved(name, args, called).context(name)?;
        found.samples += stacks.total();
        found.figure(name, rounded(stacks.share(|stack| is_whole(stack, called))));
    }
    Ok(found)
}

/// Stacks of `work` in a program, nearly all of which are whole.
fn proved(name: &str, args: &[&str], called: &str) -> anyhow::Result<Folded> {
    let target = Target::start(native(name).args(args));
    let pid = target.pid().to_string();
    let mut work = Folded::default();
    share::prove(share::STACKS, |seconds| {
        work.add(profiler::sample(seconds, &["-p", &pid])?.folded.within("work"));
        // A tick may come between the change of the address and the kernel's record of it, most often on slow CPUs.
        Ok(vec![at_least(0.95, "whole stacks", &work, |stack| is_whole(stack, called))])
    })?;
    Ok(work)
}

/// Whether a stack has its whole chain. Other frames between `chain` and `by_value` are libc's, and those above `work`
/// are the kernel's, in the probes of `work`.
fn is_whole(stack: &[String], called: &str) -> bool {
    let wanted: Vec<&str> = [&["main", called][..], &["chain"; CALLS], &["by_value", "work"]].concat();
    let own = stack.iter().filter(|frame| wanted.contains(&frame.as_str()));
    reaches_root(stack) && own.map(String::as_str).eq(wanted.iter().copied())
}
