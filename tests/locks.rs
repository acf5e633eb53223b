//! Java locks of waits, on each JDK and each collector: their class, and the thread that had them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use testkit::folded;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{Profile, while_sampling};
use testkit::scratch;

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

fn have_class_and_owner(jdk: &Jdk, collectors: &[&[&str]]) {
    for flags in collectors {
        let target = Program::new("Locks").dont_inline("Locks.*").flags(flags).start(jdk);
        let pid = target.pid().to_string();
        let more = ["-p", &pid, "-e", "wait", "--java", "vm", "--raw-threads"];
        let profile = while_sampling(&[], &more, || std::thread::sleep(Duration::from_secs(2)));
        // ZGC leaves references to objects that it has moved as they are until the next collection: those locks have no
        // class meanwhile, and never a wrong one.
        let least = if flags.contains(&"-XX:+UseZGC") { 0.0 } else { 0.95 };
        let what = format!("JDK {} {flags:?}", jdk.version);
        for (function, reason, class, threads) in [
            ("Locks.enterCache", "monitor", "Locks$Cache", "cache-user-"),
            ("Locks.enterIndex", "monitor", "Locks$Index", "index-user-"),
            ("Locks.enterBytes", "monitor", "byte[]", "bytes-user-"),
            ("Locks.takeLock", "park", "java.util.concurrent.locks.ReentrantLock$FairSync", "lock-user-"),
        ] {
            let (waits, named) = samples(&profile, function, reason, class);
            assert!(waits > 100, "{what}: {waits} waits in {function}\n{}", profile.folded.top(12));
            assert!(named as f64 >= least * waits as f64, "{what}: {named} of {waits} waits have {class}");
            let owners = owners(&profile, reason, class);
            let all: u64 = owners.iter().map(|(_, samples)| samples).sum();
            assert_eq!(all, named, "{what}: {owners:?}");
            let methods = methods(&profile, reason, class);
            let own = methods.iter().filter(|(method, _)| method == function).map(|(_, samples)| samples);
            assert_eq!(
                (own.sum::<u64>(), methods.len()),
                (named, usize::from(named > 0)),
                "{what}: {methods:?}"
            );
            if all < 100 {
                continue;
            }
            let of = |thread: &str| {
                let samples = owners.iter().filter(|(owner, _)| owner.as_deref() == Some(thread));
                samples.map(|(_, samples)| samples).sum::<u64>() as f64 / all as f64
            };
            let (one, two) = (of(&format!("{threads}one")), of(&format!("{threads}two")));
            assert!(one + two > 0.9, "{what}: {owners:?}");
            let is_other = |owner: &Option<String>| owner.as_ref().is_some_and(|o| !o.starts_with(threads));
            let others = owners.iter().filter(|(owner, _)| is_other(owner)).map(|(_, samples)| samples);
            // The libjvm.so of this JDK 8 has no symbols: a wait in a safepoint looks like a wait for the lock, and any
            // thread may end it.
            let most = if jdk.version == 8 { all / 200 } else { 0 };
            assert!(others.sum::<u64>() <= most, "{what}: {owners:?}");
            // The second thread has the fair lock four times as long as the first one.
            assert!(reason != "park" || (0.65..0.95).contains(&two), "{what}: {owners:?}");
        }
        let second = 1e9 / profile.account("period_ns") as f64;
        // Up to JDK 23 such a thread looks each second whether its monitor is free. If it does so between the end of
        // sampling and its unwinding, its last wait, of up to a second, has no callers.
        let seconds = if jdk.version < 24 { 1.9 } else { 3.8 };
        let (all, _) = samples(&profile, "Locks.deadlock", "monitor", "");
        assert!(all as f64 > seconds * second, "{what}: {all}\n{}", profile.folded.top(12));
        let mut of_classes = 0;
        for (class, owner) in [("Locks$Left", "deadlock-one"), ("Locks$Right", "deadlock-two")] {
            let (_, named) = samples(&profile, "Locks.deadlock", "monitor", class);
            assert!(named > 0 || least == 0.0, "{what}: {named} of {all} have {class}");
            of_classes += named;
            // No thread wakes these: the owner is found in the JVM's memory, for waits that are not over. Up to JDK 23
            // these are the shorter ones. Threads of JVMs with concurrent collectors are not read.
            let owners = owners(&profile, "monitor", class);
            let is_read = jdk.version >= 24
                && !flags.iter().any(|flag| ["-XX:+UseZGC", "-XX:+UseShenandoahGC"].contains(flag));
            let known: u64 =
                owners.iter().filter(|(name, _)| name.is_some()).map(|(_, samples)| samples).sum();
            assert!(
                owners.iter().all(|(name, _)| name.as_ref().is_none_or(|name| name == owner))
                    && (!is_read || known as f64 > 0.95 * named as f64),
                "{what}: {owners:?}"
            );
        }
        // A wait of a second that ends in a collection has no class.
        let least = if jdk.version < 24 { least / 2.0 } else { least };
        assert!(of_classes as f64 >= least * all as f64, "{what}: {of_classes} of {all} have a class");
        let class = "java.util.concurrent.locks.ReentrantLock";
        let (waits, named) = samples(&profile, "Locks.waitForNews", "Object.wait", class);
        assert!(waits > 100 && named as f64 >= least * waits as f64, "{what}: {named} of {waits}");
        assert!(owners(&profile, "Object.wait", class).iter().all(|(owner, _)| owner.is_none()), "{what}");
    }
}

