//! Waiting time, end to end: each wait is sampled in proportion to its length, where it waits, with its reason, and the
//! sums agree with what the programs measured of themselves.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use jbpf_prof::output;
use jbpf_prof::sample::Event;
use testkit::cgroup::Group;
use testkit::java::{Jdk, Program};
use testkit::profiler::{ALL, Profile, run, while_sampling};
use testkit::target::Target;
use testkit::waits::{Waited, waited};
use testkit::{is_root, native, scratch, skip};

/// How long the program's threads wait, ms.
const LENGTH_MS: u64 = 5000;

/// What the program measured in each function.
fn measured(target: &mut Target) -> BTreeMap<String, Waited> {
    target.wait_for(|line| line == "over");
    waited(target.lines().iter().map(String::as_str))
}

/// Starts the program, whose threads begin when the file exists that `sample` gets after target and pid.
fn with_target<T>(sample: impl FnOnce(&mut Target, &str, &Path) -> T) -> T {
    let program = native::with_flags("waits.c", "waits", &["-fno-omit-frame-pointer", "-pthread"]);
    let dir = scratch("waits");
    let (go, synced) = (dir.join("go"), dir.join("synced"));
    let _ = fs::remove_file(&go);
    let mut target = Target::start(Command::new(program).arg(&go).arg(LENGTH_MS.to_string()).arg(&synced));
    let pid = target.pid().to_string();
    sample(&mut target, &pid, &go)
}

