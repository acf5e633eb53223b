//! Waiting time, end to end: each wait is sampled in proportion to its length, where it waits, and the sums agree with
//! what the programs measured of themselves.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use jbpf_prof::output;
use jbpf_prof::sample::Event;
use rustix::process::Signal;
use testkit::cgroup::{Group, naming};
use testkit::claims::{StackClaim, at_least, prove};
use testkit::folded::is;
use testkit::java::{Jdk, Program};
use testkit::profiler::{ALL, Profile, Sampling, out_file, while_sampling};
use testkit::spent::{Watch, interrupted};
use testkit::target::Target;
use testkit::waits::{Waited, waited};
use testkit::{is_root, native, scratch, skip};

/// All threads of the program `waits`.
const THREADS: f64 = 16.0;

/// The program `waits`.
struct Waiting {
    target: Target,
    go: PathBuf,
}

impl Waiting {
    /// Starts the program, whose threads are to wait for this time. `test`: a directory of the calling test alone.
    fn start(test: &str, length_ms: u64) -> Waiting {
        let program = native::with_flags("waits.c", "waits", &["-fno-omit-frame-pointer", "-pthread"]);
        let dir = scratch(test);
        let (go, synced) = (dir.join("go"), dir.join("synced"));
        let _ = fs::remove_file(&go);
        let target = Target::start(Command::new(program).arg(&go).arg(length_ms.to_string()).arg(&synced));
        Waiting { target, go }
    }

    fn pid(&self) -> String {
        self.target.pid().to_string()
    }

    /// Begins the waits.
    fn begin(&self) {
        fs::write(&self.go, "").unwrap();
    }

    /// What the program measured in each function, after the end of all waits.
    fn measured(&mut self) -> BTreeMap<String, Waited> {
        self.target.wait_for(|line| line == "over");
        waited(self.target.lines().iter().map(String::as_str))
    }
}

/// A profile of the program, and what the program measured.
fn record(test: &str, length_ms: u64, more: &[&str]) -> (Profile, BTreeMap<String, Waited>) {
    let mut waiting = Waiting::start(test, length_ms);
    let pid = waiting.pid();
    let mut truth = BTreeMap::new();
    let profile = while_sampling(&[], &[&["-p", &pid], more].concat(), || {
        waiting.begin();
        truth = waiting.measured();
    });
    (profile, truth)
}

/// The waiting time of stacks through a function, ns.
fn sampled(profile: &Profile, function: &str) -> f64 {
    profile.folded.within(function).total() as f64 * profile.account("period_ns") as f64
}

fn leaf(stack: &[String]) -> &str {
    stack.last().map_or("", String::as_str)
}

/// Two waits in turn have half of the marks each, for each length of their cycle: marks have no period of their own.
/// The program's seeds are fixed.
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

/// How long the program's threads wait in each round of [`Rounds`], ms.
const ROUND_MS: u64 = 5000;

/// Functions, the leaf of their waits, and its least share. After its wait a thread waits for a CPU, which three other
/// threads and the rest of the machine want, too: a short wait is followed by a longer one.
const REASONS: [(&str, &str, f64); 6] = [
    ("sleep_10ms", "[wait: timer]", 0.2),
    ("sleep_1s", "[wait: timer]", 0.2),
    ("read_answer", "[wait: pipe read]", 0.2),
    ("take_mutex", "[wait: mutex]", 0.2),
    ("share_cpu", "[runnable]", 0.2),
    ("half_a", "[wait: timer]", 0.1),
];

/// What the program measured in a function, and the waiting time in its profile, ns.
#[derive(Debug, Default)]
struct InFunction {
    truth: Waited,
    sampled: f64,
}

/// The program, profiled some times.
#[derive(Default)]
struct Rounds {
    number: f64,
    period: f64,
    functions: BTreeMap<String, InFunction>,
    /// Time of the CPUs that was neither of a thread nor a wait, ns.
    interrupted: f64,
}

