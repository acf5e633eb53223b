//! Reasons and states of waits, end to end: each thread of a program waits in one way, whose leaf the profile shows.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::cgroup::Group;
use testkit::claims::{StackClaim, at_least, at_most, prove, seen};
use testkit::folded::{Folded, is, reaches_root};
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, profile_by, record_by, run, while_sampling};
use testkit::reasons::{LEAVES, LOCK_LEAVES, contends, is_of, mistakes};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// The length of a batch in seconds, and its rate. At this rate most waits have one sample or none, so that samples do
/// not depend on each other.
const SECONDS: u32 = 2;
const RATE: &str = "199";

/// How many samples a thread has that waits during a whole batch.
fn periods(profile: &Profile) -> f64 {
    f64::from(SECONDS) * 1e9 / profile.account("period_ns") as f64
}

/// A wait's own stack. The stack of its waker comes after it.
fn own(stack: &[String]) -> &[String] {
    &stack[..stack.iter().position(|frame| frame == "--").unwrap_or(stack.len())]
}

fn leaf(stack: &[String]) -> &str {
    own(stack).last().map_or("", String::as_str)
}

/// A thread in a frozen cgroup.
struct Frozen {
    target: Target,
    thaw: (PathBuf, &'static str),
    _group: Group,
}

impl Frozen {
    /// `None` if no hierarchy freezes groups.
    fn start() -> Option<Frozen> {
        let mut groups =
            testkit::cgroup::hierarchies().into_iter().map(|(_, path)| Group::own(&path, "waits-frozen"));
        let knobs = [("cgroup.freeze", "1", "0"), ("freezer.state", "FROZEN", "THAWED")];
        let (group, (file, freeze, thaw)) = groups.find_map(|group| {
            let knob = knobs.into_iter().find(|(file, ..)| group.path().join(file).exists())?;
            Some((group, knob))
        })?;
        let file = group.path().join(file);
        let target = Target::start(&mut group.enter(&native::program("native")));
        fs::write(&file, freeze).unwrap();
        Some(Frozen { target, thaw: (file, thaw), _group: group })
    }
}

/// The kernel ends a killed process in a frozen cgroup of v1 after the cgroup is thawed.
impl Drop for Frozen {
    fn drop(&mut self) {
        let (file, thaw) = &self.thaw;
        let _ = fs::write(file, thaw);
    }
}

/// Threads and processes that each wait in one way. One profile serves all of them.
struct Ways {
    /// The programs `reasons` and `lock_reasons`.
    programs: [Target; 2],
    stopped: Target,
    frozen: Option<Frozen>,
}

impl Ways {
    fn start() -> Ways {
        let start = |name: &str| {
            let flags = ["-fno-omit-frame-pointer", "-pthread"];
            let program = native::with_flags(&format!("{name}.c"), name, &flags);
            Target::start(Command::new(program).arg(scratch(name)))
        };
        let stopped = native::start("kernel");
        stopped.signal(Signal::STOP);
        let frozen = Frozen::start();
        if frozen.is_none() {
            skip("no hierarchy freezes groups");
        }
        Ways { programs: ["reasons", "lock_reasons"].map(start), stopped, frozen }
    }

    /// A profile of all of them. The profiler needs longer to begin than the threads need to come to their waits.
    fn profile(&mut self) -> Folded {
        let others = [&self.programs[1], &self.stopped].into_iter();
        let others = others.chain(self.frozen.iter().map(|frozen| &frozen.target));
        let others: Vec<String> = others.map(|target| target.pid().to_string()).collect();
        let others = others.join(",");
        let line = ["-F", RATE, "-e", "wait", "--children", "--per-thread", "--raw-threads", "--idle"];
        let profile = profile_by(&[&line[..], &["-p", &others]].concat(), &self.programs[0], SECONDS);
        assert_eq!(profile.report["accounts"]["lost"], serde_json::json!([]));
        for (program, leaves) in self.programs.iter_mut().zip([&LEAVES[..], &LOCK_LEAVES]) {
            let for_ever: Vec<_> = leaves.iter().copied().filter(|(thread, _)| !contends(thread)).collect();
            let mistakes = mistakes(&profile.folded, &for_ever, program.lines(), periods(&profile));
            assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
        }
        assert_waits(&profile, self.stopped.pid(), |leaf| leaf == "[wait: stopped]");
        if let Some(frozen) = &self.frozen {
            // Regardless of its state before.
            assert_waits(&profile, frozen.target.pid(), |leaf| leaf.ends_with(": frozen]"));
        }
        for (thread, _) in self.contending() {
            let of_thread = profile.folded.keep(|stack| is_of(stack, thread));
            let queued = of_thread.count(|stack| leaf(stack) == "[runnable]");
            let (all, periods) = (of_thread.total() as f64, periods(&profile));
            assert!(
                all >= 0.5 * periods && all - queued as f64 >= 0.1 * periods,
                "{thread}: {all} samples, {queued} of them in queues, in {periods} periods\n{}",
                of_thread.top(3)
            );
        }
        profile.folded
    }

