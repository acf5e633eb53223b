//! Java locks of waits, on each JDK and each collector: their class, and the thread that had them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use jbpf_prof::output;
use jiff::{SignedDuration, Timestamp};
use testkit::folded;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{Profile, out_file, profile, profile_by};
use testkit::scratch;
use testkit::wald::{Claim, Verdict};

const SERIAL: &[&str] = &["-XX:+UseSerialGC"];
const PARALLEL: &[&str] = &["-XX:+UseParallelGC"];
const MARK_SWEEP: &[&str] = &["-XX:+UseConcMarkSweepGC"];
const G1: &[&str] = &["-XX:+UseG1GC"];
const WIDE: &[&str] = &["-XX:+UseParallelGC", "-XX:-UseCompressedOops"];
const Z: &[&str] = &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseZGC"];
const Z_WITH_GENERATIONS: &[&str] = &["-XX:+UseZGC", "-XX:+ZGenerational"];
const SHENANDOAH: &[&str] = &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseShenandoahGC"];
const G1_COMPACT: &[&str] = &["-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"];
const Z_COMPACT: &[&str] = &["-XX:+UseZGC", "-XX:+UseCompactObjectHeaders"];
const SHENANDOAH_COMPACT: &[&str] = &["-XX:+UseShenandoahGC", "-XX:+UseCompactObjectHeaders"];

#[test]
fn locks_of_jdk_8() {
    in_container(8, |jdk| have_class_and_owner(jdk, &[SERIAL, PARALLEL, MARK_SWEEP, G1, WIDE]));
}

#[test]
fn locks_of_jdk_11() {
    in_container(11, |jdk| have_class_and_owner(jdk, &[SERIAL, PARALLEL, MARK_SWEEP, G1, Z, SHENANDOAH]));
}

#[test]
fn locks_of_jdk_17() {
    on_host(17, |jdk| have_class_and_owner(jdk, &[SERIAL, PARALLEL, G1, WIDE, Z, SHENANDOAH]));
}

#[test]
fn locks_of_jdk_21() {
    in_container(21, |jdk| {
        have_class_and_owner(jdk, &[SERIAL, PARALLEL, G1, Z, Z_WITH_GENERATIONS, SHENANDOAH]);
    });
}

#[test]
fn locks_of_jdk_25() {
    let all: &[&[&str]] =
        &[SERIAL, PARALLEL, G1, WIDE, Z, SHENANDOAH, G1_COMPACT, Z_COMPACT, SHENANDOAH_COMPACT];
    in_container(25, |jdk| have_class_and_owner(jdk, all));
}

/// A claim about waits, and their samples so far.
#[derive(Clone, Copy, Debug)]
struct Share {
    claim: Claim,
    /// How many periods of the clock a wait takes. The samples of one wait have the same class and the same owner.
    periods: u64,
    hits: u64,
    samples: u64,
    /// Whether the test goes on until the claim is accepted. Each claim must not be refused.
    is_needed: bool,
}

impl Share {
    fn verdict(&self) -> Verdict {
        let (hits, misses) = (self.hits / self.periods, (self.samples - self.hits) / self.periods);
        self.claim.judge(hits, hits + misses)
    }
}

/// A JVM that runs `Locks`, and what its profiles have so far.
struct Locked<'a> {
    version: u32,
    flags: &'a [&'a str],
    shares: BTreeMap<String, Share>,
    /// Samples of waits by function.
    seen: BTreeMap<&'static str, u64>,
}

/// A lock of `Locks`.
struct LockTruth {
    function: &'static str,
    reason: &'static str,
    class: &'static str,
    /// How the names of its threads begin, which end with `one` and `two`.
    threads: &'static str,
    /// See [`Share`].
    periods: u64,
    /// The least share of its waits that the other thread ends, up to JDK 23. There a thread that comes to a monitor
    /// looks again after 1 ms and after 8 ms more: a timer ends these waits. On a free machine a thread mostly takes a
    /// monitor back at once, and the other one has many waits until it has the monitor. On a busy machine it has few.
    ended_by_owner: f64,
}

