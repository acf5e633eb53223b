//! Limits that a run reached: which limit, for which file or process, and how much was left out. Every room may import
//! this file to note what it leaves out; the report prints the limits, and the daemon counts them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A bound on what is read or kept, which a large or hostile program can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Executable mappings of one process, and of all processes.
    Mappings,
    /// Ranges of executable code of one process in the BPF program's maps.
    CodeRanges,
    /// Ended programs whose last stacks wait for symbolization.
    EndedPrograms,
    /// Bytes of a perf map.
    PerfMap,
    /// Kernel memory for unwind tables.
    UnwindTables,
    /// Parts of an unwind table that is too large to load as a whole.
    UnwindTableParts,
    /// Distinct stacks in a profile.
    Stacks,
    /// JVMs whose memory is read at the same time.
    Jvms,
    /// Bytes of a thread's name in the kernel.
    ThreadNames,
    /// Threads whose waits are timed.
    WaitThreads,
    /// Processes that publish trace contexts.
    TracePrograms,
    /// Distinct spans in a profile.
    Spans,
    /// Stacks that ended waits, and their frames.
    Wakers,
}

/// How reports show a limit.
struct LimitText {
    /// Stable name, in JSON and in the metric's label.
    name: &'static str,
    /// What is left out, as it stands after a number: `executable mappings`.
    what: &'static str,
    /// The effect on the profile, and what to do: one sentence.
    advice: &'static str,
}

impl Limit {
    /// Every limit, in the order in which reports list them.
    pub fn all() -> impl Iterator<Item = Limit> {
        [
            Limit::Mappings,
            Limit::CodeRanges,
            Limit::EndedPrograms,
            Limit::PerfMap,
            Limit::UnwindTables,
            Limit::UnwindTableParts,
            Limit::Stacks,
            Limit::Jvms,
            Limit::ThreadNames,
            Limit::WaitThreads,
            Limit::TracePrograms,
            Limit::Spans,
            Limit::Wakers,
        ]
        .into_iter()
    }

    /// The stable name, lower case with hyphens.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.text().name
    }

    /// What is left out, as it stands after a number.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.text().what
    }

    /// The effect on the profile, and what to do about it: one sentence.
    #[must_use]
    pub fn advice(self) -> &'static str {
        self.text().advice
    }

    /// Whether a number is that of one part of a session, and not of the session up to now.
    #[must_use]
    pub fn is_per_part(self) -> bool {
        matches!(self, Limit::Stacks | Limit::Spans)
    }

    fn text(self) -> LimitText {
        match self {
            Limit::Mappings => LimitText {
                name: "mappings",
                what: "executable mappings",
                advice: "Code there is [unknown: mappings unread].",
            },
            Limit::CodeRanges => LimitText {
                name: "code-ranges",
                what: "ranges of code beyond those that the unwinder holds",
                advice: "Code there is unwound by frame pointers. Code that ran has priority.",
            },
            Limit::EndedPrograms => LimitText {
                name: "ended-programs",
                what: "ended programs forgotten before their last stacks had names",
                advice: "Code of these programs is [unknown: process gone]. Select processes with -p.",
            },
            Limit::PerfMap => LimitText {
                name: "perf-map",
                what: "bytes of its perf map",
                advice: "Code that only these lines describe is [unknown: anonymous code].",
            },
            Limit::UnwindTables => LimitText {
                name: "unwind-tables",
                what: "unwind tables",
                advice: "This code is unwound by frame pointers. Select processes with -p to make room.",
            },
            Limit::UnwindTableParts => LimitText {
                name: "unwind-table-parts",
                what: "stacks in code whose part of the unwind table is not loaded",
                advice: "The table of this file is too large. jbpf-prof loads its busiest parts and unwinds other code by frame \
                 pointers.",
            },
            Limit::Stacks => LimitText {
                name: "stacks",
                what: "stacks beyond those that a profile holds",
                advice: "These stacks keep their known part, with [profile full] above it.",
            },
            Limit::Jvms => LimitText {
                name: "jvms",
                what: "JVMs whose Java code could not be read",
                advice: "Too many JVMs run, or no descriptors are left. Raise `ulimit -n`, or select JVMs with -p.",
            },
            Limit::ThreadNames => LimitText {
                name: "thread-names",
                what: "samples of threads whose names may be longer than the 15 bytes that the kernel keeps",
                advice: "Only these bytes distinguish such threads. Java threads have their full names where jbpf-prof reads the \
            JVM's memory.",
            },
            Limit::WaitThreads => LimitText {
                name: "wait-threads",
                what: "waits whose time was not measured",
                advice: "There was no room for more threads, or the kernel skipped a program. These waits are missing.",
            },
            Limit::TracePrograms => LimitText {
                name: "trace-programs",
                what: "processes whose trace contexts or process contexts are not read",
                advice: "Samples of these processes have no trace, or no attributes. Select processes with -p.",
            },
            Limit::Spans => LimitText {
                name: "spans",
                what: "samples of spans beyond those that a profile holds",
                advice: "These samples have no trace. Use a shorter -d, or a lower -F.",
            },
            Limit::Wakers => LimitText {
                name: "wakers",
                what: "stacks of wakers beyond those that jbpf-prof keeps",
                advice: "Waits that these stacks ended show [waker unknown]. Select fewer processes with -p.",
            },
        }
    }
}