    /// The threads of this host that wait again and again.
    fn contending(&mut self) -> Vec<(&'static str, &'static str)> {
        let lines = self.programs[1].lines();
        let is_there = |thread: &str| !lines.iter().any(|line| line.strip_prefix("without ") == Some(thread));
        LOCK_LEAVES.into_iter().filter(|(thread, _)| contends(thread) && is_there(thread)).collect()
    }
}

/// Asserts that a thread is in one wait during the whole batch.
#[track_caller]
fn assert_waits(profile: &Profile, tid: u32, is_leaf: impl Fn(&str) -> bool) {
    let own = profile.folded.of_thread(tid);
    assert!(own.total() as f64 >= 0.95 * periods(profile), "{}\n{}", own.total(), profile.folded.top(8));
    let share = own.share(|stack| is_leaf(leaf(stack)));
    assert!(share > 0.99, "{share}\n{}", own.top(5));
}

/// Threads that wait for ever, one that is stopped, one that is frozen, and threads that contend.
#[test]
fn each_wait_has_its_reason() {
    if !is_root() {
        return;
    }
    let mut ways = Ways::start();
    let mut first = Some(ways.profile());
    // Two threads write to the file. The lock of its content is held for longer on a busy machine, and the thread that has
    // the position waits for it, too.
    let share = |thread| if thread == "file position" { 0.5 } else { 0.9 };
    let claim = |(thread, reason): (&'static str, &'static str)| {
        at_least(share(thread), format!("{thread}: {reason}"), move |stack| leaf(stack) == reason)
            .among(move |stack| is_of(stack, thread) && leaf(stack) != "[runnable]")
    };
    let claims: Vec<StackClaim<'_>> = ways.contending().into_iter().map(claim).collect();
    prove(|| first.take().unwrap_or_else(|| ways.profile()), &claims);
}

/// Folded stacks have no labels: the leaf has the state and the reason.
#[test]
fn a_profile_is_converted_in_part() {
    let dir = scratch("converted");
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
    // Of this part of the time the group was throttled, as the kernel counts it.
    let mut part = 0.0;
    let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || {
        let before = group.throttled();
        let begin = Instant::now();
        while group.throttled() - before < 2.5 {
            assert!(begin.elapsed() < Duration::from_secs(120), "the group is hardly throttled");
            std::thread::sleep(Duration::from_millis(50));
        }
        part = (group.throttled() - before) / begin.elapsed().as_secs_f64();
    });
    let ns = |name: &str| {
        let states = profile.report["waits"]["states"].as_array().unwrap().clone();
        states.iter().find(|state| state["state"] == name).map_or(0.0, |state| state["ns"].as_f64().unwrap())
    };
    let seconds = ns("throttled") / 1e9;
    // The profiler may begin earlier and end later. The kernel counts a period of the quota when it ends.
    let right = part * profile.report["duration_s"].as_f64().unwrap();
    assert!((seconds - right).abs() < 0.15 * right + 0.2, "{seconds} of {right}");
    // On a busy machine too: a thread that is not throttled waits for a CPU. Both last for several periods of the
    // clock, so that chance decides only on the samples at their ends.
    let share = profile.folded.share(|stack| leaf(stack) == "[throttled]");
    let measured = ns("throttled") / (ns("throttled") + ns("runnable"));
    assert!((share - measured).abs() < 0.03, "{share} of {measured}\n{}", profile.folded.top(5));
}

/// Whether the stack of a wait has a function, and this leaf.
fn waits_in(function: &'static str, reason: &'static str) -> impl Fn(&[String]) -> bool + Copy {
    move |stack: &[String]| leaf(stack) == reason && own(stack).iter().any(|frame| is(frame, function))
}

