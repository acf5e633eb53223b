//! Java locks of waits, on each JDK and each collector: their class, and the thread that had them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::time::Duration;

use testkit::folded;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{Profile, while_sampling};

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
            if all < 100 {
                continue;
            }
            let of = |thread: &str| {
                let samples = owners.iter().filter(|(owner, _)| owner.as_deref() == Some(thread));
                samples.map(|(_, samples)| samples).sum::<u64>() as f64 / all as f64
            };
            let (one, two) = (of(&format!("{threads}one")), of(&format!("{threads}two")));
            assert!(one + two > 0.9, "{what}: {owners:?}");
            let others = owners
                .iter()
                .filter(|(owner, _)| owner.as_ref().is_some_and(|owner| !owner.starts_with(threads)));
            assert_eq!(others.count(), 0, "{what}: {owners:?}");
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
            // Nobody wakes these threads: the owner is read from the monitor, where a JDK has it there.
            let owners = owners(&profile, "monitor", class);
            assert!(
                owners.iter().all(|(name, _)| name.as_ref().is_none_or(|name| name == owner)),
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
