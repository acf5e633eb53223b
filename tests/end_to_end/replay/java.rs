//! Java: from one instruction to the next a stack changes by one call or one return, or only its leaf goes on. The
//! frames below, which never return, stay unchanged.

use std::collections::BTreeMap;

use jbpf_prof::jvm::{self, AttachOptions};

use super::recording::{ADDRESS, Recording, Walked, assert_cheap, assert_known_steps_are_cheaper};
use testkit::java::{FRAME_POINTERS, Jdk, Program, in_container, on_host_as_anybody};
use testkit::profiler::binary;

const STEPS: u32 = 10_000;

/// A frame: a code address, or an interpreted method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Frame {
    Code(u64),
    Method { method: u64, bcp: u64 },
}

/// The frames of a stack's words, leaf first.
fn frames(words: &[u64]) -> Vec<Frame> {
    const INTERPRETED: u64 = 3;
    let mut words = words.iter();
    let mut frames = Vec::new();
    while let Some(word) = words.next() {
        let address = word & ADDRESS;
        frames.push(if word >> 60 == INTERPRETED {
            Frame::Method { method: address, bcp: words.next().expect("two words") & ADDRESS }
        } else {
            Frame::Code(address)
        });
    }
    frames
}

/// Whether one stack can follow the other. An interpreted caller stays at the bytecode of its call until the call
/// returns. The leaf's method stays the same, unless it has ended and its caller is not restored yet (0).
fn follows(before: &[Frame], now: &[Frame]) -> bool {
    let ((leaf, callers), (new, new_callers)) = (before.split_first().unwrap(), now.split_first().unwrap());
    let went_on = callers == new_callers
        && match (leaf, new) {
            (Frame::Method { method: before, .. }, Frame::Method { method: now, .. }) => {
                before == now || *now == 0
            }
            _ => true,
        };
    let called = new_callers.split_first().is_some_and(|(caller, rest)| {
        rest == callers
            && match (leaf, caller) {
                (Frame::Code(from), Frame::Code(to)) => (1..=15).contains(&to.wrapping_sub(*from)),
                (from, to) => from == to,
            }
    });
    let returned = callers.split_first().is_some_and(|(caller, rest)| rest == new_callers && caller == new);
    went_on || called || returned
}

fn main_thread(pid: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    let is_java = |tid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        *tid != pid && comm.is_ok_and(|comm| comm == "java\n")
    };
    tids.filter(is_java).min().expect("a thread of the name of its launcher")
}

/// With both compilers the code cache is a quarter of a gigabyte, and a recording has all of it. A fifth of that has
/// the same heaps if the JVM is asked for them.
fn small_code_cache(jdk: &Jdk, how: &str) -> &'static [&'static str] {
    match (how, jdk.version) {
        ("int" | "c1", _) => &[],
        (_, 8) => &["-XX:ReservedCodeCacheSize=48m"],
        _ => &["-XX:ReservedCodeCacheSize=48m", "-XX:+SegmentedCodeCache"],
    }
}

/// Interpreted, compiled by the first compiler and by both, and with frame pointers.
fn steps(jdk: &Jdk) {
    for (how, flags, warm) in [
        ("int", "-Xint", "10"),
        ("c1", "-XX:TieredStopAtLevel=1", "20000"),
        ("c2", "-XX:+UseSerialGC", "60000"),
        ("c2-fp", FRAME_POINTERS, "60000"),
    ] {
        if (jdk.version, how) == (8, "c1") {
            // Around the slow path of Math.sin, JDK 8 saves registers that may hold addresses after calls. How many
            // instructions lack a whole stack depends on the numbers. `hotspot` limits their share of time.
            continue;
        }
        let program = Program::new("Steps").without(FRAME_POINTERS);
        // Buffers for a few arrays: each recording has a call into the JVM for a new buffer.
        let buffers = ["-XX:TLABSize=4k", "-XX:MinTLABSize=2k", "-XX:-ResizeTLAB"];
        let program = program
            .flags(&["-XX:+UseSerialGC", flags])
            .flags(&buffers)
            .flags(small_code_cache(jdk, how))
            .dont_inline("Steps*::*")
            .args(&[warm]);
        let name = format!("{}-{how}", jdk.version);
        let record = |_| {
            let target = program.start(jdk);
            let jvm = jvm::find(target.pid()).expect("a JVM");
            let unwind_info = jvm::describe(&jvm, &AttachOptions::new(binary())).unwrap().unwind_info;
            assert_eq!(unwind_info.frame_pointers, flags == FRAME_POINTERS, "{name}");
            Recording::of_thread(&name, (target.pid(), main_thread(target.pid())), &unwind_info, STEPS)
        };
        // A JVM may be stopped in the middle of a safepoint, and its thread then waits forever: another JVM is started.
        // On a busy machine that is more likely.
        let recording = (0..40).find_map(record).expect("all JVMs were stopped at safepoints");
        let stacks = recording.walk();
        check(&name, &recording, &stacks);
        // Known steps need no code data of the JVM; with frame pointers no step needs it.
        if flags != FRAME_POINTERS {
            assert_known_steps_are_cheaper(&name, &stacks);
        }
    }
}

/// Asserts that all stacks are whole and that each can follow the one before.
fn check(name: &str, recording: &Recording, stacks: &[Walked]) {
    let mut short: BTreeMap<_, usize> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.end != "root") {
        *short
            .entry((stack.end.as_str(), recording.place(*stack.addresses().last().unwrap())))
            .or_default() += 1;
    }
    let all: Vec<Vec<Frame>> = stacks.iter().map(|stack| frames(&stack.words)).collect();
    let breaks: Vec<_> = all.windows(2).filter(|pair| !follows(&pair[0], &pair[1])).collect();
    let deepest = all.iter().map(Vec::len).max().unwrap_or(0);
    let (ended, broken) = (short.values().sum::<usize>(), breaks.len());
    eprintln!(
        "{name}: {} stacks, {ended} not whole, {broken} breaks, the deepest has {deepest} frames",
        stacks.len()
    );
    let place = |frame: &Frame| match frame {
        Frame::Code(pc) => recording.place(*pc),
        Frame::Method { method, bcp } => format!("{bcp:#x} of method {method:#x}"),
    };
    for stack in breaks.iter().take(6).flat_map(|pair| pair.iter()) {
        eprintln!("    {}", stack.iter().map(place).collect::<Vec<_>>().join(" "));
    }
    assert!(stacks.len() > STEPS as usize / 2 && deepest > 10, "{name}: {} stacks", stacks.len());
    assert!(ended == 0 && broken == 0, "{name}: {broken} breaks, {short:#?}");
    assert_cheap(name, stacks.iter().zip(&all).map(|(stack, frames)| (stack, frames.len())));
}

#[test]
fn every_instruction_of_jdk_17() {
    on_host_as_anybody(17, steps);
}

#[test]
fn every_instruction_of_jdk_25() {
    on_host_as_anybody(25, steps);
}

#[test]
fn every_instruction_of_jdk_8() {
    in_container(8, steps);
}

#[test]
fn every_instruction_of_jdk_11() {
    in_container(11, steps);
}

#[test]
fn every_instruction_of_jdk_21() {
    in_container(21, steps);
}
