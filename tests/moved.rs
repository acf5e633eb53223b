//! Code that a process has moved to memory without a file, for huge pages, has the names and callers that it has in its
//! file, if it is proven to be that code.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::Command;

use testkit::folded::{Folded, is, user_leaf};
use testkit::profiler::{Profile, profile};
use testkit::target::Target;
use testkit::{is_root, lacks, native, scratch, skip};

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

#[track_caller]
fn assert_named(what: &str, profile: &Profile) -> Folded {
    let all = &profile.folded;
    assert!(all.total() > 200, "{what}: only {} samples", all.total());
    let named = all.share(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "work")));
    let unknown = all.share(|stack| stack.iter().any(|frame| frame == UNKNOWN));
    eprintln!("{what}: {:.2} % of {} samples are named", named * 100.0, all.total());
    assert!(named > 0.98 && unknown < 0.01, "{what}:\n{}", all.top(10));
    all.keep(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "work")))
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
        let work = assert_named(how, &profile(&target, 2, &[]));
        if cfg!(target_arch = "x86_64") {
            let right = work.share(is_right);
            assert!(right > 0.98, "{how}: only {right} of the stacks are whole:\n{}", work.top(10));
        }
    }
}

/// The file's table, used while the move was not known, was the right one.
#[test]
fn code_that_is_moved_while_it_is_profiled_loses_nothing() {
    if !is_root() {
        return;
    }
    let target = moved(&["late"]);
    let work = assert_named("late", &profile(&target, 4, &[]));
    assert!(has_moved(&target));
    if cfg!(target_arch = "x86_64") {
        let right = work.share(is_right);
        assert!(right > 0.97, "only {right} of the stacks are whole:\n{}", work.top(10));
    }
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
        let profile = profile(&target, 4, &[]);
        let work = assert_named(args[0], &profile);
        if cfg!(target_arch = "x86_64") {
            let (right, main) =
                (work.share(is_right), work.share(|stack| stack.iter().any(|f| is(f, "main"))));
            eprintln!("{}: {:.1} % have their callers", args[0], right * 100.0);
            assert!(right > 0.5, "{}: only {right} of the stacks are whole:\n{}", args[0], work.top(10));
            assert!(main <= right + 0.01, "{}: wrong callers:\n{}", args[0], work.top(10));
        }
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
    let work = assert_named("with frame pointers", &profile(&target, 3, &[]));
    let (right, main) = (work.share(is_right), work.share(|stack| stack.iter().any(|f| is(f, "main"))));
    assert!(main > 0.98, "only {main} of the stacks reach main:\n{}", work.top(10));
    assert!(right > 0.5, "only {right} of the stacks are whole:\n{}", work.top(10));
}

/// A page with other bytes than the file's may be any code.
#[test]
fn a_page_that_differs_is_unknown() {
    if !is_root() {
        return;
    }
    let target = moved(&["patched"]);
    assert!(has_moved(&target));
    let all = profile(&target, 3, &[]).folded;
    assert!(all.total() > 200, "only {} samples", all.total());
    let unknown = all.share(|stack| user_leaf(stack) == Some(UNKNOWN));
    assert!(unknown > 0.98, "{}", all.top(10));
    let guessed = all.count(|stack| stack.iter().any(|frame| is(frame, "work")));
    assert_eq!(guessed, 0, "{}", all.top(10));
}

/// Node moves its own code with this option, if the kernel gives huge pages on request.
#[test]
fn node_with_large_pages() {
    if !is_root() || lacks("node") {
        return;
    }
    let program = "console.log('ready'); const end = Date.now() + 60000;\n\
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
    let profile = profile(&target, 4, &[]);
    let all = &profile.folded;
    let own = all.share(|stack| stack.iter().any(|frame| frame.contains("JsonStringif")));
    let unknown = all.share(|stack| user_leaf(stack) == Some(UNKNOWN));
    eprintln!("node: {own} in JSON, {unknown} unknown");
    assert!(all.total() > 500 && own > 0.3 && unknown < 0.4, "{}", all.top(10));
}