/// Waits for each lock as JFR records them, and as they are sampled: time, number and longest wait.
#[test]
fn waits_for_locks_are_those_of_jfr() {
    on_host(17, |jdk| {
        let flag = "-XX:StartFlightRecording:jdk.JavaMonitorEnter#threshold=0ms,jdk.ThreadPark#threshold=0ms";
        let target = Program::new("Locks").dont_inline("Locks.*").flags(&[flag]).start(jdk);
        let pid = target.pid().to_string();
        let (mut from, mut to) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let profile = while_sampling(&[], &["-p", &pid, "-e", "wait", "--java", "vm"], || {
            from = Timestamp::now();
            std::thread::sleep(Duration::from_secs(5));
            to = Timestamp::now();
        });
        let locks = [
            ("Locks.enterCache", "monitor", "Locks$Cache"),
            ("Locks.enterIndex", "monitor", "Locks$Index"),
            ("Locks.takeLock", "park", "java.util.concurrent.locks.ReentrantLock$FairSync"),
        ];
        let recorded = recorded_waits(jdk, &pid, to, &locks.map(|(.., class)| class));
        let period = profile.account("period_ns") as f64;
        for (function, reason, class) in locks {
            let of_lock = recorded.iter().filter(|event| is_for(event, class));
            let waits: Vec<f64> = of_lock.map(|event| within(event, from, to)).collect();
            let waits: Vec<f64> = waits.into_iter().filter(|ns| *ns > 0.0).collect();
            let (sum, longest) = (waits.iter().sum::<f64>(), waits.iter().copied().fold(0.0, f64::max));
            assert!(waits.len() > 4, "{} events of {class}", waits.len());
            // JFR's wait lasts until the thread has a CPU again, and a thread may lose its CPU before and after it.
            let sampled = profile.folded.within(function);
            let time = |leaf: &str| {
                sampled.count(|frames| {
                    let sleeps =
                        || frames.iter().any(|f| folded::bare(f).starts_with("java.lang.Thread.sleep"));
                    frames.last().unwrap() == leaf && !sleeps()
                }) as f64
                    * period
            };
            let (waited, queued) = (time(&format!("[wait: {reason} {class}]")), time("[runnable]"));
            assert!(
                waited < 1.05 * sum && waited + queued > 0.95 * sum,
                "{class}: {waited} and {queued} of {sum}\n{}",
                sampled.top(5)
            );
            // A thread that wakes and finds the monitor taken waits again: JFR has one event for all these waits.
            if reason == "monitor" {
                continue;
            }
            let rows = profile.report["waits"]["locks"].as_array().unwrap();
            let of_class = |row: &&serde_json::Value| row["class"] == class && row["reason"] == reason;
            let rows = || rows.iter().filter(of_class);
            let number: u64 = rows().map(|row| row["waits"].as_u64().unwrap()).sum();
            let most = rows().map(|row| row["longest_ns"].as_u64().unwrap()).max().unwrap() as f64;
            let count = waits.len() as f64;
            assert!((number as f64 - count).abs() < 0.1 * count, "{class}: {number} waits of {count}");
            // On a busy machine the longest wait of JFR is that of the thread that waited longest for a CPU.
            assert!((0.5 * longest..1.05 * longest).contains(&most), "{class}: longest {most} of {longest}");
        }
    });
}

/// The waits for locks of these classes that JFR has recorded. JFR records a wait at its end, so this waits until all waits
/// from before `to` have ended. A thread that takes a monitor back at once lets the other one wait for long.
fn recorded_waits(jdk: &Jdk, pid: &str, to: Timestamp, classes: &[&str]) -> Vec<serde_json::Value> {
    let file = scratch("jfr").join("locks.jfr");
    let tool = |name: &str, args: &[&str]| {
        let output = Command::new(jdk.home().unwrap().join("bin").join(name)).args(args).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        output.stdout
    };
    for _ in 0..20 {
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
        if last.values().all(|end| *end > to) {
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