impl Rounds {
    /// Profiles the program once more.
    fn profile(&mut self) -> Profile {
        let before = interrupted();
        let (profile, truth) = record("whole", ROUND_MS, &["-e", "wait", "--per-thread"]);
        self.interrupted += (interrupted() - before).as_nanos() as f64;
        self.number += 1.0;
        self.period = profile.account("period_ns") as f64;
        for (function, truth) in &truth {
            let sum = self.functions.entry(function.clone()).or_default();
            sum.truth += *truth;
            sum.sampled += sampled(&profile, function);
        }
        assert_accounts(&profile, &truth);
        assert_hung(&profile);
        profile
    }

    /// Whether each function waited so long that chance decides on a small part of the samples.
    fn are_enough(&self) -> bool {
        let mut all = self.functions.values();
        all.all(|InFunction { truth, .. }| truth.ns > 1e8 && truth.chance(self.period) < 0.08 * truth.ns)
    }

    fn assert_proportional(&self) {
        for (function, sum) in &self.functions {
            let chance = sum.truth.chance(self.period) + 4.0 * self.number * self.period;
            let range = sum.truth.range(function, 0.02 * sum.truth.ns + chance);
            let range = range.start() - self.interrupted..=*range.end();
            assert!(range.contains(&sum.sampled), "{function}: {sum:?}, {chance} by chance, not {range:?}");
        }
    }
}

/// One profile serves all claims about the whole of the program's waits.
#[test]
fn waits_are_sampled_as_the_program_measures_them() {
    if !is_root() {
        return;
    }
    let inside = |function: &'static str| move |stack: &[String]| stack.iter().any(|f| is(f, function));
    let mut claims: Vec<StackClaim<'_>> = Vec::new();
    for (function, reason, least) in REASONS {
        let waiting = at_least(least, format!("{function}: {reason}"), move |stack| leaf(stack) == reason);
        let all = at_least(0.95, format!("{function}: {reason} or [runnable]"), move |stack| {
            [reason, "[runnable]"].contains(&leaf(stack))
        });
        claims.extend([waiting.among(inside(function)), all.among(inside(function))]);
    }
    let mut rounds = Rounds::default();
    prove(|| rounds.profile().folded, &claims);
    while !rounds.are_enough() {
        assert!(rounds.number < 20.0, "some functions hardly wait: {:#?}", rounds.functions);
        rounds.profile();
    }
    rounds.assert_proportional();
}

/// Asserts that each state has the samples of its measured time; returns all measured time, ns. Each thread's samples
/// differ by up to a period from its waiting time. Chance decides for each block of its time to which state the sample
/// belongs. All blocks together vary at most as coins with the state's share would: these are five standard deviations.
fn assert_states(profile: &Profile) -> f64 {
    assert_eq!(profile.report["event"], "wait");
    let period = profile.account("period_ns") as f64;
    let states = profile.report["waits"]["states"].as_array().unwrap();
    let ns = |state: &serde_json::Value| state["ns"].as_f64().unwrap();
    let all: f64 = states.iter().map(ns).sum();
    for state in states {
        let (right, samples) = (ns(state) / period, state["samples"].as_f64().unwrap());
        let chance = 5.0 * (right * (1.0 - ns(state) / all)).max(0.0).sqrt() + THREADS;
        assert!((samples - right).abs() <= chance, "{state}: {right} ± {chance}");
    }
    all
}

fn assert_accounts(profile: &Profile, truth: &BTreeMap<String, Waited>) {
    let accounts = &profile.report["accounts"];
    assert_eq!(accounts["lost"], serde_json::json!([]), "{accounts}");
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert_eq!(profile.account("kept"), profile.folded.total());
    let waits = &profile.report["waits"];
    assert_eq!(waits["untimed"], 0);
    let (all, period) = (assert_states(profile), profile.account("period_ns") as f64);
    assert!((profile.account("kept") as f64 * period - all).abs() <= 2.0 * THREADS * period, "{waits}");
    // The hung thread, and the main thread that waits for the others.
    let least = truth.values().map(|waited| waited.ns).sum::<f64>() + 2.0 * (ROUND_MS * 1_000_000) as f64;
    assert!(all >= 0.99 * least, "{all} of {least}");
}