const LOCKS: [LockTruth; 4] = [
    LockTruth {
        function: "Locks.enterCache",
        reason: "monitor",
        class: "Locks$Cache",
        threads: "cache-user-",
        periods: 1,
        ended_by_owner: 0.6,
    },
    LockTruth {
        function: "Locks.enterIndex",
        reason: "monitor",
        class: "Locks$Index",
        threads: "index-user-",
        periods: 3,
        ended_by_owner: 0.25,
    },
    LockTruth {
        function: "Locks.enterBytes",
        reason: "monitor",
        class: "byte[]",
        threads: "bytes-user-",
        periods: 1,
        ended_by_owner: 0.6,
    },
    LockTruth {
        function: "Locks.takeLock",
        reason: "park",
        class: "java.util.concurrent.locks.ReentrantLock$FairSync",
        threads: "lock-user-",
        periods: 3,
        ended_by_owner: 0.9,
    },
];

/// The length of a profile in seconds, and its rate: a period is five milliseconds.
const SECONDS: u32 = 3;
const CLOCK: [&str; 7] = ["-F", "199", "-e", "wait", "--java", "vm", "--raw-threads"];
const MOST_PROFILES: u32 = 40;

/// These JVMs use hardly any CPU time but at their start, so that some of them run beside each other.
fn have_class_and_owner(jdk: &Jdk, collectors: &[&[&str]]) {
    for some in collectors.chunks(3) {
        std::thread::scope(|scope| {
            for &flags in some {
                scope.spawn(move || has_class_and_owner(jdk, flags));
            }
        });
    }
}

fn has_class_and_owner(jdk: &Jdk, flags: &[&str]) {
    let target = Program::new("Locks").dont_inline("Locks.*").flags(flags).start(jdk);
    let (shares, seen) = (BTreeMap::new(), BTreeMap::new());
    let mut locked = Locked { version: jdk.version, flags, shares, seen };
    for _ in 0..MOST_PROFILES {
        let profile = profile_by(&CLOCK, &target, SECONDS);
        for lock in &LOCKS {
            locked.note(lock, &profile);
        }
        locked.note_news(&profile);
        locked.assert_deadlock(&profile);
        if locked.are_decided() {
            return;
        }
    }
    panic!(
        "{}: undecided after {MOST_PROFILES} profiles: {:#?}, {:?}",
        locked.name(),
        locked.shares,
        locked.seen
    );
}

