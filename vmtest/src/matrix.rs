//! The kernels, the cases, and which case runs on which kernel.

use crate::arch::Arch;
use crate::distribution::Suite;
use crate::plan::Run;

/// A kernel of a distribution.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The name: the first numbers of its release, or `newest`.
    pub(crate) name: &'static str,
    pub(crate) arch: Arch,
    /// The suite that has the kernel.
    pub(crate) suite: Suite,
    /// The JDKs on this kernel by default. A case that needs only one takes the first or the last; `profile` runs on both if
    /// the kernel has all cases.
    pub(crate) jdks: &'static [u32],
    /// The cases on this kernel by default.
    pub(crate) cases: Cases,
}

#[derive(Debug)]
pub(crate) enum Cases {
    All,
    /// All by default except those of [`USER_SPACE`].
    OfKernel,
    /// Only the cases of [`EACH_KERNEL`] by default; others on request.
    Some,
    /// Only these, even on request: the root file system has no programs for others.
    Only(&'static [&'static str]),
}

/// The kernels: first those of another architecture, then oldest first.
pub(crate) const KERNELS: [Kernel; 6] = [
    Kernel { arch: Arch::Arm64, cases: Cases::Only(&["native"]), ..debian("arm64", "trixie", &[]) },
    Kernel { cases: Cases::All, ..debian("5.10", "bullseye", &[8, 17]) },
    Kernel { suite: Suite::ubuntu("jammy"), ..debian("5.15", "", &[21, 25]) },
    debian("6.1", "bookworm", &[17, 11]),
    debian("6.12", "trixie", &[11, 21]),
    Kernel { cases: Cases::OfKernel, ..debian("newest", "sid", &[25, 8]) },
];

/// Debian's kernel for x86-64, with the cases of [`EACH_KERNEL`].
const fn debian(name: &'static str, suite: &'static str, jdks: &'static [u32]) -> Kernel {
    Kernel { name, arch: Arch::Amd64, suite: Suite::debian(suite), jdks, cases: Cases::Some }
}

/// Cases that run on each kernel by default, because kernels differ in where the BPF programs run and what they may do. Between
/// the oldest and the newest kernel these are all.
const EACH_KERNEL: [&str; 4] = ["profile", "unwind", "locks", "waits"];

/// Cases about programs, in which the kernel has no part: one kernel suffices.
const USER_SPACE: [&str; 3] = ["agentpath", "hostile", "musl"];

/// The JDKs of the root file system.
pub(crate) const JDKS: [u32; 5] = [8, 11, 17, 21, 25];

/// A case; `guest::cases` has its code.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The JDKs of a kernel on which the case runs by default.
    pub(crate) jdks: Jdks,
    /// How many seconds the case may take under TCG on a busy machine.
    pub(crate) patience: u64,
}

impl Case {
    fn java(&self) -> bool {
        self.jdks != Jdks::None
    }
}

/// The JDKs of a kernel on which a case runs by default. One JDK suffices for some cases; which one differs between
/// kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jdks {
    /// The case needs no JDK, or chooses one itself.
    None,
    First,
    Last,
    Each,
}

impl Jdks {
    fn of(self, jdks: &[u32]) -> &[u32] {
        match self {
            Jdks::None => &[],
            Jdks::First => &jdks[..1],
            Jdks::Last => &jdks[jdks.len() - 1..],
            Jdks::Each => jdks,
        }
    }
}

/// The cases, in the order in which they run. `refusals` ends with a lockdown of the kernel that only a reboot undoes.
pub(crate) const CASES: [Case; 16] = [
    Case { name: "profile", jdks: Jdks::Each, patience: 600 },
    Case { name: "agentpath", jdks: Jdks::First, patience: 600 },
    Case { name: "unwind", jdks: Jdks::Last, patience: 600 },
    Case { name: "locks", jdks: Jdks::Last, patience: 600 },
    Case { name: "native", jdks: Jdks::None, patience: 300 },
    Case { name: "events", jdks: Jdks::None, patience: 300 },
    Case { name: "waits", jdks: Jdks::None, patience: 300 },
    Case { name: "leave", jdks: Jdks::None, patience: 300 },
    Case { name: "hostile", jdks: Jdks::None, patience: 300 },
    Case { name: "probed", jdks: Jdks::None, patience: 300 },
    Case { name: "hotplug", jdks: Jdks::None, patience: 300 },
    Case { name: "cgroup", jdks: Jdks::None, patience: 600 },
    Case { name: "two", jdks: Jdks::None, patience: 600 },
    Case { name: "musl", jdks: Jdks::None, patience: 300 },
    Case { name: "pids", jdks: Jdks::None, patience: 300 },
    Case { name: "refusals", jdks: Jdks::None, patience: 600 },
];