/// A wait that never ends is in the profile: the hung thread waits from the beginning to the end.
fn assert_hung(profile: &Profile) {
    let length = (ROUND_MS * 1_000_000) as f64 / profile.account("period_ns") as f64;
    // The threads that share a CPU read how long they waited for it.
    let hung = profile.folded.keep(|stack| {
        stack.iter().any(|frame| frame.starts_with("read"))
            && !stack.iter().any(|frame| ["read_answer", "share_cpu"].contains(&frame.as_str()))
    });
    assert!(hung.total() as f64 > 0.95 * length, "{} of {length}\n{}", hung.total(), profile.folded.top(12));
    // It may have waited for a CPU on its way into the call.
    let leaves = hung.count(|stack| ["[wait: pipe read]", "[runnable]"].contains(&leaf(stack)));
    assert_eq!(leaves, hung.total(), "{}", hung.top(5));
    let whole = hung.count(|stack| stack.iter().any(|frame| frame == "wait_for_ever"));
    assert_eq!(whole, hung.total(), "{}", hung.top(5));
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
    let mut waiting = Waiting::start("cpus", 3000);
    let pid = waiting.pid();
    let of_cpu = |cpu| ["-p", pid.as_str(), "-e", "wait", "-C", cpu];
    let (mut first, mut truth) = (None, BTreeMap::new());
    let second = while_sampling(&[], &of_cpu("1"), || {
        first = Some(while_sampling(&[], &of_cpu("0"), || {
            waiting.begin();
            truth = waiting.measured();
        }));
    });
    let first = first.unwrap();
    let period = first.account("period_ns") as f64;
    for profile in [&first, &second] {
        assert_eq!(profile.report["cpus"], 1);
        assert_states(profile);
    }
    // The burning threads may use CPU 0 only. Each of them may begin on CPU 1, and lose it there.
    let [on_first, on_second] = [&first, &second].map(|profile| sampled(profile, "share_cpu"));
    assert!(on_second <= 0.01 * on_first, "{on_second} of {on_first}\n{}", second.folded.top(8));
    for function in ["share_cpu", "sleep_10ms", "sleep_100ms", "read_answer"] {
        let both = sampled(&first, function) + sampled(&second, function);
        // Each thread has two places on its timeline: one for each profiler.
        let truth = truth[function];
        let range = truth.range(function, 0.02 * truth.ns + truth.chance(period) + 8.0 * period);
        assert!(range.contains(&both), "{function}: {both} of {truth:?}, {range:?} is right");
    }
}

