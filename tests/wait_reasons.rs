//! Reasons of waits, end to end: each thread of a program waits in one way, whose leaf the profile shows.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::cgroup::Group;
use testkit::profiler::{Profile, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

const LENGTH: Duration = Duration::from_secs(2);

/// Thread and leaf. With `--idle`, a thread that waits for work has the rule in its leaf.
const LEAVES: [(&str, &str); 23] = [
    ("flock", "[wait: file lock]"),
    ("eventfd", "[wait: eventfd]"),
    ("inotify", "[wait: file events]"),
    ("timerfd", "[wait: timer]"),
    ("signalfd", "[wait: signal]"),
    ("sigwait", "[wait: signal]"),
    ("paused", "[wait: signal]"),
    ("msgrcv", "[wait: message queue]"),
    ("semop", "[wait: System V semaphore]"),
    ("pipe write", "[wait: pipe write]"),
    ("pipe read", "[wait: pipe read]"),
    ("socket write", "[wait: socket write]"),
    ("socket read", "[wait: socket read]"),
    ("accept", "[idle: accept]"),
    ("connect", "[wait: connect]"),
    ("poll", "[wait: poll]"),
    ("epoll", "[idle: event loop]"),
    ("terminal", "[wait: terminal]"),
    ("io_uring", "[wait: io_uring]"),
    ("userfaultfd", "[wait: userfaultfd]"),
    ("vfork", "[blocked: child process]"),
    ("wait", "[wait: child process]"),
    ("traced", "[wait: stopped]"),
];

/// Checks that a thread waited in one way all the time: nearly each period of the run has its sample.
fn assert_waits(profile: &Profile, thread: &str, leaf: &str) {
    let name = format!("[{thread} tid=");
    let own = profile.folded.keep(|frames| frames.get(1).is_some_and(|frame| frame.starts_with(&name)));
    let periods = LENGTH.as_nanos() as f64 / profile.account("period_ns") as f64;
    let with = own.count(|frames| frames.last().unwrap() == leaf);
    assert!(
        own.total() as f64 >= 0.95 * periods,
        "{thread}: {} of {periods}\n{}",
        own.total(),
        profile.folded.top(60)
    );
    assert!(with as f64 >= 0.99 * own.total() as f64, "{thread}: {with} of {}\n{}", own.total(), own.top(5));
}

#[test]
fn each_wait_has_its_reason() {
    if !is_root() {
        return;
    }
    let program = native::with_flags("reasons.c", "reasons", &["-fno-omit-frame-pointer", "-pthread"]);
    let mut target = Target::start(Command::new(program).arg(scratch("reasons")));
    let pid = target.pid().to_string();
    // The profiler needs longer to begin than the threads need to come to their waits.
    let args = ["-p", &pid, "--children", "-e", "wait", "--per-thread", "--raw-threads", "--idle"];
    let profile = while_sampling(&[], &args, || std::thread::sleep(LENGTH));
    let lacks: Vec<String> =
        target.lines().iter().filter_map(|line| line.strip_prefix("without ").map(str::to_owned)).collect();
    for (thread, leaf) in LEAVES.iter().filter(|(thread, _)| !lacks.iter().any(|lack| lack == thread)) {
        assert_waits(&profile, thread, leaf);
    }
    assert_eq!(profile.report["accounts"]["lost"], serde_json::json!([]));
}

#[test]
fn a_stopped_thread_is_stopped() {
    if !is_root() {
        return;
    }
    let target = Target::start(&mut Command::new(native::program("kernel")));
    target.signal(Signal::STOP);
    let pid = target.pid().to_string();
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || std::thread::sleep(LENGTH));
    let stopped = profile.folded.share(|frames| frames.last().unwrap() == "[wait: stopped]");
    let period = profile.account("period_ns") as f64;
    assert!(profile.folded.total() as f64 * period >= 0.95 * LENGTH.as_nanos() as f64);
    assert!(stopped > 0.99, "{stopped}\n{}", profile.folded.top(5));
    target.signal(Signal::CONT);
}

/// A thread in a frozen cgroup is frozen, whatever it did before.
#[test]
fn a_frozen_thread_is_frozen() {
    if !is_root() {
        return;
    }
    let groups =
        testkit::cgroup::hierarchies().into_iter().map(|(_, path)| Group::own(&path, "waits-frozen"));
    let knobs = [("cgroup.freeze", "1", "0"), ("freezer.state", "FROZEN", "THAWED")];
    let found = groups.into_iter().find_map(|group| {
        let knob = knobs.iter().find(|(file, ..)| group.path().join(file).exists())?;
        Some((group, knob))
    });
    let Some((group, (file, freeze, thaw))) = found else {
        return skip("no hierarchy freezes groups");
    };
    let target = Target::start(&mut group.enter(&native::program("native")));
    fs::write(group.path().join(file), freeze).unwrap();
    let pid = target.pid().to_string();
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || std::thread::sleep(LENGTH));
    fs::write(group.path().join(file), thaw).unwrap();
    let frozen = profile.folded.share(|frames| frames.last().unwrap().ends_with(": frozen]"));
    let period = profile.account("period_ns") as f64;
    assert!(profile.folded.total() as f64 * period >= 0.95 * LENGTH.as_nanos() as f64);
    assert!(frozen > 0.99, "{frozen}\n{}", profile.folded.top(5));
}
