//! Code that a process has moved to memory without a file, for huge pages, has the names and callers that it has in its
//! file, if it is proven to be that code.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::claims::{StackClaim, at_least, at_most, prove, seen};
use testkit::folded::{Folded, is, user_leaf};
use testkit::profiler::{profile, short_slice, slice, while_sampling};
use testkit::target::Target;
use testkit::{is_root, lacks, native, scratch, skip, spent};

const UNKNOWN: &str = "[unknown: anonymous code]";

fn program() -> PathBuf {
    native::without_frame_pointers_and("moved.c", "moved", &["-Wl,--no-as-needed", "-ldl"])
}

fn moved(args: &[&str]) -> Target {
    Target::start(Command::new(program()).args(args))
}

/// Whether the chain's code is in executable memory with neither file nor name now.
fn has_moved(target: &Target) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    maps.lines().any(|line| line.contains(" r-xp 00000000 00:00 0") && !line.contains('['))
}

/// Whether a stack is the program's, frame by frame.
fn is_right(stack: &[String]) -> bool {
    let user: Vec<&String> = stack.iter().filter(|frame| !frame.ends_with("_[k]")).collect();
    let chain = ["main", "outer", "middle", "work"];
    user.len() > chain.len() && user[user.len() - 4..].iter().zip(chain).all(|(frame, name)| is(frame, name))
}

fn has_main(stack: &[String]) -> bool {
    stack.iter().any(|frame| is(frame, "main"))
}

/// Whether the innermost frame outside the kernel is the one that works.
fn is_in_work(stack: &[String]) -> bool {
    user_leaf(stack).is_some_and(|leaf| is(leaf, "work"))
}

/// Nearly all samples have their name.
fn named(what: &str) -> Vec<StackClaim<'static>> {
    vec![
        at_least(0.98, format!("{what}: samples with their name"), is_in_work),
        at_most(0.01, format!("{what}: unknown code"), |stack| stack.iter().any(|frame| frame == UNKNOWN)),
    ]
}

/// At least this share of the named samples has the whole chain, where there are unwind tables.
fn whole(share: f64, what: &str) -> Option<StackClaim<'static>> {
    let whole = || at_least(share, format!("{what}: whole stacks"), is_right).among(is_in_work);
    cfg!(target_arch = "x86_64").then(whole)
}

/// The program's own code is found where it should be, before the first sample.
#[test]
fn a_programs_own_code_has_its_names_and_callers() {
    if !is_root() {
        return;
    }
    for how in ["mremap", "over"] {
        let target = moved(&[how]);
        assert!(has_moved(&target));
        let mut claims = named(how);
        claims.extend(whole(0.98, how));
        prove(|| short_slice(&target, &[]).folded, &claims);
    }
}

/// The file's table, used while the move was not known, was the right one.
#[test]
fn code_that_is_moved_while_it_is_profiled_loses_nothing() {
    if !is_root() {
        return;
    }
    let mut claims = named("late");
    claims.extend(whole(0.97, "late"));
    prove(while_it_moves, &claims);
}

/// A profile that begins before the program moves its code, and goes on for three seconds of CPU time after it.
fn while_it_moves() -> Folded {
    for _ in 0..20 {
        let target = moved(&["late"]);
        let mut is_in_time = false;
        let profile = while_sampling(&[], &["--pid", &target.pid().to_string()], || {
            is_in_time = !has_moved(&target);
            let end = Instant::now() + Duration::from_secs(300);
            while !has_moved(&target) {
                assert!(Instant::now() < end, "the program moves no code");
                std::thread::sleep(Duration::from_millis(10));
            }
            if is_in_time {
                spent::spend(target.pid(), Duration::from_secs(3));
            }
        });
        if is_in_time {
            return profile.folded;
        }
    }
    panic!("the code had always moved before sampling began: this test did not test");
}

/// Such code is searched for once it has samples: samples of the first window have no callers.
#[test]
fn code_of_a_library_and_code_that_was_copied_elsewhere_are_found_by_samples() {
    if !is_root() {
        return;
    }
    let library = native::library(&scratch("moved-library"), "moved_code", &[]);
    for args in [&["library", library.to_str().unwrap()][..], &["elsewhere"]] {
        let target = moved(args);
        assert!(has_moved(&target));
        let mut claims = named(args[0]);
        // The code is found in the first window and has its callers from the next one on: on a busy machine that comes late.
        claims.extend(whole(0.2, args[0]));
        if cfg!(target_arch = "x86_64") {
            let wrong = |stack: &[String]| has_main(stack) && !is_right(stack);
            claims.push(at_most(0.01, format!("{}: wrong callers", args[0]), wrong).among(is_in_work));
        }
        prove(|| profile(&target, 4, &[]).folded, &claims);
    }
}

/// Frame pointers lead through unknown code, so no such stack ends early; the code is searched for nevertheless. (In
/// the first window a leaf without its own frame has its caller's caller.)
#[test]
fn copied_code_with_frame_pointers_has_its_names() {
    if !is_root() {
        return;
    }
    let flags = ["-fno-omit-frame-pointer", "-Wl,--no-as-needed", "-ldl"];
    let program = native::without_frame_pointers_and("moved.c", "moved_with_fp", &flags);
    let target = Target::start(Command::new(program).arg("elsewhere"));
    let mut claims = named("with frame pointers");
    claims.push(at_least(0.98, "stacks that reach main", has_main).among(is_in_work));
    claims.push(at_least(0.5, "whole stacks", is_right).among(is_in_work));
    prove(|| profile(&target, 3, &[]).folded, &claims);
}

/// A page with other bytes than the file's may be any code.
#[test]
fn a_page_that_differs_is_unknown() {
    if !is_root() {
        return;
    }
    let target = moved(&["patched"]);
    assert!(has_moved(&target));
    let unknown = at_least(0.98, "unknown code", |stack| user_leaf(stack) == Some(UNKNOWN));
    let all = prove(|| slice(&target, &[]), &[unknown]);
    let guessed = all.keep(|stack| stack.iter().any(|frame| is(frame, "work")));
    assert_eq!(guessed.total(), 0, "{}", guessed.top(10));
}

/// Node moves its own code with this option, if the kernel gives huge pages on request.
#[test]
fn node_with_large_pages() {
    if !is_root() || lacks("node") {
        return;
    }
    // Node does not end with its parent.
    let program = "console.log('ready'); const end = Date.now() + 600000;\n\
        while (Date.now() < end) JSON.stringify([...Array(999).keys()].map(n => ({ n, of: [n, n] })));";
    let target = Target::start(Command::new("node").args(["--use-largepages=on", "-e", program]));
    let own = |line: &&str| line.ends_with("/node");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    let code: Vec<&str> = maps.lines().filter(own).collect();
    let gap = code.windows(2).any(|pair| {
        let [before, after] = [pair[0], pair[1]].map(|line| line.split(['-', ' ']).collect::<Vec<_>>());
        before[1] != after[0]
    });
    if !gap {
        skip("this Node does not move its code");
        return;
    }
    let claims = [
        seen(501, "samples", |_| true),
        at_least(0.3, "JSON", |stack| stack.iter().any(|frame| frame.contains("JsonStringif"))),
        at_most(0.4, "unknown code", |stack| user_leaf(stack) == Some(UNKNOWN)),
    ];
    prove(|| profile(&target, 4, &[]).folded, &claims);
}