impl Locked<'_> {
    fn name(&self) -> String {
        format!("JDK {} {:?}", self.version, self.flags)
    }

    /// ZGC leaves references to objects that it has moved as they are until the next collection: those locks have no
    /// class meanwhile, and never a wrong one.
    fn has_classes(&self) -> bool {
        !self.flags.contains(&"-XX:+UseZGC")
    }

    /// Adds the samples of a profile to those of a claim.
    fn add(&mut self, what: &str, share: Share) {
        let sum = self.shares.entry(what.to_owned()).or_insert(Share { hits: 0, samples: 0, ..share });
        sum.hits += share.hits;
        sum.samples += share.samples;
        let (verdict, sum) = (sum.verdict(), *sum);
        assert_ne!(verdict, Verdict::Wrong, "{}: {what}: {sum:?}", self.name());
    }

    fn are_decided(&self) -> bool {
        self.seen.values().all(|samples| *samples > 100)
            && self.shares.values().all(|share| !share.is_needed || share.verdict() == Verdict::Right)
    }

    /// The class of a lock, its owner, and the method that waits for the lock.
    fn note(&mut self, lock: &LockTruth, profile: &Profile) {
        let LockTruth { function, reason, class, threads, periods, ended_by_owner } = *lock;
        let what = format!("{} {class}", self.name());
        let is_needed = self.has_classes();
        let (waits, named) = samples(profile, function, reason, class);
        *self.seen.entry(function).or_default() += waits;
        if is_needed {
            let claim = Claim::AtLeast(0.95);
            let share = Share { claim, periods, hits: named, samples: waits, is_needed };
            self.add(&format!("waits in {function} have the class"), share);
        }
        let owners = owners(profile, reason, class);
        let all: u64 = owners.iter().map(|(_, samples)| samples).sum();
        assert_eq!(all, named, "{what}: {owners:?}");
        let methods = methods(profile, reason, class);
        let own = methods.iter().filter(|(method, _)| method == function).map(|(_, samples)| samples);
        let right = (named, usize::from(named > 0));
        assert_eq!((own.sum::<u64>(), methods.len()), right, "{what}: {methods:?}");
        let of = |is_one: &dyn Fn(&str) -> bool| {
            let owned = owners.iter().filter(|(owner, _)| owner.as_deref().is_some_and(is_one));
            owned.map(|(_, samples)| samples).sum::<u64>()
        };
        let [one, two] = ["one", "two"].map(|number| format!("{threads}{number}"));
        let [one, two] = [one, two].map(|thread| of(&|owner: &str| owner == thread));
        let others = of(&|owner: &str| !owner.starts_with(threads));
        let share = |claim, hits, is_needed| Share { claim, periods, hits, samples: all, is_needed };
        let of_pair = Claim::AtLeast(if self.version < 24 { ended_by_owner } else { 0.9 });
        self.add(&format!("owners of {class} are of the pair"), share(of_pair, one + two, is_needed));
        if self.version == 8 {
            // The libjvm.so of this JDK 8 has no symbols: a wait in a safepoint looks like a wait for the lock, and any
            // thread may end it. On a busy machine safepoints last longer.
            self.add(&format!("owners of {class} are others"), share(Claim::AtMost(0.02), others, false));
        } else {
            assert_eq!(others, 0, "{what}: {owners:?}");
        }
        if reason == "park" {
            // The second thread has the fair lock four times as long as the first one. Both also wait for a CPU then.
            for (bound, claim) in [("least", Claim::AtLeast(0.65)), ("most", Claim::AtMost(0.95))] {
                self.add(&format!("at {bound} the second thread has {class}"), share(claim, two, is_needed));
            }
        }
    }

    /// Waits for a condition of a monitor.
    fn note_news(&mut self, profile: &Profile) {
        let class = "java.util.concurrent.locks.ReentrantLock";
        let (waits, named) = samples(profile, "Locks.waitForNews", "Object.wait", class);
        *self.seen.entry("Locks.waitForNews").or_default() += waits;
        if self.has_classes() {
            let claim = Claim::AtLeast(0.95);
            let share = Share { claim, periods: 2, hits: named, samples: waits, is_needed: true };
            self.add("waits in Locks.waitForNews have the class", share);
        }
        let owners = owners(profile, "Object.wait", class);
        assert!(owners.iter().all(|(owner, _)| owner.is_none()), "{}: {owners:?}", self.name());
    }

    /// The two threads wait during the whole profile, in one wait or, up to JDK 23, in one each second.
    fn assert_deadlock(&self, profile: &Profile) {
        let what = self.name();
        let whole = 2.0 * f64::from(SECONDS) * 1e9 / profile.account("period_ns") as f64;
        // Up to JDK 23 such a thread looks each second whether its monitor is free. If it does so between the end of
        // sampling and its unwinding, its last wait, of up to a second, has no callers.
        let least = if self.version < 24 { 0.475 } else { 0.95 };
        let (all, _) = samples(profile, "Locks.deadlock", "monitor", "");
        assert!(all as f64 > least * whole, "{what}: {all}\n{}", profile.folded.top(12));
        let mut of_classes = 0;
        for (class, owner) in [("Locks$Left", "deadlock-one"), ("Locks$Right", "deadlock-two")] {
            let (_, named) = samples(profile, "Locks.deadlock", "monitor", class);
            assert!(named > 0 || !self.has_classes(), "{what}: {named} of {all} have {class}");
            of_classes += named;
            // No thread wakes these: the owner is found in the JVM's memory, for waits that are not over. Up to JDK 23
            // these are the shorter ones. Threads of JVMs with concurrent collectors are not read.
            let owners = owners(profile, "monitor", class);
            let is_read = self.version >= 24
                && !self.flags.iter().any(|flag| ["-XX:+UseZGC", "-XX:+UseShenandoahGC"].contains(flag));
            let known: u64 =
                owners.iter().filter(|(name, _)| name.is_some()).map(|(_, samples)| samples).sum();
            assert!(
                owners.iter().all(|(name, _)| name.as_ref().is_none_or(|name| name == owner))
                    && (!is_read || known as f64 > 0.95 * named as f64),
                "{what}: {owners:?}"
            );
        }
        // A wait of a second that ends in a collection has no class.
        let least = if self.has_classes() { least } else { 0.0 };
        assert!(of_classes as f64 >= least * all as f64, "{what}: {of_classes} of {all} have a class");
    }
}

