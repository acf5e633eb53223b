//! JVMs that cannot have the agent, or whose Java has no frames of its own: the report says which and why.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::claims::{at_least, prove};
use testkit::folded::is;
use testkit::java::{Jdk, Program, classes, in_container};
use testkit::profiler::{Sampling, profile, record, run};
use testkit::spent::{Watch, spend};
use testkit::target::Target;
use testkit::{is_root, native};

/// Whether a stack is in the compiled method of the program `Spin`.
fn turns(stack: &[String]) -> bool {
    stack.iter().any(|frame| is(frame, "Spin.turn"))
}

/// The pid in the line `child PID`.
fn child_of(parent: &mut Target) -> u32 {
    let said = parent.wait_for(|line| line.starts_with("child "));
    said.trim_start_matches("child ").parse().unwrap()
}

/// A JVM in a program that forks, such as JPype under gunicorn: no thread in the child answers, and no run waits.
#[test]
fn a_forked_child_of_a_jvm_is_named_by_its_memory_at_once() {
    if !is_root() {
        return;
    }
    let mut parent = forking(1);
    let child = child_of(&mut parent);
    let batch = || {
        let begun = Instant::now();
        let args = ["-p", &child.to_string(), "--attach-timeout", "300s"].map(str::to_owned);
        let read = record(1, &args);
        assert!(begun.elapsed() < Duration::from_secs(200), "it was waited for: {:?}", begun.elapsed());
        let jvm = &read.report["jvms"][0];
        assert_eq!(jvm["no_agent"]["label"], "no JVM threads", "{jvm}");
        assert!(jvm["names"]["memory"].is_object(), "{jvm}");
        read.folded
    };
    prove(batch, &[at_least(0.9, "stacks in the compiled method", turns)]);
    let table = run(["jvms"]).success().stdout;
    let row = |pid: u32| {
        let is_its = |line: &&str| line.split_whitespace().next() == Some(pid.to_string().as_str());
        table.lines().find(is_its).unwrap_or_else(|| panic!("no row of {pid}: {table}"))
    };
    assert!(row(child).contains("no: no JVM threads") && row(child).contains("memory"), "{table}");
    assert!(row(parent.pid()).contains("yes"), "{table}");
}

#[test]
fn a_child_that_a_jvm_forks_during_the_run_is_named_too() {
    if !is_root() {
        return;
    }
    let (mut parent, sampling) = sampled_before_it_forks();
    let child = child_of(&mut parent);
    sampling.wait_for(&format!("JVM {child} (forked): opened"));
    spend(child, Duration::from_millis(500));
    sampling.signal(Signal::INT);
    let forked = sampling.end(Watch::keep(&[]));
    let jvms = forked.report["jvms"].as_array().unwrap();
    let row = jvms.iter().find(|jvm| jvm["pid"] == child).unwrap_or_else(|| panic!("{jvms:?}"));
    assert!(row["no_agent"]["label"] == "no JVM threads" && row["names"]["memory"].is_object(), "{row}");
    // The parent only waits.
    let turns = forked.folded.count(turns);
    assert!(turns > 50, "{turns}:\n{}", forked.folded.top(5));
}

/// A JVM in a program that has not forked yet, and a profiler that samples it. A busy machine needs long until then.
fn sampled_before_it_forks() -> (Target, Sampling) {
    for seconds in [4, 16, 64] {
        let mut parent = forking(seconds);
        let sampling = Sampling::begin(&["-p", &parent.pid().to_string(), "--children"]);
        if !parent.lines().iter().any(|line| line.starts_with("child ")) {
            return (parent, sampling);
        }
    }
    panic!("no profiler was ready within a minute");
}

/// A JVM in a program that forks this many seconds after the JVM is warm.
fn forking(seconds: u32) -> Target {
    let jdk = Jdk::host();
    let home = jdk.home().unwrap();
    let include = ["include", "include/linux"].map(|dir| format!("-I{}", home.join(dir).display()));
    let flags: Vec<&str> = include.iter().map(String::as_str).collect();
    let program = native::without_frame_pointers_and("forked.c", "forked", &flags);
    let mut command = Command::new(program);
    Target::start(command.arg(home.join("lib/server/libjvm.so")).arg(classes()).arg(seconds.to_string()))
}

#[test]
#[ignore = "a rarely used build: scripts/jdk-roots.sh 17-zero"]
fn a_zero_vm_says_why_its_java_has_no_names() {
    in_container("17-zero", |jdk| {
        let target = Program::new("Spin").flags(&["-zero"]).start(jdk);
        let batch = || {
            let profile = profile(&target, 1, &[]);
            let jvm = &profile.report["jvms"][0];
            assert_eq!(jvm["names"]["refused"]["label"], "Zero VM", "{jvm}");
            assert!(jvm["undescribed"].is_null() && jvm["no_agent"].is_null(), "{jvm}");
            profile.folded
        };
        let interprets = |stack: &[String]| stack.iter().any(|frame| frame.contains("ZeroInterpreter"));
        prove(batch, &[at_least(0.9, "stacks in the interpreter", interprets)]);
        assert!(run(["jvms"]).success().stdout.contains("no: Zero VM"));
    });
}
