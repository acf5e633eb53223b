//! Waiting time, end to end: each wait is sampled in proportion to its length, where it waits, with its reason, and the
//! sums agree with what the programs measured of themselves.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use testkit::cgroup::Group;
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// How long the program's threads wait, ms.
const LENGTH_MS: u64 = 5000;

/// Nanoseconds that the program measured in each function.
fn measured(target: &mut Target) -> BTreeMap<String, f64> {
    target.wait_for(|line| line == "over");
    let mut sums = BTreeMap::new();
    for line in target.lines() {
        let Some((name, ns)) = line.split_once(' ') else { continue };
        *sums.entry(name.to_owned()).or_insert(0.0) += ns.parse::<f64>().unwrap();
    }
    sums
}

/// The program's profile, and what it measured.
fn waits(more: &[&str]) -> (Profile, BTreeMap<String, f64>) {
    let program = native::with_flags("waits.c", "waits", &["-fno-omit-frame-pointer", "-pthread"]);
    let dir = scratch("waits");
    let (go, synced) = (dir.join("go"), dir.join("synced"));
    let _ = fs::remove_file(&go);
    let mut target = Target::start(Command::new(program).arg(&go).arg(LENGTH_MS.to_string()).arg(&synced));
    let pid = target.pid().to_string();
    let mut truth = BTreeMap::new();
    let profile = while_sampling(&[], &[&["-p", &pid], more].concat(), || {
        fs::write(&go, "").unwrap();
        truth = measured(&mut target);
    });
    (profile, truth)
}

/// The waiting time of stacks through a function, ns.
fn sampled(profile: &Profile, function: &str) -> f64 {
    profile.folded.within(function).total() as f64 * profile.account("period_ns") as f64
}

/// Shares of the stacks through a function with this leaf, and with this one or `[runnable]`: after its wait a thread
/// waits for a CPU.
fn shares_of_reason(profile: &Profile, function: &str, leaf: &str) -> (f64, f64) {
    let stacks = profile.folded.within(function);
    let with = |wanted: &[&str]| stacks.share(|frames| wanted.contains(&frames.last().unwrap().as_str()));
    (with(&[leaf]), with(&[leaf, "[runnable]"]))
}

/// Two waits in turn have half of the marks each, whatever the length of their cycle: marks have no period of their own.
#[test]
fn marks_favour_no_wait_of_a_cycle() {
    let headers = testkit::sources().join("replay");
    let program = native::with_flags("marks.c", "marks", &["-I", headers.to_str().unwrap()]);
    let printed = Command::new(program).output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    let numbers: Vec<f64> = printed.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [worst, variance] = numbers[..] else { panic!("{printed}") };
    // Of 24,000 threads the worst is at some four standard deviations (15.8); one sample of variances is at two times.
    assert!(worst < 90.0 && variance < 600.0, "{printed}");
}

#[test]
fn each_wait_is_sampled_in_proportion_to_its_length() {
    if !is_root() {
        return;
    }
    let (profile, truth) = waits(&["-e", "wait"]);
    assert_eq!(profile.report["event"], "wait");
    let period = profile.account("period_ns") as f64;
    for (function, ns) in &truth {
        let is = sampled(&profile, function);
        // A thread's samples differ from its waiting time by less than one period. Where a thread waits elsewhere too,
        // chance decides on each block.
        let shares = ["half", "burn", "take_mutex"].iter().any(|part| function.starts_with(part));
        let chance = if shares { 4.0 * (ns / period).sqrt() / 2.0 } else { 0.0 };
        // The program reads its clocks a moment outside of the wait. A switch, which takes some microseconds, is CPU
        // time by the kernel's clock and waiting time here: for waits of 100 us that is some percent.
        let near = if function == "sleep_100us" { 0.06 } else { 0.02 };
        let limit = near * ns + (4.0 + chance) * period;
        assert!((is - ns).abs() <= limit, "{function}: {is} of {ns}, {limit}\n{}", profile.folded.top(12));
        assert!(*ns > 1e8, "{function} hardly waited: {ns}");
    }
    for (function, leaf) in [
        ("sleep_1ms", "[wait: timer]"),
        ("sleep_1s", "[wait: timer]"),
        ("read_answer", "[wait: pipe read]"),
        ("take_mutex", "[wait: mutex]"),
        ("burn", "[runnable]"),
        ("half_a", "[wait: timer]"),
    ] {
        let (waiting, all) = shares_of_reason(&profile, function, leaf);
        assert!(waiting > 0.5 && all > 0.95, "{function}: {waiting} {all}\n{}", profile.folded.top(12));
    }
}

#[test]
fn accounts_add_up_and_samples_agree_with_the_measured_time() {
    if !is_root() {
        return;
    }
    let (profile, truth) = waits(&["-e", "wait"]);
    let accounts = &profile.report["accounts"];
    assert_eq!(accounts["lost"], serde_json::json!([]), "{accounts}");
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert_eq!(profile.account("kept"), profile.folded.total());
    let waits = &profile.report["waits"];
    assert_eq!(waits["untimed"], 0);
    let period = profile.account("period_ns") as f64;
    let threads = 16.0;
    let mut all = 0.0;
    for state in waits["states"].as_array().unwrap() {
        let (ns, samples) = (state["ns"].as_f64().unwrap(), state["samples"].as_f64().unwrap());
        let chance = 4.0 * (ns / period).sqrt() / 2.0 + threads;
        assert!((samples - ns / period).abs() <= chance, "{state}");
        all += ns;
    }
    assert!((profile.account("kept") as f64 * period - all).abs() <= 2.0 * threads * period, "{waits}");
    // The hung thread, and the main thread that waits for the others.
    let least = truth.values().sum::<f64>() + 2.0 * (LENGTH_MS * 1_000_000) as f64;
    assert!(all >= 0.99 * least, "{all} of {least}");
}