/// A lock as JFR records its waits, and as they are sampled.
struct RecordedLock {
    function: &'static str,
    reason: &'static str,
    class: &'static str,
}

const RECORDED: [RecordedLock; 3] = [
    RecordedLock { function: "Locks.enterCache", reason: "monitor", class: "Locks$Cache" },
    RecordedLock { function: "Locks.enterIndex", reason: "monitor", class: "Locks$Index" },
    RecordedLock {
        function: "Locks.takeLock",
        reason: "park",
        class: "java.util.concurrent.locks.ReentrantLock$FairSync",
    },
];

/// Waits for each lock as JFR records them, and as they are sampled: time, number and longest wait.
#[test]
fn waits_for_locks_are_those_of_jfr() {
    on_host(17, |jdk| {
        let flag = "-XX:StartFlightRecording:jdk.JavaMonitorEnter#threshold=0ms,jdk.ThreadPark#threshold=0ms";
        let target = Program::new("Locks").dont_inline("Locks.*").flags(&[flag]).start(jdk);
        let out = out_file("pb.gz");
        let more = ["-e", "wait", "--java", "vm", "-o", out.to_str().unwrap()];
        let profile = profile(&target, 5, &more);
        let span = output::read(&out).unwrap().span;
        fs::remove_file(&out).unwrap();
        let [from, to] = [span.start_unix_ns, span.start_unix_ns + span.duration_ns]
            .map(|ns| Timestamp::from_nanosecond(i128::from(ns)).unwrap());
        let pid = target.pid().to_string();
        let recorded = recorded_waits(jdk, &pid, to, &RECORDED.each_ref().map(|lock| lock.class));
        for lock in &RECORDED {
            let of_lock: Vec<_> = recorded.iter().filter(|event| is_for(event, lock.class)).collect();
            are_those_of_jfr(&profile, lock, &of_lock, from, to);
        }
    });
}

/// Compares the waits for a lock with the events of JFR, between the two times.
fn are_those_of_jfr(
    profile: &Profile,
    RecordedLock { function, reason, class }: &RecordedLock,
    events: &[&serde_json::Value],
    from: Timestamp,
    to: Timestamp,
) {
    let period = profile.account("period_ns") as f64;
    let waits = events.iter().filter(|event| within(event, from, to) > 0.0);
    let lengths: Vec<f64> = waits.clone().map(|event| within(event, from, to)).collect();
    let sum = lengths.iter().sum::<f64>();
    // One of two threads waits for the lock nearly all the time.
    let all = to.duration_since(from).as_nanos() as f64;
    assert!(sum > 0.5 * all, "{class}: {sum} of {all}");
    let rows = profile.report["waits"]["locks"].as_array().unwrap();
    let rows = rows.iter().filter(|row| row["class"] == *class && row["reason"] == *reason);
    let number: u64 = rows.clone().map(|row| row["waits"].as_u64().unwrap()).sum();
    // JFR's wait lasts until the thread has a CPU again, and a thread may lose its CPU before and after it.
    let sampled = profile.folded.within(function);
    let time = |leaf: &str| {
        sampled.count(|frames| {
            let sleeps = || frames.iter().any(|f| folded::bare(f).starts_with("java.lang.Thread.sleep"));
            frames.last().unwrap() == leaf && !sleeps()
        }) as f64
            * period
    };
    let (waited, queued) = (time(&format!("[wait: {reason} {class}]")), time("[runnable]"));
    // Chance decides on the blocks at both ends of each wait, with a variance of a sixth each.
    let limit = 0.05 * sum + 5.0 * (number as f64 / 3.0).sqrt() * period;
    assert!(
        waited < sum + limit && waited + queued > sum - limit,
        "{class}: {waited} and {queued} of {sum} ± {limit}\n{}",
        sampled.top(5)
    );
    // A thread that wakes and finds the monitor taken waits again: JFR has one event for all these waits.
    if *reason == "monitor" {
        return;
    }
    let count = lengths.len() as f64;
    assert!((number as f64 - count).abs() < 0.1 * count, "{class}: {number} waits of {count}");
    // The second thread has the lock for 12 ms, and longer if it then waits for a CPU. JFR's waits end when the thread
    // that waited has a CPU. JFR's longest one may have begun before, or have ended later.
    let most = rows.map(|row| row["longest_ns"].as_u64().unwrap()).max().unwrap() as f64;
    let whole = waits.map(|event| within(event, Timestamp::MIN, Timestamp::MAX));
    let longest = whole.fold(0.0, f64::max);
    assert!((0.9 * 12e6..1.05 * longest).contains(&most), "{class}: longest {most} of {longest}");
}

