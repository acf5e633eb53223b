//! Processes that end before they can be read: their samples keep their own names, and get no others.
//!
//! A program that needs some milliseconds of CPU time lives for longer on a busy machine, and the profiler needs longer
//! to see it, both by about the same factor. So lives are CPU time here. If the profiler gets no CPU for so long that
//! the kernel drops events of processes, the report says so.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::cgroup::{Group, naming};
use testkit::claims::{StackClaim, at_least, at_most, prove, seen};
use testkit::folded::{Folded, has, reaches_root};
use testkit::java::Program;
use testkit::profiler::{Profile, Sampling, profile, record, record_watching, with_time};
use testkit::spent::{Watch, spend};
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// The path of a compiled program as an argument.
fn path(name: &str) -> String {
    native::program(name).to_str().unwrap().to_owned()
}

/// Whether a stack is of the process with this name.
fn of(name: &'static str) -> impl Fn(&[String]) -> bool + Copy {
    move |stack: &[String]| stack[0] == name
}

fn is_unknown(frame: &str) -> bool {
    frame.starts_with("[unknown")
}

fn has_unknown(stack: &[String]) -> bool {
    stack.iter().any(|frame| is_unknown(frame))
}

/// Starts a program that starts this one again and again, two at a time.
fn spawn(program: &[&str]) -> Target {
    Target::start(Command::new(native::program("spawn")).args(program))
}

/// Whether the profiler got all events of processes.
fn is_complete(profile: &Profile) -> bool {
    let mut warnings = profile.report["warnings"].as_array().unwrap().iter();
    !warnings.any(|words| words.as_str().unwrap().contains("were lost by the kernel"))
}

#[test]
fn short_processes_keep_their_names() {
    if !is_root() {
        return;
    }
    // These processes mostly start and end: 600 a second on two CPUs, of 8 ms each.
    let spawns = [(); 3].map(|()| spawn(&[&path("short"), "2", "8"]));
    let pids = spawns.each_ref().map(Target::pid);
    let list = pids.map(|pid| pid.to_string()).join(",");
    let line = ["-p", &list, "--children"].map(str::to_owned);
    let sample = || {
        let mut profiles = (0..30).map(|_| record_watching(&pids, 2, &line));
        let profile = profiles.find(is_complete).expect("a profile with all events of processes");
        profile.assert_samples_of(&pids, profile.folded.total());
        profile.folded
    };
    let short = of("short");
    // The leaf is known, whether it is code of the executed program or of the one before.
    let has_unknown_leaf = |stack: &[String]| stack.last().is_some_and(|leaf| is_unknown(leaf));
    let is_unknown_exec = |stack: &[String]| {
        has_unknown(stack) && (has("begin_new_exec")(stack) || has("load_elf_binary")(stack))
    };
    let claims = [
        at_least(0.25, "work of the program", has("short_lived_work")).among(short),
        // Exec, page faults and exit are in the kernel. User code has a name of the program, its loader or libc. Wrong
        // stacks come from a loader without frame pointers whose place is not known yet.
        at_most(0.02, "stacks with unknown frames", has_unknown).among(short),
        at_most(0.002, "unknown leaves", has_unknown_leaf).among(short),
        at_most(0.002, "unknown frames during exec", is_unknown_exec).among(short),
    ];
    prove(sample, &claims);
}

/// A program's mappings are read when the program is first seen to run, not at the end of that window.
#[test]
fn programs_that_live_for_less_than_a_window_have_whole_stacks() {
    if !is_root() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let program = native::without_frame_pointers_and("short.c", "short-whole", &[]);
    let spawn = spawn(&[program.to_str().unwrap(), "250"]);
    let of_work = |stack: &[String]| of("short-whole")(stack) && has("short_lived_work")(stack);
    let claims = [
        seen(200, "samples of the program", of_work),
        at_least(0.75, "whole stacks", reaches_root).among(of_work),
    ];
    prove(|| profile(&spawn, 2, &["--children"]).folded, &claims);
}

#[test]
fn children_are_followed_if_asked_for() {
    if !is_root() {
        return;
    }
    let spawn = spawn(&[&path("short"), "20"]);
    let work = has("short_lived_work");
    let with = || {
        let with = with_time(&[spawn.pid()], || profile(&spawn, 1, &["--children"]));
        with.assert_samples_of(&[spawn.pid()], with.folded.total());
        with.folded
    };
    prove(with, &[at_least(0.8, "work of the children", &work)]);
    // The children that it waited for ran all the time.
    let without = with_time(&[spawn.pid()], || profile(&spawn, 1, &[]));
    assert_eq!(without.folded.count(work), 0, "{}", without.folded.top(10));
}

/// What the two alternating programs do.
const WORK: [&str; 2] = ["work_of_a", "work_of_b"];

