//! Waiting time of threads that come, go and change while they wait, and of more threads than there is room for: no wait
//! is lost, or its loss is counted.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::process::Command;

use testkit::profiler::{lost, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

const FLAGS: [&str; 2] = ["-fno-omit-frame-pointer", "-pthread"];

/// Starts a program that begins when the file exists, with a further argument.
fn start(name: &str, argument: &str) -> (Target, std::path::PathBuf) {
    let program = native::with_flags(&format!("{name}.c"), name, &FLAGS);
    let go = scratch("wait-faults").join(format!("go-{name}"));
    let _ = fs::remove_file(&go);
    (Target::start(Command::new(program).arg(&go).arg(argument)), go)
}

#[test]
fn waits_of_threads_that_come_go_and_change_are_whole() {
    if !is_root() {
        return;
    }
    let (mut target, go) = start("upheaval", "3000");
    let pid = target.pid().to_string();
    let args = ["-p", &pid, "--children", "-e", "wait"];
    let profile = while_sampling(&[], &args, || {
        fs::write(&go, "").unwrap();
        target.wait_for(|line| line == "over");
    });
    let accounts = &profile.report["accounts"];
    assert_eq!(accounts["lost"], serde_json::json!([]), "{accounts}");
    assert_eq!(profile.report["waits"]["untimed"], 0);
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    let period = profile.account("period_ns") as f64;
    let lines = target.lines().to_vec();
    let measured: Vec<(&str, f64)> = lines
        .iter()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, ns)| Some((name, ns.parse().ok()?)))
        .collect();
    let children = measured.iter().find(|(name, _)| *name == "children").unwrap().1;
    assert!(children > 300.0, "{children} children are no storm");
    if lines.iter().any(|line| line == "without reused") {
        skip("this host lets no program choose a tid");
    }
    let functions = measured.iter().filter(|(name, _)| *name != "children");
    assert!(functions.clone().count() >= 6, "{lines:?}");
    for (function, ns) in functions {
        let is = profile.folded.within(function).total() as f64 * period;
        // Each thread has a timeline of its own: chance decides on the last block of each. The program's clocks are read
        // a moment outside of each wait.
        let limit = 0.03 * ns + 4.0 * (ns * period).sqrt();
        assert!((is - ns).abs() <= limit, "{function}: {is} of {ns}, {limit}\n{}", profile.folded.top(12));
        assert!(*ns > 2e8, "{function} hardly waited: {ns}");
    }
}

/// More threads than the table of waits holds: what is not measured is counted, and the report says so.
#[test]
fn waits_without_room_are_counted() {
    if !is_root() {
        return;
    }
    /// The smallest table has 16,384 entries, and this host has fewer than 8,192 threads when sampling begins.
    const CROWD: u64 = 17_500;
    let (mut target, go) = start("crowd", &CROWD.to_string());
    let pid = target.pid().to_string();
    let mut crowd = 0;
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || {
        fs::write(&go, "").unwrap();
        let line = target.wait_for(|line| line.starts_with("crowd "));
        crowd = line["crowd ".len()..].parse().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
    });
    if crowd < CROWD {
        return skip(&format!("this host allows only {crowd} threads"));
    }
    let untimed = profile.report["waits"]["untimed"].as_u64().unwrap();
    // Those without room sleep twice a second.
    assert!(untimed > CROWD - 16_384, "{untimed}");
    let limits = profile.report["limits"].to_string();
    assert!(limits.contains("wait-threads"), "{limits}");
    // Each waiting thread is a stack of its own at the end, so that stacks may be lost too. They are a line of the profile.
    let (kept, lost) = (profile.account("kept"), lost(&profile.report));
    assert_eq!(kept + lost, profile.folded.total());
    assert!(kept > 0 && target.is_alive());
    assert_eq!(kept + profile.account("filtered") + lost, profile.account("ticks"));
}