/// Cases that must fail, for the tests of the harness; they run only if they are named.
pub(crate) const BROKEN: [Case; 5] = [
    Case { name: "broken-truth", jdks: Jdks::None, patience: 120 },
    Case { name: "broken-case", jdks: Jdks::None, patience: 5 },
    Case { name: "broken-guest", jdks: Jdks::None, patience: 1 },
    Case { name: "broken-silent", jdks: Jdks::None, patience: 5 },
    Case { name: "broken-kernel", jdks: Jdks::None, patience: 30 },
];

/// The JDK for cases that need any JVM.
pub(crate) const ANY_JDK: u32 = 17;

/// One boot of a kernel, and the cases that run in it.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) kernel: &'static Kernel,
    pub(crate) runs: Vec<Run>,
}

/// The part of the matrix that the command line selects. An empty list selects all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Names of kernels, as in [`Kernel::name`].
    pub(crate) kernels: Vec<String>,
    pub(crate) arches: Vec<Arch>,
    /// Feature versions of JDKs.
    pub(crate) jdks: Vec<u32>,
    /// Names of cases, in this order.
    pub(crate) cases: Vec<String>,
    /// Every JDK and every case on every kernel.
    pub(crate) full: bool,
}

impl Selection {
    /// The selected boots. An unknown name is an error.
    pub(crate) fn boots(&self) -> anyhow::Result<Vec<Boot>> {
        for name in &self.cases {
            anyhow::ensure!(
                all_cases().any(|case| case.name == name),
                "no case is called {name}; there are: {}",
                CASES.map(|case| case.name).join(", ")
            );
        }
        for jdk in &self.jdks {
            anyhow::ensure!(JDKS.contains(jdk), "there is no JDK {jdk}; there are: {JDKS:?}");
        }
        let boots: Vec<Boot> = self
            .kernels()?
            .into_iter()
            .map(|kernel| Boot { kernel, runs: self.runs(kernel) })
            .filter(|boot| !boot.runs.is_empty())
            .collect();
        anyhow::ensure!(!boots.is_empty(), "nothing of the matrix is left to run");
        Ok(boots)
    }

    /// The selected kernels. An unknown name is an error.
    pub(crate) fn kernels(&self) -> anyhow::Result<Vec<&'static Kernel>> {
        for name in &self.kernels {
            anyhow::ensure!(
                KERNELS.iter().any(|kernel| kernel.name == name),
                "no kernel is called {name}; there are: {}",
                KERNELS.each_ref().map(|kernel| kernel.name).join(", ")
            );
        }
        // Another architecture runs only on request.
        let wanted = |kernel: &&Kernel| match (&self.kernels[..], &self.arches[..]) {
            ([], []) => kernel.arch.is_own(),
            (names, arches) => {
                (names.is_empty() || names.iter().any(|name| name == kernel.name))
                    && (arches.is_empty() || arches.contains(&kernel.arch))
            }
        };
        Ok(KERNELS.iter().filter(wanted).collect())
    }

    fn runs(&self, kernel: &Kernel) -> Vec<Run> {
        // Named JDKs and cases run on this kernel even if the matrix does not have them.
        let jdks: &[u32] = match (&self.jdks[..], self.full) {
            ([], true) => &JDKS,
            ([], false) => kernel.jdks,
            (named, _) => named,
        };
        let there = |case: &Case| match kernel.cases {
            Cases::Only(names) => names.contains(&case.name),
            Cases::All | Cases::OfKernel | Cases::Some => true,
        };
        let by_default = |case: &Case| match kernel.cases {
            Cases::All | Cases::Only(_) => true,
            Cases::OfKernel => !USER_SPACE.contains(&case.name) || self.full,
            Cases::Some => EACH_KERNEL.contains(&case.name) || self.full,
        };
        let cases: Vec<&Case> = match &self.cases[..] {
            [] => CASES.iter().filter(|case| by_default(case)).collect(),
            named => named.iter().filter_map(|name| all_cases().find(|case| case.name == name)).collect(),
        };
        let by_default_only = self.jdks.is_empty() && self.cases.is_empty() && !self.full;
        let mut runs = Vec::new();
        for case in cases.into_iter().filter(|case| there(case)) {
            let on = |jdk| Run { case: case.name.to_owned(), jdk, patience: case.patience };
            if case.java() {
                // Between the oldest and the newest kernel one JDK suffices for each case.
                let each = matches!(kernel.cases, Cases::All | Cases::OfKernel);
                let chosen = if case.jdks == Jdks::Each && !each { Jdks::First } else { case.jdks };
                let jdks = if by_default_only { chosen.of(jdks) } else { jdks };
                runs.extend(jdks.iter().map(|jdk| on(Some(*jdk))));
            } else {
                runs.push(on(None));
            }
        }
        runs
    }
}

