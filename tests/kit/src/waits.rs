//! What `tests/programs/waits.c` measured of its own waits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The time in one of the program's functions, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// The time without CPU time; of `share_cpu` the time on a run queue.
    pub ns: f64,
    /// CPU time, ns.
    pub cpu: f64,
    /// How long the function's threads waited in all functions, ns.
    pub all: f64,
}

impl Waited {
    /// By how much chance may change a profile's waiting time of this function, ns: five standard deviations. A
    /// thread's samples differ from its waiting time by less than one period. If the thread also waits elsewhere, chance
    /// decides for each block of its time to which wait the sample belongs. All blocks together vary at most as coins
    /// with the function's share would, on a busy machine, too. Sums over threads, rounds and CPUs vary no more.
    #[must_use]
    pub fn chance(self, period: f64) -> f64 {
        let elsewhere = (1.0 - self.ns / self.all).max(0.0);
        5.0 * (self.ns / period * elsewhere).sqrt() * period
    }

    /// How much waiting time a profile may have of this function. A switch from one thread to another is CPU time by the
    /// kernel's clock, and waiting time in a profile. All functions but `share_cpu` do nothing but wait.
    #[must_use]
    pub fn range(self, function: &str, tolerance: f64) -> RangeInclusive<f64> {
        let switches = if function == "share_cpu" { 0.0 } else { self.cpu };
        self.ns - tolerance..=self.ns + switches + tolerance
    }
}

impl std::ops::AddAssign for Waited {
    fn add_assign(&mut self, other: Waited) {
        self.ns += other.ns;
        self.cpu += other.cpu;
        self.all += other.all;
    }
}

/// The sums of each function, out of the lines that the program prints.
#[must_use]
pub fn waited<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, Waited> {
    let mut sums: BTreeMap<String, Waited> = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, ns, cpu, all] = words[..] else { continue };
        let numbers = (ns.parse::<f64>(), cpu.parse::<f64>(), all.parse::<f64>());
        let (Ok(ns), Ok(cpu), Ok(all)) = numbers else { continue };
        *sums.entry(name.to_owned()).or_default() += Waited { ns, cpu, all };
    }
    sums
}