/// A filter moves samples from the profile to those not asked for. The sums by reason still have all.
#[test]
fn waits_are_chosen_by_state_and_reason() {
    if !is_root() {
        return;
    }
    let filter = ["--state", "sleeping,blocked", "--reason", "pipe *,mutex"];
    let (profile, truth) = record("chosen", 2000, &[&["-e", "wait"], &filter[..]].concat());
    let waits = &profile.report["waits"];
    let reasons = waits["reasons"].as_array().unwrap();
    let mut chosen = 0;
    for reason in ["pipe read", "mutex"] {
        let row = reasons.iter().find(|row| row["reason"] == reason && row["state"] == "sleeping").unwrap();
        let named = format!("[wait: {reason}]");
        let samples = profile.folded.count(|stack| leaf(stack) == named);
        assert_eq!(row["samples"], samples, "{row}");
        chosen += samples;
    }
    assert_eq!((chosen, profile.account("kept")), (profile.folded.total(), profile.folded.total()));
    assert_eq!(profile.report["accounts"]["lost"], serde_json::json!([]));
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert!(reasons.iter().any(|row| row["reason"] == "timer" && row["samples"].as_u64() > Some(1000)));
    // What the program measured includes waits for a CPU, which were not asked for. Besides those of the threads that
    // share a CPU there were so many of them.
    let states = waits["states"].as_array().unwrap();
    let runnable = states.iter().find(|row| row["state"] == "runnable").unwrap()["ns"].as_f64().unwrap();
    let queued = (runnable - truth["share_cpu"].ns).max(0.0);
    let period = profile.account("period_ns") as f64;
    for (function, part, most) in [("read_answer", 0.95, 1.05), ("take_mutex", 0.9, f64::INFINITY)] {
        let (is, ns) = (sampled(&profile, function), truth[function].ns);
        // Of each block chance decides whether its sample is of the wait or of the queue.
        let least = part * ns - queued - 5.0 * (queued * period).sqrt();
        assert!((least..most * ns).contains(&is), "{function}: {is} of {ns}, {queued} in queues");
    }
}

/// A thread that comes into a chosen cgroup during the run has only its waits from then on.
#[test]
fn waits_count_for_the_cgroup_in_which_they_end() {
    if !is_root() {
        return;
    }
    const LENGTH: Duration = Duration::from_secs(3);
    // Before the program: the cgroup is removed after the program's end.
    let group = Group::own(&naming(), "waits-moved");
    let mut waiting = Waiting::start("moved", LENGTH.as_millis() as u64);
    // The move, at the earliest and at the latest, and the end, since the begin.
    let mut moved = [0.0; 2];
    let mut end = 0.0;
    // The whole of the waits is that of a second profiler, whatever the machine adds to them.
    let pid = waiting.pid();
    let whole = Sampling::begin(&["-p", &pid, "-e", "wait", "--per-thread"]);
    let profile = while_sampling(&[], &["-G", &group.arg(), "-e", "wait", "--per-thread"], || {
        let begin = Instant::now();
        let since = || begin.elapsed().as_secs_f64();
        waiting.begin();
        std::thread::sleep(LENGTH / 2);
        moved[0] = since();
        fs::write(group.path().join("cgroup.procs"), &pid).unwrap();
        moved[1] = since();
        waiting.measured();
        end = since();
    });
    whole.signal(Signal::INT);
    let whole = whole.end(Watch::keep(&[]));
    for function in ["sleep_1ms", "sleep_10ms", "read_answer"] {
        // Callers are missing until the program's unwind tables are there, after the move.
        let within = whole.folded.within(function);
        let threads: BTreeSet<&String> = within.stacks().map(|(stack, _)| &stack[1]).collect();
        let of = |profile: &Profile| profile.folded.count(|stack| threads.contains(&stack[1])) as f64;
        let share = of(&profile) / of(&whole);
        let right = 0.9 - moved[1] / end..1.1 - moved[0] / end;
        assert!(right.contains(&share), "{function}: {share}, not {right:?}\n{}", profile.folded.top(8));
    }
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
        std::thread::sleep(Duration::from_secs(1));
    });
    // Each thread is in one wait, from the beginning to the end.
    let second = 1e9 / profile.account("period_ns") as f64;
    let levels = |frames: &[String]| frames.iter().filter(|frame| *frame == "level").count();
    let whole = profile.folded.keep(|frames| levels(frames) == LEVELS + 1);
    assert!(whole.total() as f64 > 0.95 * second, "{}", profile.folded.top(6));
    let is_whole =
        |frames: &[String]| ["begin", "wait_for_ever"].iter().all(|f| frames.iter().any(|g| g == f));
    assert_eq!(whole.count(is_whole), whole.total(), "{}", whole.top(3));
    let part = profile.folded.keep(|frames| (1..=LEVELS).contains(&levels(frames)));
    if is_held {
        assert!(part.total() as f64 > 0.95 * second, "{}", profile.folded.top(6));
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
    let waits = Cell::new(0);
    let profile = || {
        let (profile, _) = record("together", 1000, &["-e", "wall"]);
        assert_eq!(profile.report.get("event"), None, "the first event is cpu");
        let wait = &profile.report["events"][0];
        assert_eq!(wait["event"], "wait");
        waits.set(waits.get() + wait["accounts"]["kept"].as_u64().unwrap());
        profile.folded
    };
    let burns = |stack: &[String]| stack.iter().any(|frame| frame == "share_cpu");
    prove(profile, &[at_least(0.5, "CPU time of the threads that burn it", burns)]);
    // One run has some 15,000.
    for _ in 0..20 {
        if waits.get() > 10_000 {
            return;
        }
        profile();
    }
    panic!("only {} samples of waits", waits.get());
}

