//! Processes that end before they can be read: their samples keep their own names, and get no others.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::folded::{Folded, is, reaches_root};
use testkit::java::{Jdk, Program};
use testkit::profiler::{Sampling, profile, record, record_watching};
use testkit::spent::{Watch, spend};
use testkit::target::Target;
use testkit::{is_root, native};

/// The path of a compiled program as an argument.
fn path(name: &str) -> String {
    native::program(name).to_str().unwrap().to_owned()
}

#[test]
fn short_processes_keep_their_names() {
    if !is_root() {
        return;
    }
    // These processes mostly start and end: 600 a second on two CPUs, of 8 ms each.
    let spawns = [(); 3].map(|()| {
        Target::start(Command::new(native::program("spawn")).args([path("short"), "2".into(), "8".into()]))
    });
    let pids = [0, 1, 2].map(|i: usize| spawns[i].pid());
    let profile = record_watching(&pids, 4, &["--all".to_owned()]);
    let family = profile.folded.keep(|stack| stack[0] == "short" || stack[0] == "spawn");
    profile.assert_samples_of(&pids, family.total());
    let of_short = family.keep(|stack| stack[0] == "short");
    let work = of_short.within("short_lived_work").total();
    assert!(work * 4 > of_short.total(), "{}", of_short.top(10));
    // Exec, page faults and exit are in the kernel. User code has a name of the program, its loader or libc. Wrong
    // stacks come from a loader without frame pointers whose place is not known yet.
    let bad = of_short.keep(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
    let unknown = bad.total() as f64 / of_short.total() as f64;
    eprintln!("{:.2} % of {} samples have unknown frames", unknown * 100.0, of_short.total());
    assert!(unknown < 0.02, "{unknown} of the samples have unknown frames:\n{}", bad.top(10));
    // The leaf is known, whether it is code of the executed program or of the one before.
    let leaf = bad.count(|stack| stack.last().is_some_and(|frame| frame.starts_with("[unknown")));
    assert!(leaf * 500 < of_short.total(), "{leaf} samples have an unknown leaf:\n{}", bad.top(10));
    let execs = bad
        .count(|stack| stack.iter().any(|frame| is(frame, "begin_new_exec") || is(frame, "load_elf_binary")));
    assert!(execs * 500 < of_short.total(), "{execs} samples of exec have unknown frames:\n{}", bad.top(10));
}

/// A program's mappings are read when the program is first seen to run, not at the end of that window. How much of the
/// program is over by then depends on what else the machine does.
#[test]
fn programs_that_live_for_less_than_a_window_have_whole_stacks() {
    if !is_root() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let program = native::without_frame_pointers("frames.c");
    let _spawn =
        Target::start(Command::new(native::program("spawn")).arg(program).args(["chain", "40", "250"]));
    let profile = record(4, &["--all".to_owned()]);
    let all = profile.folded.keep(|stack| stack[0].starts_with("frames")).within("work");
    assert!(all.total() > 200, "only {} samples:\n{}", all.total(), profile.folded.top(10));
    let whole = all.share(reaches_root);
    eprintln!("{:.2} % of {} samples reach the root", whole * 100.0, all.total());
    assert!(whole > 0.75, "only {whole} of the stacks reach the root:\n{}", all.top(5));
}

#[test]
fn children_are_followed_if_asked_for() {
    if !is_root() {
        return;
    }
    let spawn = Target::start(Command::new(native::program("spawn")).args([&path("short"), "20"]));
    let with = profile(&spawn, 3, &["--children"]);
    with.assert_samples_of(&[spawn.pid()], with.folded.total());
    let work = with.folded.within("short_lived_work").total();
    assert!(work * 10 > with.folded.total() * 8, "{}", with.folded.top(10));
    let without = profile(&spawn, 2, &[]);
    // The children that it waited for ran all the time.
    assert!(without.ticks_of(&[spawn.pid()]).0 > 100.0);
    let others = without.folded.count(|stack| stack.iter().any(|f| is(f, "short_lived_work")));
    assert_eq!(others, 0, "{}", without.folded.top(10));
}

/// Asserts that each of the two alternating programs has enough samples, its own work, and nothing of the other's.
#[track_caller]
fn assert_turns(all: &Folded) {
    for (name, own, other) in [("turn_a", "work_of_a", "work_of_b"), ("turn_b", "work_of_b", "work_of_a")] {
        let of_it = all.keep(|stack| stack[0] == name);
        assert!(of_it.total() > 300, "{} samples of {name}:\n{}", of_it.total(), all.top(10));
        assert_eq!(
            of_it.within(other).total(),
            0,
            "{name} has the other's names:\n{}",
            of_it.within(other).top(5)
        );
        let right = of_it.within(own).total();
        assert!(right * 10 > of_it.total() * 8, "{right} of {}:\n{}", of_it.total(), of_it.top(10));
        let bad = of_it.keep(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
        assert!(bad.total() * 50 < of_it.total(), "{}", bad.top(10));
    }
}

/// A command that starts a program with everything at the same addresses each time.
fn without_aslr(program: &str) -> Command {
    let mut command = Command::new("setarch");
    command.arg("-R").arg(program);
    command
}

#[test]
fn a_process_that_executes_program_after_program_has_the_names_of_each() {
    if !is_root() {
        return;
    }
    let (a, b) = (path("turn_a"), path("turn_b"));
    let target = Target::spawn(without_aslr(&a).args(["20", "1000000", &b]));
    let profile = profile(&target, 4, &[]);
    profile.assert_samples_of(&[target.pid()], profile.folded.total());
    assert_turns(&profile.folded);
}

#[test]
fn programs_that_had_one_pid_one_after_the_other_have_their_own_names() {
    if !is_root() {
        return;
    }
    // Pids are given out in a circle, so this one stays free for a while.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let pid = gone.id().to_string();
    let over = AtomicBool::new(false);
    let all = std::thread::scope(|scope| {
        scope.spawn(|| {
            for program in ["turn_a", "turn_b"].into_iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let done = without_aslr(&path("with_pid")).args([&pid, &path(program), "40"]).status();
                assert!(done.unwrap().success(), "the pid was not to be had");
            }
        });
        let all = record(5, &["--all".to_owned()]);
        over.store(true, Ordering::Relaxed);
        all
    });
    assert_turns(&all.folded);
    let rows = all.report["processes"].as_array().unwrap();
    for name in ["turn_a", "turn_b"] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert_eq!(row["pids"].to_string(), format!("[{pid}]"), "{row}");
    }
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
    let end = Instant::now() + Duration::from_secs(60);
    while (java_files(pid) > 0) != some {
        assert!(Instant::now() < end, "{} logs and memories of JVMs are open", java_files(pid));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A build starts thousands of JVMs while it is profiled.
#[test]
fn jvms_that_have_ended_leave_their_rows_and_no_open_files() {
    if !is_root() {
        return;
    }
    let own = std::process::id().to_string();
    let sampling = Sampling::begin(&["-p", &own, "--children"]);
    let mut pids = Vec::new();
    for _ in 0..2 {
        let java = Program::new("Spin").start(&Jdk::host());
        pids.push(java.pid());
        wait_for_java_files(sampling.pid(), true);
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