/// Whether the waker of a wait has one of these frames.
fn woken_by<const N: usize>(wakers: [&'static str; N]) -> impl Fn(&[String]) -> bool {
    move |stack: &[String]| stack[own(stack).len()..].iter().any(|frame| wakers.contains(&frame.as_str()))
}

/// In one window of counts, too: the program's waits differ in nothing but their wakers.
#[test]
fn waits_with_one_stack_have_each_its_own_waker() {
    if !is_root() {
        return;
    }
    let target = Target::start(&mut Command::new(native::program("wakers")));
    let line = ["--pid".to_owned(), target.pid().to_string()];
    let clock = ["-F", RATE, "-e", "wait", "--wakers"];
    let mut judged = 0;
    for _ in 0..60 {
        let profile = record_by(&clock, &[target.pid()], 0.8, &line);
        let waits = profile.folded.keep(|stack| own(stack).iter().any(|frame| is(frame, "take")));
        let [a, b] = ["give_a_[w]", "give_b_[w]"].map(|waker| waits.count(woken_by([waker])));
        // A quarter and three quarters, if the threads have a CPU when they want one.
        if a + b > 50 {
            assert!(a > 0 && b > 0, "{a} and {b}:\n{}", waits.top(5));
            judged += 1;
        }
        if judged == 3 {
            return;
        }
    }
    panic!("the machine gave the program no time in 60 profiles");
}

fn claims_of_java() -> Vec<StackClaim<'static>> {
    const MONITOR: &str = "[wait: monitor java.lang.Object]";
    const LOCK: &str = "[wait: park java.util.concurrent.locks.ReentrantLock$FairSync]";
    const TIMER: &str = "[wait: timer]";
    let mut claims = vec![
        // Threads of the JVM itself are idle by their own functions or names. Until the unwind tables are loaded, stacks lack
        // these functions; on a busy machine that is a larger part of the profile.
        at_most(0.02, "waits for an unknown futex", |stack| leaf(stack) == "[wait: futex]")
            .among(reaches_root),
        at_least(0.8, "waits with whole stacks", reaches_root),
        seen(
            199,
            "idle threads of the pool",
            waits_in("java.util.concurrent.ThreadPoolExecutor.getTask", "[idle: thread pool]"),
        ),
    ];
    // One of two threads holds the lock and sleeps, the other one waits for the lock. It waits longer if the first one
    // then waits for a CPU.
    for (function, reason) in [
        ("Waits.enterMonitor", MONITOR),
        ("Waits.enterMonitor", TIMER),
        ("Waits.takeLock", LOCK),
        ("Waits.takeLock", TIMER),
    ] {
        let claim = at_least(0.25, format!("{function}: {reason}"), waits_in(function, reason));
        claims.push(claim.among(move |stack| {
            leaf(stack) != "[runnable]" && own(stack).iter().any(|frame| is(frame, function))
        }));
    }
    // Who gives a lock back ends the wait for it. A timer comes with an interrupt, which interrupts any code. Up to
    // JDK 23 a thread that comes to a monitor looks again after a millisecond, of the four that it waits at least: a
    // timer ends its first wait.
    let [lock, monitor, timer] = ["Waits.takeLock_[w]", "Waits.enterMonitor_[w]", "[interrupt]"];
    for (claim, waits) in [
        (at_least(0.95, "locks given back", woken_by([lock])), waits_in("Waits.takeLock", LOCK)),
        (at_least(0.95, "sleeps ended by a timer", woken_by([timer])), waits_in("Waits.takeLock", TIMER)),
        (at_least(0.6, "monitors given back", woken_by([monitor])), waits_in("Waits.enterMonitor", MONITOR)),
        (
            at_least(0.95, "monitors given back, or looked at", woken_by([monitor, timer])),
            waits_in("Waits.enterMonitor", MONITOR),
        ),
    ] {
        // A wait that is not over has no waker.
        claims.push(claim.among(move |stack| waits(stack) && own(stack).len() < stack.len()));
    }
    claims
}

#[test]
fn java_threads_wait_for_monitors_locks_timers_and_work() {
    if !is_root() {
        return;
    }
    let target = Program::new("Waits").dont_inline("Waits.*").start(&Jdk::host());
    let hung = waits_in("Waits.waitForEver", "[wait: park java.util.concurrent.CountDownLatch$Sync]");
    let batch = || {
        let profile = profile_by(&["-F", RATE, "-e", "wait", "--idle", "--wakers"], &target, SECONDS);
        assert!(!profile.report["waits"]["idle"].as_array().unwrap().is_empty());
        // This thread is seen from outside.
        let samples = profile.folded.count(hung);
        assert!(samples as f64 > 0.95 * periods(&profile), "{samples}\n{}", profile.folded.top(16));
        profile.folded
    };
    prove(batch, &claims_of_java());
}