/// A thread that comes into a chosen cgroup during the run has only its waits from then on.
#[test]
fn waits_count_for_the_cgroup_in_which_they_end() {
    if !is_root() {
        return;
    }
    let program = native::with_flags("waits.c", "waits", &["-fno-omit-frame-pointer", "-pthread"]);
    let go = scratch("waits").join("go-cgroup");
    let _ = fs::remove_file(&go);
    let mut target = Target::start(Command::new(program).arg(&go).arg(LENGTH_MS.to_string()));
    let group = Group::own(&testkit::cgroup::naming(), "waits-moved");
    let mut truth = BTreeMap::new();
    let profile = while_sampling(&[], &["-G", &group.arg(), "-e", "wait"], || {
        fs::write(&go, "").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(LENGTH_MS / 2));
        fs::write(group.path().join("cgroup.procs"), target.pid().to_string()).unwrap();
        truth = measured(&mut target);
    });
    for function in ["sleep_1ms", "sleep_10ms", "read_answer"] {
        let share = sampled(&profile, function) / truth[function];
        assert!((0.3..0.7).contains(&share), "{function}: {share}\n{}", profile.folded.top(8));
    }
}

/// A wait that never ends is in the profile: the main thread and the hung one wait from the beginning to the end.
#[test]
fn a_wait_that_is_not_over_is_in_the_profile() {
    if !is_root() {
        return;
    }
    let (profile, _) = waits(&["-e", "wait", "--per-thread"]);
    let length = (LENGTH_MS * 1_000_000) as f64 / profile.account("period_ns") as f64;
    let hung = profile.folded.keep(|frames| {
        frames.iter().any(|frame| frame.starts_with("read")) && !frames.iter().any(|f| f == "read_answer")
    });
    assert!(hung.total() as f64 > 0.95 * length, "{} of {length}\n{}", hung.total(), profile.folded.top(12));
    let leaves = hung.count(|frames| frames.last().unwrap() == "[wait: pipe read]");
    assert_eq!(leaves, hung.total());
}

#[test]
fn cpu_and_waiting_time_are_sampled_together() {
    if !is_root() {
        return;
    }
    let (profile, _) = waits(&["-e", "wall"]);
    assert_eq!(profile.report.get("event"), None, "the first event is cpu");
    assert!(
        profile.folded.share(|frames| frames.iter().any(|f| f == "burn")) > 0.5,
        "{}",
        profile.folded.top(8)
    );
    let wait = &profile.report["events"][0];
    assert_eq!(wait["event"], "wait");
    assert!(wait["accounts"]["kept"].as_u64().unwrap() > 10_000, "{wait}");
}

#[test]
fn java_threads_wait_for_monitors_locks_timers_and_work() {
    if !is_root() {
        return;
    }
    let program = Program::new("Waits").dont_inline("Waits.*");
    let target = program.start(&Jdk::host());
    let pid = target.pid().to_string();
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait", "--idle"], || {
        std::thread::sleep(std::time::Duration::from_secs(4));
    });
    let leaf = |function: &str, leaf: &str| {
        profile.folded.count(|frames| {
            frames.iter().any(|f| testkit::folded::is(f, function)) && frames.last().unwrap() == leaf
        })
    };
    // One of two threads holds the lock and sleeps, the other one waits for the lock.
    let second = 1e9 / profile.account("period_ns") as f64;
    for (function, reason) in [
        ("Waits.enterMonitor", "[wait: monitor java.lang.Object]"),
        ("Waits.enterMonitor", "[wait: timer]"),
        ("Waits.takeLock", "[wait: park java.util.concurrent.locks.ReentrantLock$FairSync]"),
        ("Waits.takeLock", "[wait: timer]"),
    ] {
        let samples = leaf(function, reason) as f64;
        assert!(samples > 2.0 * second, "{function} {reason}: {samples}\n{}", profile.folded.top(16));
    }
    let idle = leaf("java.util.concurrent.ThreadPoolExecutor.getTask", "[idle: thread pool]") as f64;
    assert!(idle > second, "{idle}\n{}", profile.folded.top(16));
    assert!(!profile.report["waits"]["idle"].as_array().unwrap().is_empty());
}

/// A thread whose cgroup has used up its quota is throttled, for as long as the kernel says.
#[test]
fn throttled_threads_are_told_from_runnable_ones() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::limitable("waits-throttled") else {
        return skip("no hierarchy limits CPU time");
    };
    group.limit(200);
    let target = Target::start(&mut group.enter(&native::program("native")));
    let pid = target.pid().to_string();
    let mut throttled = 0.0;
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || {
        let before = group.throttled();
        std::thread::sleep(std::time::Duration::from_secs(4));
        throttled = group.throttled() - before;
    });
    let ns = |name: &str| {
        let states = profile.report["waits"]["states"].as_array().unwrap().clone();
        states.iter().find(|state| state["state"] == name).map_or(0.0, |state| state["ns"].as_f64().unwrap())
    };
    // The kernel counts a period of the quota when it ends, and the run is a little longer than the sleep.
    let seconds = ns("throttled") / 1e9;
    assert!(throttled > 1.0, "the group was hardly throttled: {throttled}");
    assert!((seconds - throttled).abs() < 0.15 * throttled + 0.2, "{seconds} of {throttled}");
    assert!(
        profile.folded.share(|frames| frames.last().unwrap() == "[throttled]") > 0.7,
        "{}",
        profile.folded.top(5)
    );
}