/// The kernel threads, and how long (ns) each of them was in a queue for a CPU until now, as the scheduler counts it.
fn queues_of_kernel_threads() -> BTreeMap<u32, f64> {
    let of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The parent of all kernel threads is kthreadd.
        (stat.rsplit_once(')')?.1.split_whitespace().nth(1)? == "2").then_some(())?;
        let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        schedstat.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, of(pid)?))).collect()
}

/// Interrupts wake most of these threads, and the kernel does not run BPF programs in all of them.
#[test]
fn kernel_threads_sleep_and_are_rarely_in_a_queue() {
    if !is_root() || queues_of_kernel_threads().is_empty() {
        return;
    }
    let tid = |stack: &[String]| -> Option<u32> {
        stack.get(1)?.strip_suffix(']')?.rsplit_once(" tid=")?.1.parse().ok()
    };
    let mut samples = 0;
    for _ in 0..30 {
        let mut before = BTreeMap::new();
        let profile = while_sampling(&[], &[&ALL[..], &["-e", "wait", "--idle"]].concat(), || {
            before = queues_of_kernel_threads();
            std::thread::sleep(Duration::from_secs(2));
        });
        let after = queues_of_kernel_threads();
        let grown = after.iter().map(|(pid, now)| now - before.get(pid).unwrap_or(&0.0));
        let queued: f64 = grown.map(|ns| ns.max(0.0)).sum();
        let own = profile.folded.keep(|stack| tid(stack).is_some_and(|tid| after.contains_key(&tid)));
        let runnable = own.keep(|stack| leaf(stack) == "[runnable]");
        let period = profile.account("period_ns") as f64;
        let sampled = runnable.total() as f64 * period;
        // Of N periods in queues, √N samples are one standard deviation at most. The bound is more than five for any N.
        assert!(sampled < 1.3 * queued + 50.0 * period, "{sampled} of {queued}\n{}", runnable.top(5));
        samples += own.total();
        if samples > 999 * 8 {
            return;
        }
    }
    panic!("kernel threads have only {samples} samples");
}

/// Two methods take the same time, and one of them ten times the CPU time: the example of JFR's CPU-time profiling (JEP
/// 509). One run shows both.
#[test]
fn requests_of_the_same_length_differ_in_cpu_time() {
    if !is_root() {
        return;
    }
    let (out, go) = (out_file("pb.gz"), scratch("requests").join("go"));
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
    // On a busy machine the method with more CPU time takes longer: it waits longer for a CPU.
    assert!(cpu.1 > 2.0 * wall.1, "the program is not what the test is about");
    // Each method has some 2,000 samples or more. Of them √N / 2 are one standard deviation at most.
    assert!((wall.0 / wall.1 - 1.0).abs() < 0.1, "{ten:?} {one:?} {measured:?}");
    // One request has some 100 samples of CPU time. If its thread loses its CPU at each tick, 4 are one deviation.
    assert!((cpu.0 / cpu.1 - 1.0).abs() < 0.4, "{ten:?} {one:?} {measured:?}");
}
