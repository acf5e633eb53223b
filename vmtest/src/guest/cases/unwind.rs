//! Stacks without frame pointers: a C program, frame by frame, and interpreted methods by name.

use anyhow::ensure;

use super::super::folded::{Folded, reaches_root};
use super::super::java::{described, interpreted, rounded};
use super::super::profiler;
use super::super::program::native;
use super::super::share::Effort;
use super::super::target::Target;
use super::of;
use crate::plan::Found;

/// Samples of each program that suffice to see whether stacks are whole.
const ENOUGH: u64 = 500;
/// How many seconds of profile usually have so many samples.
const SECONDS: u64 = 4;
/// The calls of `chain` in `frames.c`.
const CALLS: usize = 40;

/// Profiles both programs together.
pub(in super::super) fn run(jdk: u32) -> anyhow::Result<Found> {
    // The JVM starts first, while the CPUs have no other work.
    let targets = [Target::start(&mut interpreted(jdk)?), Target::start(&mut native("frames"))];
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    let (mut frames, mut main) = (Folded::default(), Folded::default());
    let mut effort = Effort::beginning_with(SECONDS);
    loop {
        let seconds = effort.seconds().to_string();
        let got = profiler::record(&["-F", "499", "-d", &seconds, "--per-thread", "-p", &pids])?;
        described(&got.report)?;
        frames.add(of(&got.folded, "frames"));
        main.add(of(&got.folded, "java").keep(|stack| stack[1].starts_with("[java tid=")));
        if !effort.needs_more(frames.total().min(main.total()) as f64 / ENOUGH as f64) {
            break;
        }
    }
    let mut found = Found { samples: frames.total() + main.total(), ..Found::default() };
    found.figure("native_whole", rounded(whole(&frames, "work", is_chain)?));
    found.figure("interpreted_whole", rounded(whole(&main, "Chains.work", is_interpreted)?));
    Ok(found)
}

/// The share of whole stacks among the stacks of `work`, which must be nearly 1. `work` takes nearly all time of its
/// program.
fn whole(all: &Folded, work: &str, is_whole: fn(&[String]) -> bool) -> anyhow::Result<f64> {
    let stacks = all.within(work);
    let n = stacks.total();
    ensure!(all.total() >= ENOUGH, "{} samples are too few to decide", all.total());
    ensure!(n * 10 > all.total() * 9, "{work} has only {n} of {} samples:\n{}", all.total(), all.top(5));
    let whole = stacks.share(is_whole);
    let bad = stacks.keep(|stack| !is_whole(stack));
    ensure!(whole > 0.98, "only {whole} of {n} stacks of {work} are whole:\n{}", bad.top(5));
    Ok(whole)
}

/// Whether a stack of `frames.c` has its whole chain. Other frames between `chain` and `by_value` are libc's.
fn is_chain(stack: &[String]) -> bool {
    let own = ["main", "chain", "by_value", "work"];
    let wanted = [&own[..1], &["chain"; CALLS], &own[2..]].concat();
    reaches_root(stack) && stack.iter().filter(|frame| own.contains(&frame.as_str())).eq(wanted)
}

/// Whether a stack of `Chains` has its whole chain, with all methods interpreted.
fn is_interpreted(stack: &[String]) -> bool {
    let methods = stack.iter().filter_map(|frame| frame.strip_prefix("Chains.")?.strip_suffix("_[0]"));
    reaches_root(stack)
        && matches!(methods.collect::<Vec<_>>()[..], ["main", "round", burn, "work"] if burn.starts_with("burn"))
}