fn all_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(&BROKEN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Boot, CASES, JDKS, KERNELS, Selection};

    fn cases(boot: &Boot) -> BTreeSet<&str> {
        boot.runs.iter().map(|run| run.case.as_str()).collect()
    }

    #[test]
    fn each_kernel_has_two_jdks_and_each_jdk_two_kernels() {
        let boots = Selection::default().boots().unwrap();
        assert_eq!(boots.len(), KERNELS.iter().filter(|kernel| kernel.arch.is_own()).count());
        let mut seen = Vec::new();
        for boot in &boots {
            let jdks: BTreeSet<u32> = boot.runs.iter().filter_map(|run| run.jdk).collect();
            assert!(jdks.len() >= 2, "{}", boot.kernel.name);
            seen.extend(jdks);
        }
        for jdk in JDKS {
            assert!(seen.iter().filter(|seen| **seen == jdk).count() >= 2, "JDK {jdk}");
        }
        for case in ["locks", "unwind"] {
            let on = boots.iter().flat_map(|boot| &boot.runs).filter(|run| run.case == case);
            assert_eq!(
                on.filter_map(|run| run.jdk).collect::<BTreeSet<u32>>(),
                BTreeSet::from(JDKS),
                "{case}"
            );
        }
        for boot in &boots {
            assert!(
                cases(boot).is_superset(&BTreeSet::from(["profile", "unwind", "locks", "waits"])),
                "{}",
                boot.kernel.name
            );
        }
        let all: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        let of_kernel = &all - &BTreeSet::from(["agentpath", "hostile", "musl"]);
        for (end, expected) in [("5.10", all), ("newest", of_kernel)] {
            let boot = boots.iter().find(|boot| boot.kernel.name == end).unwrap();
            assert_eq!(cases(boot), expected, "{end}");
        }
    }

    #[test]
    fn the_document_has_the_numbers_of_runs() {
        let page = include_str!("../../docs/vmtest.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for (full, sentence) in [(false, "The default matrix has N runs."), (true, "except arm64: N runs.")] {
            let boots = Selection { full, ..Selection::default() }.boots().unwrap();
            let runs: usize = boots.iter().map(|boot| boot.runs.len()).sum();
            let sentence = sentence.replace('N', &runs.to_string());
            assert!(page.contains(&sentence), "docs/vmtest.md does not say: {sentence}");
        }
    }

    #[test]
    fn the_full_matrix_is_everything_everywhere() {
        let boots = Selection { full: true, ..Selection::default() }.boots().unwrap();
        let java = CASES.iter().filter(|case| case.java()).count();
        let each = java * JDKS.len() + CASES.len() - java;
        assert!(boots.iter().all(|boot| boot.runs.len() == each));
        assert!(boots.iter().flat_map(|boot| &boot.runs).all(|run| !run.case.starts_with("broken")));
    }

    #[test]
    fn another_architecture_has_its_cases_and_no_others() {
        let arm64 = |cases: &[&str], full| Selection {
            kernels: vec!["arm64".into()],
            cases: cases.iter().map(|case| case.to_string()).collect(),
            full,
            ..Selection::default()
        };
        for full in [false, true] {
            assert_eq!(cases(&arm64(&[], full).boots().unwrap()[0]), BTreeSet::from(["native"]));
        }
        assert!(
            arm64(&["profile"], false).boots().unwrap_err().to_string().contains("nothing of the matrix")
        );
    }

    #[test]
    fn one_case_on_one_jdk_and_kernel() {
        let one = Selection {
            kernels: vec!["6.1".into()],
            jdks: vec![25],
            cases: vec!["profile".into()],
            ..Selection::default()
        };
        let [boot] = &one.boots().unwrap()[..] else { panic!("one boot") };
        assert_eq!((boot.kernel.name, boot.runs.len(), boot.runs[0].jdk), ("6.1", 1, Some(25)));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let said = |selection: Selection| selection.boots().unwrap_err().to_string();
        let kernel = said(Selection { kernels: vec!["4.4".into()], ..Selection::default() });
        assert!(kernel.contains("no kernel is called 4.4; there are: arm64, 5.10, "), "{kernel}");
        let case = said(Selection { cases: vec!["x".into()], ..Selection::default() });
        assert!(case.contains("no case is called x; there are: profile, "), "{case}");
        assert!(said(Selection { jdks: vec![9], ..Selection::default() }).contains("there is no JDK 9"));
    }
}