/// The waits for locks of these classes that JFR has recorded. JFR records a wait at its end, so this waits until all
/// waits from before `to` have ended. A thread that takes a monitor back at once lets the other one wait for long.
fn recorded_waits(jdk: &Jdk, pid: &str, to: Timestamp, classes: &[&str]) -> Vec<serde_json::Value> {
    let file = scratch("jfr").join("locks.jfr");
    let tool = |name: &str, args: &[&str]| {
        let output = Command::new(jdk.home().unwrap().join("bin").join(name)).args(args).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        output.stdout
    };
    for _ in 0..60 {
        std::thread::sleep(Duration::from_secs(1));
        tool("jcmd", &[pid, "JFR.dump", &format!("filename={}", file.display())]);
        let events = ["print", "--json", "--events", "JavaMonitorEnter,ThreadPark", file.to_str().unwrap()];
        let recorded: serde_json::Value = serde_json::from_slice(&tool("jfr", &events)).unwrap();
        let recorded = recorded["recording"]["events"].as_array().unwrap();
        let mut last: BTreeMap<(&str, &str), Timestamp> = BTreeMap::new();
        for event in recorded {
            let Some(class) = classes.iter().find(|class| is_for(event, class)) else { continue };
            let thread = event["values"]["eventThread"]["javaName"].as_str().unwrap();
            let end = last.entry((class, thread)).or_default();
            *end = times(event).1.max(*end);
        }
        // Each lock has two threads.
        if last.len() == 2 * classes.len() && last.values().all(|end| *end > to) {
            return recorded.clone();
        }
    }
    panic!("some waits do not end");
}

/// Whether a recorded wait was for a lock of this class.
fn is_for(event: &serde_json::Value, class: &str) -> bool {
    let names = ["monitorClass", "parkedClass"].map(|field| event["values"][field]["name"].as_str());
    names.iter().flatten().any(|name| name.replace('/', ".") == class)
}

/// When a recorded wait began, and when it ended.
fn times(event: &serde_json::Value) -> (Timestamp, Timestamp) {
    let text = |field: &str| event["values"][field].as_str().unwrap();
    let begin: Timestamp = text("startTime").parse().unwrap();
    (begin, begin + text("duration").parse::<SignedDuration>().unwrap())
}

/// How long a recorded wait lasted between two times, ns.
fn within(event: &serde_json::Value, from: Timestamp, to: Timestamp) -> f64 {
    let (begin, end) = times(event);
    (end.min(to).duration_since(begin.max(from)).as_nanos() as f64).max(0.0)
}

/// Samples of waits with this reason below a function, and how many of them have the class.
fn samples(profile: &Profile, function: &str, reason: &str, class: &str) -> (u64, u64) {
    let of = |leaf: fn(&str, &str) -> bool, wanted: &str| {
        profile.folded.count(|frames| {
            leaf(frames.last().unwrap(), wanted) && frames.iter().any(|frame| folded::is(frame, function))
        })
    };
    let all = of(|leaf, wanted| leaf.starts_with(wanted), &format!("[wait: {reason}"));
    (all, of(|leaf, wanted| leaf == wanted, &format!("[wait: {reason} {class}]")))
}

/// The owners in the report's rows of a lock, and their samples.
fn owners(profile: &Profile, reason: &str, class: &str) -> Vec<(Option<String>, u64)> {
    let rows = profile.report["waits"]["locks"].as_array().unwrap();
    let rows = rows.iter().filter(|row| row["reason"] == reason && row["class"] == class);
    rows.map(|row| (row["owner"].as_str().map(str::to_owned), row["samples"].as_u64().unwrap())).collect()
}

/// The methods in the report's rows that waited for a lock, and their samples.
fn methods(profile: &Profile, reason: &str, class: &str) -> Vec<(String, u64)> {
    let rows = profile.report["waits"]["lock_methods"].as_array().unwrap();
    let rows = rows.iter().filter(|row| row["reason"] == reason && row["class"] == class);
    rows.map(|row| (row["method"].as_str().unwrap().to_owned(), row["samples"].as_u64().unwrap())).collect()
}
