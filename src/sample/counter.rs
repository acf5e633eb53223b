//! Events that the kernel or the processor counts, by perf's names (`perf list`). The numbers are those of
//! `include/uapi/linux/perf_event.h`.

/// The part that counts: a `type` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterClass {
    /// The kernel: `PERF_TYPE_SOFTWARE`.
    Software,
    /// The processor: `PERF_TYPE_HARDWARE`.
    Hardware,
    /// The processor's caches: `PERF_TYPE_HW_CACHE`.
    Cache,
}

/// A counter: its class and its number in the class, `perf_event_attr.config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter {
    /// `perf_event_attr.type`.
    pub class: CounterClass,
    /// The counter's number in its class.
    pub config: u64,
}

/// A counter with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCounter {
    /// Name in `perf list`: `cpu-migrations`.
    pub name: String,
    /// Second name in `perf list`, if there is one: `migrations`.
    pub alias: Option<&'static str>,
    /// The attributes by which the kernel finds the counter.
    pub counter: Counter,
}

/// Counters of the kernel that are no [`Event`](super::Event) of their own. `task-clock` of a CPU is `cpu-clock`.
const SOFTWARE: [(&str, Option<&str>, u64); 4] = [
    ("cpu-migrations", Some("migrations"), 4),
    ("alignment-faults", None, 7),
    ("emulation-faults", None, 8),
    ("cgroup-switches", None, 11),
];

const HARDWARE: [(&str, Option<&str>, u64); 10] = [
    ("cpu-cycles", Some("cycles"), 0),
    ("instructions", None, 1),
    ("cache-references", None, 2),
    ("cache-misses", None, 3),
    ("branch-instructions", Some("branches"), 4),
    ("branch-misses", None, 5),
    ("bus-cycles", None, 6),
    ("stalled-cycles-frontend", Some("idle-cycles-frontend"), 7),
    ("stalled-cycles-backend", Some("idle-cycles-backend"), 8),
    ("ref-cycles", None, 9),
];

/// Caches by number, each with the operations that perf names for it: loads, stores, prefetches.
const CACHES: [(&str, [bool; 3]); 7] = [
    ("L1-dcache", [true, true, true]),
    ("L1-icache", [true, false, true]),
    ("LLC", [true, true, true]),
    ("dTLB", [true, true, true]),
    ("iTLB", [true, false, false]),
    ("branch", [true, false, false]),
    ("node", [true, true, true]),
];

/// Operations of caches by number: the names of accesses and of misses.
const OPERATIONS: [[&str; 2]; 3] =
    [["loads", "load-misses"], ["stores", "store-misses"], ["prefetches", "prefetch-misses"]];

impl Counter {
    /// How many occurrences a sample stands for unless the user says it: one, or for a processor as many as some
    /// hundred or thousand samples a second need.
    #[must_use]
    pub fn usual_period(self) -> u64 {
        /// Cycles and instructions: billions a second.
        const OFTEN: u64 = 2_000_000;
        /// What is a part of all instructions, or a miss.
        const SELDOM: u64 = 100_000;
        match (self.class, self.config) {
            (CounterClass::Software, _) => 1,
            (CounterClass::Hardware, 0 | 1 | 7 | 8 | 9) => OFTEN,
            (CounterClass::Hardware | CounterClass::Cache, _) => SELDOM,
        }
    }

    /// Whether the processor counts.
    #[must_use]
    pub fn is_hardware(self) -> bool {
        self.class != CounterClass::Software
    }
}

impl NamedCounter {
    /// All counters, by class.
    pub fn all() -> impl Iterator<Item = NamedCounter> {
        let rows = |class, rows: &'static [(&'static str, Option<&'static str>, u64)]| {
            rows.iter().map(move |&(name, alias, config)| NamedCounter {
                name: name.to_owned(),
                alias,
                counter: Counter { class, config },
            })
        };
        let software = rows(CounterClass::Software, &SOFTWARE);
        software.chain(rows(CounterClass::Hardware, &HARDWARE)).chain(caches())
    }

    /// The counter with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<NamedCounter> {
        NamedCounter::all().find(|one| one.name == name || one.alias == Some(name))
    }
}

fn caches() -> impl Iterator<Item = NamedCounter> {
    (0..).zip(CACHES).flat_map(|(cache, (name, operations))| {
        let named = (0..).zip(OPERATIONS).zip(operations).filter(|(_, has)| *has);
        named.flat_map(move |((operation, names), _)| {
            (0..).zip(names).map(move |(result, suffix)| NamedCounter {
                name: format!("{name}-{suffix}"),
                alias: None,
                counter: Counter {
                    class: CounterClass::Cache,
                    config: cache | operation << 8 | result << 16,
                },
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_the_numbers_of_perf() {
        let config =
            |name: &str| NamedCounter::named(name).map(|one| (one.counter.class, one.counter.config));
        assert_eq!(config("L1-dcache-loads"), Some((CounterClass::Cache, 0)));
        assert_eq!(config("LLC-load-misses"), Some((CounterClass::Cache, 0x1_00_02)));
        assert_eq!(config("dTLB-store-misses"), Some((CounterClass::Cache, 0x1_01_03)));
        assert_eq!(config("node-prefetches"), Some((CounterClass::Cache, 0x0_02_06)));
        assert_eq!(config("iTLB-stores"), None);
        assert_eq!(config("cycles"), Some((CounterClass::Hardware, 0)));
        assert_eq!(config("migrations"), Some((CounterClass::Software, 4)));
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<String> = NamedCounter::all().map(|one| one.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), all), (all, 4 + 10 + 32));
    }
}
