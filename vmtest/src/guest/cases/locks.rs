//! Java locks of waits: their class, and the thread that had them, whatever hook the kernel has for waits.

use serde_json::Value;
use testkit::claims::Tally;
use testkit::wald::Claim;

use super::super::folded::{Folded, is};
use super::super::java;
use super::super::profiler;
use super::super::share::{self, Right, ShareClaim, counted};
use super::super::target::Target;
use crate::plan::Found;

/// Seconds of the first profile. One of two threads waits for each lock at any time, on an emulated CPU often for the
/// CPU as well.
const SECONDS: u64 = 5;

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
    let pid = target.pid().to_string();
    let mut all = Folded::default();
    let mut known = [LockWaits::default(); LOCKS.len()];
    share::prove(SECONDS, |seconds| {
        let seconds = seconds.to_string();
        let args = ["-e", "wait", "--java", "vm", "--raw-threads", "-F", "199", "-d", &seconds, "-p", &pid];
        let profile = profiler::record(&args)?;
        java::described(&profile.report)?;
        for (lock, known) in LOCKS.iter().zip(&mut known) {
            known.add(lock.waits(&profile.folded), &lock.owners(&profile.report));
        }
        all.add(profile.folded);
        Ok(claims(&known, &all))
    })?;
    let mut found = Found { samples: all.total(), ..Found::default() };
    for (lock, known) in LOCKS.iter().zip(&known) {
        found.figure(lock.threads, java::rounded(known.with_owner as f64 / known.with_class as f64));
    }
    Ok(found)
}

/// Samples of the waits for a lock.
#[derive(Clone, Copy, Debug, Default)]
struct LockWaits {
    waits: u64,
    /// Waits in the lock's method whose leaf has the class.
    named: u64,
    /// All waits with the class, those whose owner is the other thread of the lock, and those with another owner.
    with_class: u64,
    with_owner: u64,
    with_another: u64,
}

/// The owners of a lock by a report, in samples.
#[derive(Clone, Copy, Debug, Default)]
struct LockOwners {
    all: u64,
    right: u64,
    wrong: u64,
}

impl LockWaits {
    fn add(&mut self, waits: Tally, owners: &LockOwners) {
        self.waits += waits.samples;
        self.named += waits.hits;
        // A wait whose stack does not reach the method has a class, too.
        self.with_class += owners.all.max(waits.hits);
        self.with_owner += owners.right;
        self.with_another += owners.wrong;
    }
}

fn claims(known: &[LockWaits], all: &Folded) -> Vec<ShareClaim> {
    let bound = |claim, what: String, hits, samples| {
        counted(Right::Bound(claim), what, Tally { hits, samples }).but(all.top(8))
    };
    let mut claims = Vec::new();
    for (Lock { method, class, .. }, known) in LOCKS.iter().zip(known) {
        let most = Claim::AtLeast(0.9);
        claims.push(bound(most, format!("waits in {method} with {class}"), known.named, known.waits));
        claims.push(bound(
            most,
            format!("waits for {class} with their owner"),
            known.with_owner,
            known.with_class,
        ));
    }
    let sum = |part: fn(&LockWaits) -> u64| known.iter().map(part).sum::<u64>();
    claims.push(bound(
        Claim::AtMost(0.01),
        "waits with another owner".to_owned(),
        sum(|known| known.with_another),
        sum(|known| known.with_class),
    ));
    claims
}

impl Lock {
    /// The waits for the lock in its method, and those of them whose class is known.
    fn waits(&self, folded: &Folded) -> Tally {
        let Lock { method, reason, class, .. } = self;
        let (any, named) = (format!("[wait: {reason}"), format!("[wait: {reason} {class}]"));
        let within = folded.keep(|frames| frames.iter().any(|frame| is(frame, method)));
        let with = |wanted: &dyn Fn(&str) -> bool| {
            within.count(|frames| frames.last().is_some_and(|leaf| wanted(leaf)))
        };
        Tally { hits: with(&|leaf| leaf == named), samples: with(&|leaf| leaf.starts_with(&any)) }
    }

    fn owners(&self, report: &Value) -> LockOwners {
        let rows = report["waits"]["locks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut owners = LockOwners::default();
        for row in rows.iter().filter(|row| row["reason"] == self.reason && row["class"] == self.class) {
            let samples = row["samples"].as_u64().unwrap_or_default();
            owners.all += samples;
            match row["owner"].as_str() {
                Some(owner) if owner.starts_with(self.threads) => owners.right += samples,
                Some(_) => owners.wrong += samples,
                None => {}
            }
        }
        owners
    }
}