/// The program's profile, and what it measured.
fn waits(more: &[&str]) -> (Profile, BTreeMap<String, Waited>) {
    with_target(|target, pid, go| {
        let mut truth = BTreeMap::new();
        let profile = while_sampling(&[], &[&["-p", pid], more].concat(), || {
            fs::write(go, "").unwrap();
            truth = measured(target);
        });
        (profile, truth)
    })
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

/// Two waits in turn have half of the marks each, for each length of their cycle: marks have no period of their own.
#[test]
fn marks_favour_no_wait_of_a_cycle() {
    let headers = testkit::repository().join("src/outside/shims");
    let program = native::with_flags("marks.c", "marks", &["-I", headers.to_str().unwrap()]);
    let printed = Command::new(program).output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    let numbers: Vec<f64> = printed.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [worst, variance, estimate, lengths, wrong, within, of_places] = numbers[..] else {
        panic!("{printed}")
    };
    // Of a million waits some are longer than a block.
    assert!(wrong == 0.0 && within > 1e5 && within < 9e5, "{printed}");
    // Of the waits of one length, 10,000 or more have a mark, so that the estimate is off by up to 1 % (one deviation).
    assert!(estimate < 0.04 && of_places < 0.04 && lengths > 35.0, "{printed}");
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
    for (function, waited) in &truth {
        let (is, ns) = (sampled(&profile, function), waited.ns);
        let tolerance = 0.02 * ns + 4.0 * period + waited.chance(period);
        let range = waited.range(function, tolerance);
        assert!(range.contains(&is), "{function}: {is}, {waited:?}, {tolerance}\n{}", profile.folded.top(12));
        assert!(ns > 1e8, "{function} hardly waited: {ns}");
    }
    for (function, leaf) in [
        ("sleep_10ms", "[wait: timer]"),
        ("sleep_1s", "[wait: timer]"),
        ("read_answer", "[wait: pipe read]"),
        ("take_mutex", "[wait: mutex]"),
        ("share_cpu", "[runnable]"),
        ("half_a", "[wait: timer]"),
    ] {
        let (waiting, all) = shares_of_reason(&profile, function, leaf);
        // Three other threads want the CPU, and what else this machine does: a short wait is followed by a longer one.
        assert!(waiting > 0.2 && all > 0.95, "{function}: {waiting} {all}\n{}", profile.folded.top(12));
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
    let least = truth.values().map(|waited| waited.ns).sum::<f64>() + 2.0 * (LENGTH_MS * 1_000_000) as f64;
    assert!(all >= 0.99 * least, "{all} of {least}");
}

/// Two profilers at the same time, each for one CPU, share all waits between them.
#[test]
fn a_wait_belongs_to_the_cpu_of_its_end() {
    if !is_root() {
        return;
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if online.trim() != "0-1" {
        return skip("this test needs two CPUs");
    }
    let (mut first, mut truth) = (None, BTreeMap::new());
    let second = with_target(|target, pid, go| {
        let run = |cpu: &str, happens: &mut dyn FnMut()| {
            while_sampling(&[], &["-p", pid, "-e", "wait", "-C", cpu], happens)
        };
        run("1", &mut || {
            first = Some(run("0", &mut || {
                fs::write(go, "").unwrap();
                truth = measured(target);
            }));
        })
    });
    let first = first.unwrap();
    let period = first.account("period_ns") as f64;
    for profile in [&first, &second] {
        assert_eq!(profile.report["cpus"], 1);
        for state in profile.report["waits"]["states"].as_array().unwrap() {
            let (ns, samples) = (state["ns"].as_f64().unwrap(), state["samples"].as_f64().unwrap());
            let chance = 4.0 * (ns / period).sqrt() / 2.0 + 16.0;
            assert!((samples - ns / period).abs() <= chance, "{state}");
        }
    }
    // The burning threads may use CPU 0 only.
    assert_eq!(sampled(&second, "share_cpu"), 0.0, "{}", second.folded.top(8));
    for function in ["share_cpu", "sleep_10ms", "sleep_100ms", "read_answer"] {
        let both = sampled(&first, function) + sampled(&second, function);
        // A thread that changes its CPU has two places on its timeline: one for each profiler.
        let ns = truth[function].ns;
        let limit = 0.02 * ns + 4.0 * (ns / period).sqrt() * period;
        assert!((both - ns).abs() <= limit, "{function}: {both} of {ns}");
    }
}

/// A filter moves samples from the profile to those not asked for. The sums by reason still have all.
#[test]
fn waits_are_chosen_by_state_and_reason() {
    if !is_root() {
        return;
    }
    let (profile, truth) = waits(&["-e", "wait", "--state", "sleeping,blocked", "--reason", "pipe *,mutex"]);
    let leaf = |frames: &[String]| frames.last().unwrap().clone();
    assert_eq!(
        profile
            .folded
            .count(|frames| !["[wait: pipe read]", "[wait: mutex]"].contains(&leaf(frames).as_str())),
        0
    );
    let (is, ns) = (sampled(&profile, "read_answer"), truth["read_answer"].ns);
    assert!((is - ns).abs() < 0.05 * ns, "{is} of {ns}");
    assert!(sampled(&profile, "take_mutex") > 0.9 * truth["take_mutex"].ns);
    assert_eq!(profile.account("kept"), profile.folded.total());
    let lost = profile.report["accounts"]["lost"].as_array().unwrap().len();
    assert_eq!((lost, profile.account("kept") + profile.account("filtered")), (0, profile.account("ticks")));
    let reasons = profile.report["waits"]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|row| row["reason"] == "timer" && row["samples"].as_u64() > Some(1000)));
}

/// Folded stacks have no labels: the leaf has the state and the reason.
#[test]
fn a_profile_is_converted_in_part() {
    let dir = scratch("waits");
    let [from, to] = ["all.folded", "some.folded"].map(|name| dir.join(name));
    let stacks = "a;f;[wait: monitor] 3\na;f;[blocked: disk sync] 2\na;f;[runnable] 5\na;g 7\n";
    fs::write(&from, stacks).unwrap();
    let convert = |filter: &[&str]| {
        let files = [from.to_str().unwrap(), to.to_str().unwrap()];
        run([&["convert"][..], &files, filter].concat()).success();
        fs::read_to_string(&to).unwrap()
    };
    assert_eq!(convert(&["--state", "running,runnable"]), "a;f;[runnable] 5\na;g 7\n");
    assert_eq!(convert(&["--reason", "disk *"]), "a;f;[blocked: disk sync] 2\n");
    assert_eq!(convert(&["--state", "blocked", "--reason", "monitor"]), "");
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
        let share = sampled(&profile, function) / truth[function].ns;
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
    // It may have waited for a CPU on its way into the call.
    let runnable = hung.count(|frames| frames.last().unwrap() == "[runnable]");
    assert_eq!(leaves + runnable, hung.total());
    let whole = hung.count(|frames| frames.iter().any(|frame| frame == "wait_for_ever"));
    assert_eq!(whole, hung.total(), "{}", hung.top(5));
}

/// The stack of a thread that is still waiting comes from outside of the thread: all of it, if its memory can be read.
/// The kernel does not wait for pages behind userfaultfd: the stack ends there, and says why.
#[test]
fn threads_that_hang_have_their_whole_stacks() {
    if !is_root() {
        return;
    }
    const LEVELS: usize = 300;
    let program = native::with_flags("hung.c", "hung", &["-pthread"]);
    let start = |more: &[&str]| Target::start(Command::new(&program).arg(LEVELS.to_string()).args(more));
    let (mut deep, mut held) = (start(&[]), start(&["held"]));
    let is_held = held.lines() == ["ready"];
    if !is_held {
        skip("this kernel has no userfaultfd");
    }
    let pids = format!("{},{}", deep.pid(), held.pid());
    let profile = while_sampling(&[], &["-p", &pids, "-e", "wait", "--per-thread"], || {
        std::thread::sleep(std::time::Duration::from_secs(2));
    });
    let second = 1e9 / profile.account("period_ns") as f64;
    let levels = |frames: &[String]| frames.iter().filter(|frame| *frame == "level").count();
    let whole = profile.folded.keep(|frames| levels(frames) == LEVELS + 1);
    assert!(whole.total() as f64 > 1.9 * second, "{}", profile.folded.top(6));
    let is_whole =
        |frames: &[String]| ["begin", "wait_for_ever"].iter().all(|f| frames.iter().any(|g| g == f));
    assert_eq!(whole.count(is_whole), whole.total(), "{}", whole.top(3));
    let part = profile.folded.keep(|frames| (1..=LEVELS).contains(&levels(frames)));
    if is_held {
        assert!(part.total() as f64 > 1.9 * second, "{}", profile.folded.top(6));
        assert_eq!(part.count(|frames| frames.iter().any(|frame| frame == "begin")), 0, "{}", part.top(3));
        let ends = profile.report["ends"].as_array().unwrap();
        let unread =
            ends.iter().find(|end| end[0] == "stack not readable").map(|end| end[1].as_u64().unwrap());
        assert!(unread >= Some(part.total()), "{ends:?}");
    }
    assert!(deep.is_alive() && held.is_alive());
}

#[test]
fn cpu_and_waiting_time_are_sampled_together() {
    if !is_root() {
        return;
    }
    let (profile, _) = waits(&["-e", "wall"]);
    assert_eq!(profile.report.get("event"), None, "the first event is cpu");
    assert!(
        profile.folded.share(|frames| frames.iter().any(|f| f == "share_cpu")) > 0.5,
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
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait", "--idle", "--wakers"], || {
        std::thread::sleep(std::time::Duration::from_secs(4));
    });
    let folded = profile.folded.without_wakers();
    let leaf = |function: &str, leaf: &str| {
        folded.count(|frames| {
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
    // The thread that waits for ever is seen from outside.
    let hung = leaf("Waits.waitForEver", "[wait: park java.util.concurrent.CountDownLatch$Sync]") as f64;
    assert!(hung > 3.8 * second, "{hung}\n{}", profile.folded.top(16));
    // Threads of the JVM itself, which wait during the whole run, are idle by their own functions or names.
    let waits = |reason: &str| folded.count(|frames| frames.last().unwrap() == reason) as f64;
    assert!(waits("[wait: futex]") < 0.02 * profile.folded.total() as f64, "{}", profile.folded.top(16));
    let idle = leaf("java.util.concurrent.ThreadPoolExecutor.getTask", "[idle: thread pool]") as f64;
    assert!(idle > second, "{idle}\n{}", profile.folded.top(16));
    assert!(!profile.report["waits"]["idle"].as_array().unwrap().is_empty());
    // Who gives a lock back ends the wait for it. A timer comes with an interrupt, which interrupts any code.
    for (function, leaf, waker) in [
        (
            "Waits.takeLock",
            "[wait: park java.util.concurrent.locks.ReentrantLock$FairSync]",
            "Waits.takeLock_[w]",
        ),
        ("Waits.takeLock", "[wait: timer]", "[interrupt]"),
    ] {
        let share = profile.folded.woken_by(function, leaf, waker);
        assert!(share > 0.95, "{share} of {function} {leaf} by {waker}\n{}", profile.folded.top(16));
    }
    // Up to JDK 23 a thread that comes to a monitor looks again after a millisecond, of the four that it waits at least.
    let [owner, timer] = ["Waits.enterMonitor_[w]", "[interrupt]"].map(|waker| {
        profile.folded.woken_by("Waits.enterMonitor", "[wait: monitor java.lang.Object]", waker)
    });
    assert!(
        owner > 0.6 && owner + timer > 0.95,
        "{owner} by the owner, {timer} by a timer\n{}",
        profile.folded.top(16)
    );
}

/// The kernel threads, by pid: the name, and the time (ns) in which the thread was in a queue for a CPU, as the scheduler counts it.
fn kernel_threads() -> BTreeMap<u32, (String, f64)> {
    let of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, after) = stat.rsplit_once(')')?;
        // The parent of all kernel threads is kthreadd.
        (after.split_whitespace().nth(1)? == "2").then_some(())?;
        // Of a worker /proc also has what it works on: `kworker/0:1-events`.
        let name = start.split_once('(')?.1.split('-').next()?.to_owned();
        let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        Some((name, schedstat.split_whitespace().nth(1)?.parse().ok()?))
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, of(pid)?))).collect()
}

