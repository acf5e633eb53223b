//! Reasons of waits, end to end: each thread of a program waits in one way, whose leaf the profile shows.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::cgroup::Group;
use testkit::profiler::while_sampling;
use testkit::reasons::{LEAVES, LOCK_LEAVES, mistakes};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

const LENGTH: Duration = Duration::from_secs(2);

#[test]
fn each_wait_has_its_reason() {
    if !is_root() {
        return;
    }
    let start = |name: &str| {
        let program =
            native::with_flags(&format!("{name}.c"), name, &["-fno-omit-frame-pointer", "-pthread"]);
        Target::start(Command::new(program).arg(scratch(name)))
    };
    let mut targets = ["reasons", "lock_reasons"].map(start);
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    // The profiler needs longer to begin than the threads need to come to their waits.
    let args = ["-p", &pids, "--children", "-e", "wait", "--per-thread", "--raw-threads", "--idle"];
    let profile = while_sampling(&[], &args, || std::thread::sleep(LENGTH));
    let periods = LENGTH.as_nanos() as f64 / profile.account("period_ns") as f64;
    for (target, leaves) in targets.iter_mut().zip([&LEAVES[..], &LOCK_LEAVES]) {
        let mistakes = mistakes(&profile.folded, leaves, target.lines(), periods);
        assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
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

/// A thread in a frozen cgroup is frozen, regardless of its state before.
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