/// Claims that each of the two, which run under these names, has its own work, and hardly anything unknown.
fn turns(names: [&'static str; 2]) -> Vec<StackClaim<'static>> {
    let claims = |(name, work): (&'static str, &'static str)| {
        [
            seen(300, format!("samples of {name}"), of(name)),
            at_least(0.8, format!("{name} has {work}"), has(work)).among(of(name)),
            at_most(0.02, format!("{name} has unknown frames"), has_unknown).among(of(name)),
        ]
    };
    names.into_iter().zip(WORK).flat_map(claims).collect()
}

/// Asserts that neither of the two has names of the other.
#[track_caller]
fn assert_no_others(all: &Folded, names: [&'static str; 2]) {
    for (name, other) in names.into_iter().zip([WORK[1], WORK[0]]) {
        let wrong = all.keep(of(name)).within(other);
        assert_eq!(wrong.total(), 0, "{name} has the other's names:\n{}", wrong.top(5));
    }
}

#[test]
fn a_process_that_executes_program_after_program_has_the_names_of_each() {
    if !is_root() {
        return;
    }
    let names = ["turn_a", "turn_b"];
    let [a, b] = names.map(path);
    // Without ASLR everything is at the same addresses each time.
    let target = Target::spawn(Command::new("setarch").args(["-R", &a, "20", "1000000", &b]));
    let sample = || {
        let profile = with_time(&[target.pid()], || profile(&target, 1, &[]));
        profile.assert_samples_of(&[target.pid()], profile.folded.total());
        assert_no_others(&profile.folded, names);
        profile.folded
    };
    prove(sample, &turns(names));
}

/// Two programs in turn, at the same addresses, under one pid that was free; their paths say what they are called. Ends
/// when the pid is not to be had.
const TURNS: &str =
    "while setarch -R \"$0\" \"$1\" \"$2\" 40 && setarch -R \"$0\" \"$1\" \"$3\" 40; do :; done";

/// Starts the turns; returns the pid too.
fn start_turns(links: [&str; 2]) -> (Target, u32) {
    // Pids are given out in a circle, so this one mostly stays free for a while.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", TURNS, &path("with_pid"), &gone.id().to_string()]).args(links);
    (Target::spawn(&mut shell), gone.id())
}

#[test]
fn programs_that_had_one_pid_one_after_the_other_have_their_own_names() {
    if !is_root() {
        return;
    }
    // Programs of other tests have other names.
    let names = ["one-pid-a", "one-pid-b"];
    let links = [0, 1].map(|at: usize| {
        let link = scratch("one-pid").join(names[at]);
        let _ = std::fs::remove_file(&link);
        symlink(native::program(["turn_a", "turn_b"][at]), &link).unwrap();
        link.to_str().unwrap().to_owned()
    });
    let links = links.each_ref().map(String::as_str);
    let all_processes = ["--all", "--java", "off"].map(str::to_owned);
    let (mut running, mut pid) = start_turns(links);
    let mut restarts = 0;
    let sample = || loop {
        let all = record(2, &all_processes);
        if running.is_alive() {
            let rows = all.report["processes"].as_array().unwrap();
            for row in rows.iter().filter(|row| names.iter().any(|name| row["name"] == *name)) {
                assert_eq!(row["pids"], serde_json::json!([pid]), "{row}");
            }
            assert_no_others(&all.folded, names);
            break all.folded;
        }
        // A program of another test got the pid between two turns.
        restarts += 1;
        assert!(restarts < 30, "no pid is to be had");
        (running, pid) = start_turns(links);
    };
    prove(sample, &turns(names));
}

/// The number of agent logs and JVM memories that a process has open.
fn java_files(pid: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    let is_java = |link: &str| link.contains("jvm-symbols") || link.ends_with("/mem");
    links.filter(|link| link.to_str().is_some_and(is_java)).count()
}

/// Waits until a process has some of them open, or none.
fn wait_for_java_files(pid: u32, some: bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while (java_files(pid) > 0) != some {
        assert!(Instant::now() < end, "{} logs and memories of JVMs are open", java_files(pid));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A build starts thousands of JVMs while it is profiled.
#[test]
fn jvms_that_have_ended_leave_their_rows_and_no_open_files() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "ended-jvms");
    let sampling = Sampling::begin(&["-G", &group.arg(), "--attach-timeout", "60s"]);
    let mut pids = Vec::new();
    for _ in 0..2 {
        let java = Program::new("Shares").args(&["100"]).start_in(&group);
        pids.push(java.pid());
        wait_for_java_files(sampling.pid(), true);
        // The agent attaches and begins its log.
        sampling.wait_for(" agent, in ");
        spend(java.pid(), Duration::from_millis(500));
        drop(java);
        wait_for_java_files(sampling.pid(), false);
    }
    sampling.signal(Signal::INT);
    let report = sampling.end(Watch::keep(&[])).report;
    for pid in pids {
        let row = report["jvms"].as_array().unwrap().iter().find(|row| row["pid"] == pid);
        let row = row.unwrap_or_else(|| panic!("no row of {pid}: {}", report["jvms"]));
        assert!(row["names"]["agent_during_run"].is_object(), "{row}");
        assert!(["log_bytes", "ticks", "java_ticks"].iter().all(|n| row[n].as_u64().unwrap() > 0), "{row}");
    }
}
