//! Stacks without frame pointers: a C program, frame by frame, interpreted methods by name, and a stub of HotSpot that
//! depends on the CPU.

use super::super::folded::{Folded, bare, is, reaches_root};
use super::super::java::{described, hashes, interpreted, rounded};
use super::super::profiler;
use super::super::program::native;
use super::super::share::{self, ShareClaim, at_least};
use super::super::target::Target;
use super::of;
use crate::plan::Found;

/// Seconds of the first profile: two programs share the CPUs.
const SECONDS: u64 = 5;
/// The same for one program.
const HASH_SECONDS: u64 = 3;
/// The calls of `chain` in `frames.c`.
const CALLS: usize = 40;

/// Profiles both programs together.
pub(in super::super) fn run(jdk: u32) -> anyhow::Result<Found> {
    // The JVM starts first, while the CPUs have no other work.
    let targets = [Target::start(&mut interpreted(jdk)?), Target::start(&mut native("frames"))];
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    let (mut frames, mut main) = (Folded::default(), Folded::default());
    share::prove(SECONDS, |seconds| {
        let got = profiler::sample(seconds, &["--per-thread", "-p", &pids])?;
        described(&got.report)?;
        frames.add(of(&got.folded, "frames"));
        main.add(of(&got.folded, "java").keep(|stack| stack[1].starts_with("[java tid=")));
        let mut claims_of_both = claims(&frames, "work", is_chain);
        claims_of_both.extend(claims(&main, "Chains.work", is_interpreted));
        Ok(claims_of_both)
    })?;
    let mut found = Found { samples: frames.total() + main.total(), ..Found::default() };
    found.figure("native_whole", rounded(frames.within("work").share(is_chain)));
    found.figure("interpreted_whole", rounded(main.within("Chains.work").share(is_interpreted)));
    drop(targets);
    let hashed = sha_256(jdk)?;
    found.samples += hashed.total();
    found.figure("sha_256", rounded(hashed.share(is_in_stub)));
    Ok(found)
}

/// The stacks of SHA-256. Its stub has frames of its own on CPUs with AVX2 and without SHA-NI, as the guest's is by default.
fn sha_256(jdk: u32) -> anyhow::Result<Folded> {
    let target = Target::start(&mut hashes(jdk)?);
    let pid = target.pid().to_string();
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let has = |feature: &str| cpu.split_whitespace().any(|word| word == feature);
    // JDK 8 has a stub for SHA-NI only. Before 7.2 QEMU has no AVX2.
    let has_stub = has("sha_ni") || (jdk > 8 && has("avx2") && has("bmi2"));
    let mut main = Folded::default();
    share::prove(HASH_SECONDS, |seconds| {
        let got = profiler::sample(seconds, &["--per-thread", "-p", &pid])?;
        main.add(of(&got.folded, "java").keep(|stack| stack[1].starts_with("[java tid=")));
        let mut claims = vec![at_least(0.98, "whole stacks of SHA-256", &main, is_hash)];
        if has_stub {
            claims.push(at_least(0.9, "samples in the stub of SHA-256", &main, is_in_stub));
        }
        Ok(claims)
    })?;
    Ok(main)
}

/// Whether a stack has the callers of the hash.
fn is_hash(stack: &[String]) -> bool {
    let own = stack.iter().filter_map(|frame| bare(frame).strip_prefix("Hashes."));
    reaches_root(stack) && own.eq(["main", "round", "hash"])
}

fn is_in_stub(stack: &[String]) -> bool {
    stack.iter().any(|frame| frame.starts_with("sha256_implCompress"))
}

/// `work` takes nearly all time of its program, and nearly all its stacks are whole.
fn claims(all: &Folded, work: &str, is_whole: fn(&[String]) -> bool) -> Vec<ShareClaim> {
    let is_in_work = |stack: &[String]| stack.iter().any(|frame| is(frame, work));
    vec![
        at_least(0.9, format!("samples in {work}"), all, is_in_work),
        at_least(0.98, format!("whole stacks of {work}"), &all.within(work), is_whole),
    ]
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