/// Rows that are kept. Further subjects share one row for each limit, which has the largest number of them.
const MAX_ROWS: usize = 1024;

/// The subject of the shared row.
const OTHERS: &str = "others";

/// The limits that a run reached, with one row for each limit and subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachedLimits {
    rows: BTreeMap<(Limit, String), u64>,
}

impl ReachedLimits {
    /// Notes how much was left out so far for a subject: a file, a process, or (empty) the whole run. Replaces an
    /// earlier number. 0 adds no row.
    pub fn note(&mut self, limit: Limit, subject: &str, left_out: u64) {
        if left_out == 0 {
            return;
        }
        let subject = crate::text::clean(subject.as_bytes(), 200);
        let key = (limit, subject);
        if self.rows.len() < MAX_ROWS || self.rows.contains_key(&key) {
            self.rows.insert(key, left_out);
        } else {
            let others = self.rows.entry((limit, OTHERS.to_owned())).or_default();
            *others = left_out.max(*others);
        }
    }

    /// Adds the rows of another room, or newer rows of the same room, which replace the older ones.
    pub fn merge(&mut self, other: ReachedLimits) {
        for ((limit, subject), left_out) in other.rows {
            self.note(limit, &subject, left_out);
        }
    }

    /// The rows, sorted by limit and then by subject.
    #[must_use]
    pub fn rows(&self) -> Vec<LimitRow> {
        let row = |((limit, subject), &left_out): (&(Limit, String), &u64)| LimitRow {
            limit: *limit,
            subject: subject.clone(),
            left_out,
        };
        self.rows.iter().map(row).collect()
    }
}

/// A limit that a run reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    /// The bound that was reached; [`Limit::advice`] says what to do.
    pub limit: Limit,
    /// The file or process, as printable text; empty for the whole run.
    pub subject: String,
    /// How much was left out, in the unit of [`Limit::what`].
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{manual, variants};

    #[test]
    fn each_limit_has_a_text() {
        for limit in Limit::all() {
            assert!(!limit.name().is_empty() && !limit.what().is_empty(), "{limit:?}");
            assert!(limit.advice().ends_with('.'), "{limit:?}");
            assert_eq!(serde_json::to_string(&limit).unwrap(), format!("\"{}\"", limit.name()));
        }
    }

    #[test]
    fn all_has_each_limit() {
        assert_eq!(variants::all::<Limit>(), Limit::all().map(Limit::name).collect::<Vec<_>>());
    }

    #[test]
    fn the_table_in_troubleshooting_has_each_limit() {
        let page = include_str!("../docs/troubleshooting.md");
        let rows = manual::table(page, "## Limits reached");
        let mut documented: Vec<&str> = rows.iter().filter_map(|row| manual::codes(row[0]).next()).collect();
        documented.sort_unstable();
        let mut all: Vec<&str> = Limit::all().map(Limit::name).collect();
        all.sort_unstable();
        assert_eq!(documented, all);
    }

    #[test]
    fn a_later_look_replaces_an_earlier_one_and_rows_are_bounded() {
        let mut reached = ReachedLimits::default();
        reached.note(Limit::PerfMap, "node (7)", 3);
        reached.note(Limit::PerfMap, "node (7)", 5);
        reached.note(Limit::PerfMap, "node (8)", 0);
        let row = LimitRow { limit: Limit::PerfMap, subject: "node (7)".into(), left_out: 5 };
        assert_eq!(reached.rows(), [row]);
        for pid in 0..2000_u64 {
            let mut look = ReachedLimits::default();
            look.note(Limit::Mappings, &format!("x ({pid})"), pid);
            reached.merge(look);
        }
        assert_eq!(reached.rows().len(), MAX_ROWS + 1);
        assert!(reached.rows().iter().any(|row| row.subject == OTHERS && row.left_out == 1999));
    }
}