/// Interrupts wake most of these threads, and the kernel does not run BPF programs in all of them.
#[test]
fn kernel_threads_sleep_and_are_rarely_in_a_queue() {
    if !is_root() || kernel_threads().is_empty() {
        return;
    }
    let mut queued = 0.0;
    let profile = while_sampling(&[], &[&ALL[..], &["-e", "wait", "--idle"]].concat(), || {
        let before = kernel_threads();
        std::thread::sleep(std::time::Duration::from_secs(8));
        let after = kernel_threads();
        let grown = before.iter().filter_map(|(pid, (_, was))| Some(after.get(pid)?.1 - was));
        queued = grown.sum();
    });
    let names: Vec<String> = kernel_threads().into_values().map(|(name, _)| name).collect();
    let own = profile.folded.keep(|stack| names.iter().any(|name| stack[0].starts_with(name.as_str())));
    assert!(own.total() > 999 * 8, "{}", profile.folded.top(5));
    let runnable = own.keep(|stack| stack.last().unwrap() == "[runnable]");
    let period = profile.account("period_ns") as f64;
    let sampled = runnable.total() as f64 * period;
    assert!(sampled < 1.3 * queued + 50.0 * period, "{sampled} of {queued}\n{}", runnable.top(5));
}

/// Two methods take the same time, and one of them ten times the CPU time: the example of JFR's CPU-time profiling (JEP
/// 509). One run shows both.
#[test]
fn requests_of_the_same_length_differ_in_cpu_time() {
    if !is_root() {
        return;
    }
    let (out, go) = (scratch("waits").join("requests.pb.gz"), scratch("waits").join("go-requests"));
    let _ = fs::remove_file(&go);
    let program = Program::new("Requests").args(&[go.to_str().unwrap()]).dont_inline("Requests.*");
    let mut target = program.start(&Jdk::host());
    let pid = target.pid().to_string();
    while_sampling(&[], &["-p", &pid, "-e", "wall", "-o", out.to_str().unwrap()], || {
        fs::write(&go, "").unwrap();
        target.wait_for(|line| line.starts_with("requests "));
    });
    let line = target.lines().iter().rfind(|line| line.starts_with("requests ")).unwrap();
    let measured: Vec<f64> = line.split(' ').skip(1).map(|ns| ns.parse().unwrap()).collect();
    let profile = output::read(&out).unwrap();
    let of = |event: Event, method: &str| -> f64 {
        let is_in = |node| &*profile.frames().get(profile.frame_of(node)).name == method;
        let samples = profile.samples();
        let own = samples.iter().filter(|sample| sample.event == event);
        own.filter(|sample| profile.trie().path_to_root(sample.leaf).any(is_in))
            .map(|s| s.weight.value as f64)
            .sum()
    };
    let [ten, one] = ["Requests.tenFastRequests", "Requests.oneSlowRequest"]
        .map(|method| (of(Event::Cpu, method), of(Event::Wait, method)));
    let wall = ((ten.0 + ten.1) / (one.0 + one.1), measured[0] / measured[2]);
    let cpu = (ten.0 / one.0, measured[1] / measured[3]);
    eprintln!("ten fast requests to a slow one: time {wall:?}, CPU time {cpu:?} (sampled, measured)");
    // On a busy machine the method with more CPU time takes longer.
    assert!(cpu.1 > 3.0 * wall.1, "the program is not what the test is about");
    assert!((wall.0 / wall.1 - 1.0).abs() < 0.1, "{ten:?} {one:?} {measured:?}");
    // One request has some 100 samples of CPU time.
    assert!((cpu.0 / cpu.1 - 1.0).abs() < 0.4, "{ten:?} {one:?} {measured:?}");
}

/// A thread whose cgroup has used up its quota is throttled, for as long as the kernel says.
#[test]
fn throttled_threads_are_not_runnable() {
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
    // On a busy machine too: a thread that is not throttled waits for a CPU.
    let share = profile.folded.share(|frames| frames.last().unwrap() == "[throttled]");
    let measured = ns("throttled") / (ns("throttled") + ns("runnable"));
    assert!((share - measured).abs() < 0.03, "{share} of {measured}\n{}", profile.folded.top(5));
}
