//! Code under probes of another tool, end to end: the kernel replaces return addresses and instructions.

use std::process::Command;

use testkit::claims::{at_least, at_most, prove};
use testkit::folded::{is, reaches_root};
use testkit::profiler::short_slice;
use testkit::target::Target;
use testkit::{is_root, native, skip};

/// Profiles `uprobes.c`, compiled with and without frame pointers, and checks that `right` holds for nearly all stacks.
/// Exceptions are the few instructions between which the return address is unknown.
#[track_caller]
fn check(args: &[&str], right: impl Fn(&[String]) -> bool) {
    if !cfg!(target_arch = "x86_64") {
        skip("the kernel's list of return addresses can be followed on x86-64 only");
        return;
    }
    if !is_root() {
        return;
    }
    if !std::path::Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        skip("this kernel has no uprobes");
        return;
    }
    let claims = [
        at_least(0.97, format!("{args:?}: right stacks"), |stack| reaches_root(stack) && right(stack)),
        at_most(0.005, "unknown frames", |stack| stack.iter().any(|frame| frame.starts_with("[unknown"))),
    ];
    let with = native::with_flags("uprobes.c", "uprobes-fp", &["-fno-omit-frame-pointer"]);
    for program in [native::without_frame_pointers("uprobes.c"), with] {
        let target = Target::start(Command::new(program).args(args));
        prove(|| short_slice(&target, &[]).folded, &claims);
    }
}

/// The names of a program's own functions in its stack, root first.
fn own(stack: &[String]) -> Vec<&str> {
    let known = [
        "main", "run", "chain", "by_value", "work", "often", "tiny", "first", "second", "lands", "jumps",
        "leaps", "spin", "on_alarm", "copied",
    ];
    stack.iter().filter_map(|frame| known.into_iter().find(|name| is(frame, name))).collect()
}

/// The kernel tracks 64 calls of a task, and does not replace the return addresses of further calls.
#[test]
fn functions_with_uretprobes_have_their_callers() {
    for depth in [40, 100] {
        check(&["chain", &depth.to_string(), "chain", "by_value", "work"], |stack| {
            let whole = [&["main", "run"][..], &vec!["chain"; depth], &["by_value", "work"]].concat();
            let own = own(stack);
            // Some samples are in the kernel's part of the probes of `chain` and `by_value`.
            whole.starts_with(&own) && (own.len() == whole.len() || stack.last().unwrap().ends_with("_[k]"))
        });
    }
}

/// Most time passes in the kernel, in the trampoline, and at a copy of the first instruction.
#[test]
fn a_function_that_returns_at_once_has_its_callers() {
    check(&["often", "tiny"], |stack| {
        matches!(own(stack)[..], ["main", "run", "often"] | ["main", "run", "often", "tiny"])
    });
}

/// Both functions have put the trampoline into the same word of the stack.
#[test]
fn tail_calls_have_the_caller_of_the_first() {
    check(&["tail", "first", "second", "work"], |stack| {
        matches!(own(stack)[..], ["main", "run"] | ["main", "run", "first" | "second" | "work"])
    });
}

/// The kernel's list keeps calls that never return until the kernel notices.
#[test]
fn calls_that_were_jumped_over_are_no_callers() {
    check(&["jump", "leaps", "jumps", "lands", "work"], |stack| {
        let own = own(stack);
        let jumps = [&["main", "run", "lands", "jumps"][..], &["leaps"; 4]].concat();
        own == ["main", "run", "lands", "work"] || jumps.starts_with(&own)
    });
}

#[test]
fn handlers_with_uretprobes_stand_on_what_they_interrupted() {
    check(&["signal", "spin", "on_alarm", "work"], |stack| {
        ["main", "run", "spin", "on_alarm", "work"].starts_with(&own(stack))
    });
}

#[test]
fn a_copied_instruction_is_the_one_that_it_was_copied_from() {
    check(&["copy"], |stack| matches!(own(stack)[..], ["main", "run"] | ["main", "run", "copied"]));
}
