//! Events other than CPU time, end to end: each is counted where it happens, and the accounts add up to the kernel's
//! own count.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::folded::Folded;
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, out_file, run, until_it_ends, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// The number of rounds of a program; each touches 10 new pages in one function and 30 in another one.
const ROUNDS: u64 = 200;

/// The path of a file whose creation starts the rounds.
fn go(name: &str) -> PathBuf {
    let file = scratch("go").join(name);
    let _ = fs::remove_file(&file);
    file
}

/// Profiles the rounds of a program that waits for `go`.
fn touched(target: &mut Target, go: &Path, more: &[&str]) -> Profile {
    let pid = target.pid().to_string();
    let args = [&["-p", &pid], more].concat();
    while_sampling(&[], &args, || {
        fs::write(go, "").unwrap();
        target.wait_for(|line| line == "touched");
    })
}

/// Asserts that every fault was counted once, and the faults of the two functions in these functions.
#[track_caller]
fn assert_all(profile: &Profile, functions: [&str; 2]) {
    for (name, pages) in functions.into_iter().zip([10, 30]) {
        let stacks = profile.folded.within(name);
        assert_eq!(
            stacks.total(),
            pages * ROUNDS,
            "{name}: {}\n{}",
            profile.folded.top(10),
            profile.report["accounts"]
        );
    }
    let accounts = &profile.report["accounts"];
    assert_eq!(profile.report["event"], "page-faults");
    assert_eq!(accounts["one_in"], 1);
    assert_eq!(profile.account("ticks"), profile.account("expected"), "{accounts}");
    let seen = profile.account("kept") + profile.account("filtered");
    assert_eq!((seen, &accounts["lost"]), (profile.account("ticks"), &serde_json::json!([])));
    assert_eq!(profile.account("kept"), profile.folded.total());
}

#[test]
fn page_faults_are_counted_where_they_happen() {
    if !is_root() {
        return;
    }
    for program in [
        native::with_flags("touched.c", "touched-fp", &["-fno-omit-frame-pointer"]),
        native::without_frame_pointers("touched.c"),
    ] {
        let go = go("native");
        let mut target = Target::start(Command::new(program).arg(&go).arg(ROUNDS.to_string()));
        assert_all(&touched(&mut target, &go, &["-e", "page-faults,cpu"]), ["touch10", "touch30"]);
    }
}

/// A command begins only when its events run, however busy the machine is.
#[test]
fn a_command_is_sampled_from_its_beginning() {
    if !is_root() {
        return;
    }
    let go = go("command");
    fs::write(&go, "").unwrap();
    let program = native::with_flags("touched.c", "touched-fp", &["-fno-omit-frame-pointer"]);
    // The program's output would be in the report.
    let command = format!("exec {} {} {ROUNDS} end >/dev/null", program.display(), go.display());
    let args = ["-e", "page-faults,cpu", "--", "sh", "-c", &command];
    assert_all(&until_it_ends(&args, || ()), ["touch10", "touch30"]);
}

#[test]
fn page_faults_of_java_are_counted_in_their_methods() {
    if !is_root() {
        return;
    }
    let go = go("java");
    let program =
        Program::new("Touched").flags(&["-Xbatch"]).args(&[go.to_str().unwrap(), &ROUNDS.to_string()]);
    let mut target = program.start(&Jdk::host());
    assert_all(
        &touched(&mut target, &go, &["-e", "page-faults,cpu"]),
        ["Touched.touch10", "Touched.touch30"],
    );
}

/// One sample for ten faults stands for ten.
#[test]
fn a_sample_of_one_in_many_stands_for_all_of_them() {
    if !is_root() {
        return;
    }
    let go = go("one-in");
    let program = native::with_flags("touched.c", "touched-fp", &["-fno-omit-frame-pointer"]);
    let mut target = Target::start(Command::new(program).arg(&go).arg(ROUNDS.to_string()));
    let profile = touched(&mut target, &go, &["-e", "page-faults,cpu", "-c", "10"]);
    assert_eq!(profile.report["accounts"]["one_in"], 10);
    // The kernel counts to ten on each CPU, for all processes together, so chance decides on the remainder.
    let near = |pages: u64| pages * ROUNDS / 10 - 20..=pages * ROUNDS / 10 + 20;
    for (name, pages) in [("touch10", 10), ("touch30", 30)] {
        let stacks = profile.folded.within(name);
        assert!(near(pages).contains(&stacks.total()), "{name}: {}", stacks.top(10));
    }
}

/// Formats that hold only one event get a file for each event, beside the first one's.
#[test]
fn each_event_has_its_file() {
    if !is_root() {
        return;
    }
    let out = out_file("folded");
    let line =
        ["-d", "1", "-e", "cpu,context-switches", "-a", "--report", "json", "-o", out.to_str().unwrap()];
    let run = run(line).success();
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let switches =
        out.with_file_name(format!("{}-context-switches.folded", out.file_stem().unwrap().to_str().unwrap()));
    let totals = [&out, &switches].map(|file| {
        let total = Folded::parse(&fs::read_to_string(file).unwrap()).total();
        fs::remove_file(file).unwrap();
        total
    });
    let kept = |report: &serde_json::Value| report["accounts"]["kept"].as_u64().unwrap();
    let of_switches = &report["events"][0];
    assert_eq!(of_switches["event"], "context-switches");
    assert_eq!(totals, [kept(&report), kept(of_switches)]);
    assert!(totals[1] > 0);
}
