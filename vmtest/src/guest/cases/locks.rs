//! Java locks of waits: their class, and the thread that had them, whatever hook the kernel has for waits.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::Value;

use super::super::folded::is;
use super::super::java;
use super::super::profiler::{self, Profile};
use super::super::target::Target;
use crate::plan::Found;

/// How long the threads are sampled, s. One of two threads waits for each lock at any time.
const SECONDS: u64 = 3;
/// Samples of the waits for one lock that suffice. Threads of an emulated CPU mostly wait for the CPU.
const ENOUGH: u64 = 20;

/// A lock of `Locks`: the method that takes it, the reason of its waits, its class, and the names of its two threads
/// without their last word.
struct Lock {
    method: &'static str,
    reason: &'static str,
    class: &'static str,
    threads: &'static str,
}

const LOCKS: [Lock; 3] = [
    Lock { method: "Locks.enterCache", reason: "monitor", class: "Locks$Cache", threads: "cache-user-" },
    Lock { method: "Locks.enterBytes", reason: "monitor", class: "byte[]", threads: "bytes-user-" },
    Lock {
        method: "Locks.takeLock",
        reason: "park",
        class: "java.util.concurrent.locks.ReentrantLock$FairSync",
        threads: "lock-user-",
    },
];

pub(in super::super) fn run(jdk: u32) -> anyhow::Result<Found> {
    let target = Target::start(&mut java::locks(jdk)?);
    let (pid, seconds) = (target.pid().to_string(), SECONDS.to_string());
    let args = ["-e", "wait", "--java", "vm", "--raw-threads", "-F", "99", "-d", &seconds, "-p", &pid];
    let profile = profiler::record(&args)?;
    java::described(&profile.report)?;
    let mut found = Found { samples: profile.folded.total(), ..Found::default() };
    for lock in &LOCKS {
        let [class, owner] = lock.known(&profile)?;
        found.figure(lock.threads, java::rounded(class.min(owner)));
    }
    Ok(found)
}

impl Lock {
    /// The share of the waits for the lock whose class is known, and the share of these whose owner is the other thread.
    fn known(&self, profile: &Profile) -> anyhow::Result<[f64; 2]> {
        let Lock { method, reason, class, threads } = self;
        let mut leaves: BTreeMap<&str, u64> = BTreeMap::new();
        for (frames, samples) in
            profile.folded.stacks().filter(|(frames, _)| frames.iter().any(|f| is(f, method)))
        {
            *leaves.entry(frames.last().map_or("", String::as_str)).or_default() += samples;
        }
        let sum = |wanted: &dyn Fn(&str) -> bool| -> u64 {
            leaves.iter().filter(|(leaf, _)| wanted(leaf)).map(|(_, samples)| samples).sum()
        };
        let all = sum(&|leaf| leaf.starts_with(&format!("[wait: {reason}")));
        let named = sum(&|leaf| leaf == format!("[wait: {reason} {class}]"));
        ensure!(
            all >= ENOUGH && named * 10 >= all * 9,
            "{named} of {all} waits in {method} have {class}: {leaves:?}"
        );
        let rows = profile.report["waits"]["locks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let samples_of = |wanted: &dyn Fn(Option<&str>) -> bool| -> u64 {
            let of_lock = |row: &&Value| row["reason"] == *reason && row["class"] == *class;
            let rows = rows.iter().filter(of_lock).filter(|row| wanted(row["owner"].as_str()));
            rows.filter_map(|row| row["samples"].as_u64()).sum()
        };
        let own = samples_of(&|owner| owner.is_some_and(|owner| owner.starts_with(threads)));
        let others = samples_of(&|owner| owner.is_some_and(|owner| !owner.starts_with(threads)));
        ensure!(own * 10 >= named * 9, "{own} of {named} waits for {class} have their owner: {rows:?}");
        ensure!(others * 100 <= named, "{others} of {named} waits for {class} have another owner: {rows:?}");
        Ok([named as f64 / all as f64, own as f64 / named as f64])
    }
}
