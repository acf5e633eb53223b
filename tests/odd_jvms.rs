//! JVMs that cannot have the agent, or whose Java has no frames of its own: the report says which and why.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::folded::is;
use testkit::java::{Jdk, Program, classes, in_container};
use testkit::profiler::{profile, record_watching, run};
use testkit::target::Target;
use testkit::{is_root, native};

/// A JVM in a program that forks, such as JPype under gunicorn: no thread in the child answers, and no run waits.
#[test]
fn a_forked_child_of_a_jvm_is_named_by_its_memory_at_once() {
    if !is_root() {
        return;
    }
    let mut parent = forking(1);
    let said = parent.wait_for(|line| line.starts_with("child "));
    let child = said.trim_start_matches("child ");
    let begun = Instant::now();
    let args = ["-p", child, "--attach-timeout", "300s"].map(str::to_owned);
    let read = record_watching(&[child.parse().unwrap()], 2, &args);
    assert!(begun.elapsed() < Duration::from_secs(200), "it was waited for: {:?}", begun.elapsed());
    let jvm = &read.report["jvms"][0];
    assert_eq!(jvm["no_agent"]["label"], "no JVM threads", "{jvm}");
    assert!(jvm["names"]["memory"].is_object(), "{jvm}");
    let named = read.folded.share(|stack| stack.iter().any(|frame| is(frame, "Spin.turn")));
    assert!(read.folded.total() > 50 && named > 0.9, "{named}:\n{}", read.folded.top(5));
    let table = run(["jvms"]).success().stdout;
    let row = |pid: &str| table.lines().find(|line| line.split_whitespace().next() == Some(pid)).unwrap();
    assert!(row(child).contains("no: no JVM threads") && row(child).contains("memory"), "{table}");
    assert!(row(&parent.pid().to_string()).contains("yes"), "{table}");
}

#[test]
fn a_child_that_a_jvm_forks_during_the_run_is_named_too() {
    if !is_root() {
        return;
    }
    let parent = forking(5);
    let forked = profile(&parent, 8, &["--children"]);
    let jvms = forked.report["jvms"].as_array().unwrap();
    let child = jvms.iter().find(|jvm| jvm["pid"] != parent.pid());
    let child = child.unwrap_or_else(|| panic!("{}", forked.report["jvms"]));
    assert!(
        child["no_agent"]["label"] == "no JVM threads" && child["names"]["memory"].is_object(),
        "{child}"
    );
    // The parent only waits.
    let turns = forked.folded.count(|stack| stack.iter().any(|frame| is(frame, "Spin.turn")));
    assert!(turns > 50, "{turns}:\n{}", forked.folded.top(5));
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
        let profile = profile(&target, 2, &[]);
        let jvm = &profile.report["jvms"][0];
        assert_eq!(jvm["names"]["refused"]["label"], "Zero VM", "{jvm}");
        assert!(jvm["undescribed"].is_null() && jvm["no_agent"].is_null(), "{jvm}");
        let native =
            profile.folded.share(|stack| stack.iter().any(|frame| frame.contains("ZeroInterpreter")));
        assert!(profile.folded.total() > 50 && native > 0.9, "{}", profile.folded.top(5));
        assert!(run(["jvms"]).success().stdout.contains("no: Zero VM"));
    });
}
