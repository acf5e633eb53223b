//! The kernels, the cases, and which case runs on which kernel.

use std::time::{SystemTime, UNIX_EPOCH};

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
}

/// The kernels: first those of another architecture, then oldest first.
pub(crate) const KERNELS: [Kernel; 6] = [
    Kernel { arch: Arch::Arm64, ..debian("arm64", "trixie") },
    debian("5.10", "bullseye"),
    Kernel { suite: Suite::ubuntu("jammy"), ..debian("5.15", "") },
    debian("6.1", "bookworm"),
    debian("6.12", "trixie"),
    debian("newest", "sid"),
];

/// Debian's kernel for x86-64.
const fn debian(name: &'static str, suite: &'static str) -> Kernel {
    Kernel { name, arch: Arch::Amd64, suite: Suite::debian(suite) }
}

impl Kernel {
    /// The place among the kernels for x86-64; `None` for another architecture.
    fn place(&self) -> Option<usize> {
        x86_kernels().position(|kernel| kernel.name == self.name)
    }

    /// Whether a case can run on this kernel. The root file system of arm64 has no programs for other cases.
    fn has(&self, case: &Case) -> bool {
        self.arch == Arch::Amd64 || case.name == "native"
    }
}

fn x86_kernels() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|kernel| kernel.arch == Arch::Amd64)
}

/// The JDKs of the root file system.
pub(crate) const JDKS: [u32; 5] = [8, 11, 17, 21, 25];

/// The JDK for cases that need any JVM.
pub(crate) const ANY_JDK: u32 = 17;

/// A case; `guest::cases` has its code.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Whether the case runs on one JDK after the other. Other cases need no JDK, or choose one themselves.
    pub(crate) on_each_jdk: bool,
    /// How many seconds the case may take under TCG on a busy machine.
    pub(crate) patience: u64,
}

/// A case with Java programs.
const fn java(name: &'static str, patience: u64) -> Case {
    Case { name, on_each_jdk: true, patience }
}

const fn case(name: &'static str, patience: u64) -> Case {
    Case { name, on_each_jdk: false, patience }
}

/// The case that the covering list of a day has on each kernel that has no other case of its JDK: the shortest one.
const USUAL: &str = "unwind";

/// The cases, in the order in which they run. `refusals` ends with a lockdown of the kernel that only a reboot undoes.
pub(crate) const CASES: [Case; 16] = [
    java("profile", 1_200),
    java("agentpath", 1_200),
    java(USUAL, 1_200),
    java("locks", 1_200),
    case("native", 600),
    case("events", 600),
    case("waits", 600),
    case("leave", 600),
    case("hostile", 600),
    case("probed", 600),
    case("hotplug", 600),
    case("cgroup", 1_200),
    case("two", 1_200),
    case("musl", 600),
    case("pids", 600),
    case("refusals", 1_200),
];

/// Cases that must fail, for the tests of the harness; they run only if they are named.
pub(crate) const BROKEN: [Case; 5] = [
    case("broken-truth", 120),
    case("broken-case", 5),
    case("broken-guest", 1),
    case("broken-silent", 5),
    case("broken-kernel", 30),
];

fn all_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(&BROKEN)
}

/// The day, in days since 1970-01-01.
pub(crate) fn today() -> usize {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / (24 * 3_600)) as usize
}

/// One boot of a kernel, and the cases that run in it.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) kernel: &'static Kernel,
    pub(crate) runs: Vec<Run>,
}

impl Boot {
    /// How many seconds all runs together may take.
    pub(crate) fn patience(&self) -> u64 {
        self.runs.iter().map(|run| run.patience).sum()
    }
}

/// The part of the matrix that the command line selects. If kernels, JDKs and cases are not named, this is the covering
/// list of a day. Otherwise each named case (all, if none is named) runs on each named kernel (all) with each named JDK
/// (that of the day).
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Names of kernels, as in [`Kernel::name`].
    pub(crate) kernels: Vec<String>,
    pub(crate) arches: Vec<Arch>,
    /// Feature versions of JDKs.
    pub(crate) jdks: Vec<u32>,
    /// Names of cases, in this order.
    pub(crate) cases: Vec<String>,
    /// All that is not named: every JDK and every case on every kernel.
    pub(crate) full: bool,
    /// The day: see [`today`].
    pub(crate) day: usize,
}

impl Selection {
    /// Whether this is the covering list of the day.
    pub(crate) fn is_covering_list(&self) -> bool {
        self.kernels.is_empty() && self.jdks.is_empty() && self.cases.is_empty() && !self.full
    }

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
        let jdks = match (&self.jdks[..], self.full) {
            ([], true) => JDKS.to_vec(),
            ([], false) => self.jdk_of_the_day(kernel).into_iter().collect(),
            (named, _) => named.to_vec(),
        };
        let cases: Vec<&Case> = match &self.cases[..] {
            [] if self.is_covering_list() => self.cases_of_the_day(kernel).collect(),
            [] => CASES.iter().collect(),
            named => named.iter().filter_map(|name| all_cases().find(|case| case.name == name)).collect(),
        };
        let mut runs = Vec::new();
        for case in cases.into_iter().filter(|case| kernel.has(case)) {
            let on = |jdk| Run { case: case.name.to_owned(), jdk, patience: case.patience };
            if case.on_each_jdk {
                runs.extend(jdks.iter().map(|jdk| on(Some(*jdk))));
            } else {
                runs.push(on(None));
            }
        }
        runs
    }

    /// The JDK of a kernel: the next one on the next day, and on the next kernel.
    fn jdk_of_the_day(&self, kernel: &Kernel) -> Option<u32> {
        kernel.place().map(|place| JDKS[(place + self.day % JDKS.len()) % JDKS.len()])
    }

    /// The cases of a kernel in the covering list. Each case moves to the next kernel on the next day. Each kernel has its
    /// JDK of the day.
    fn cases_of_the_day(&self, kernel: &Kernel) -> impl Iterator<Item = &'static Case> {
        let kernels = x86_kernels().count();
        let (place, day) = (kernel.place(), self.day % kernels);
        let is_here = move |nr: usize| place.is_none_or(|place| (nr + day) % kernels == place);
        let has_java = CASES.iter().enumerate().any(|(nr, case)| case.on_each_jdk && is_here(nr));
        let cases = CASES.iter().enumerate();
        cases
            .filter(move |(nr, case)| is_here(*nr) || (case.name == USUAL && !has_java))
            .map(|(_, case)| case)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Boot, CASES, JDKS, KERNELS, Selection, USUAL, x86_kernels};
    use crate::arch::Arch;

    fn cases(boot: &Boot) -> BTreeSet<&str> {
        boot.runs.iter().map(|run| run.case.as_str()).collect()
    }

    fn covering_list(day: usize) -> Vec<Boot> {
        Selection { day, arches: vec![Arch::Amd64], ..Selection::default() }.boots().unwrap()
    }

    fn names(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn five_successive_days_cover_all_pairs() {
        for first in [0, 4, 20_786] {
            let mut jdks_of_kernels = BTreeSet::new();
            let mut jdks_of_cases = BTreeSet::new();
            let mut cases_on_kernels = BTreeSet::new();
            for boot in (first..first + 5).flat_map(covering_list) {
                for run in boot.runs {
                    jdks_of_kernels.extend(run.jdk.map(|jdk| (boot.kernel.name, jdk)));
                    jdks_of_cases.extend(run.jdk.map(|jdk| (run.case.clone(), jdk)));
                    cases_on_kernels.insert((boot.kernel.name, run.case));
                }
            }
            let of_java = CASES.iter().filter(|case| case.on_each_jdk).count();
            assert_eq!(jdks_of_kernels.len(), x86_kernels().count() * JDKS.len());
            assert_eq!(cases_on_kernels.len(), x86_kernels().count() * CASES.len());
            assert_eq!(jdks_of_cases.len(), of_java * JDKS.len());
        }
    }

    #[test]
    fn each_day_has_each_kernel_each_jdk_and_each_case() {
        for day in [0, 1, 2, 3, 4, 20_786, usize::MAX] {
            let boots = covering_list(day);
            let kernels: Vec<&str> = boots.iter().map(|boot| boot.kernel.name).collect();
            assert_eq!(kernels, x86_kernels().map(|kernel| kernel.name).collect::<Vec<_>>());
            let mut jdks = Vec::new();
            for boot in &boots {
                let own: BTreeSet<u32> = boot.runs.iter().filter_map(|run| run.jdk).collect();
                assert_eq!(own.len(), 1, "{}", boot.kernel.name);
                jdks.extend(own);
                assert!(boot.runs[0].jdk.is_some(), "{:?}", boot.runs);
                let last = boot.runs.iter().position(|run| run.case == "refusals");
                assert!(last.is_none_or(|last| last + 1 == boot.runs.len()), "{:?}", boot.runs);
            }
            jdks.sort_unstable();
            assert_eq!(jdks, JDKS);
            for case in &CASES {
                let runs = boots.iter().flat_map(|boot| &boot.runs).filter(|run| run.case == case.name);
                // Five kernels, and four cases of Java.
                let expected = if case.name == USUAL { 2 } else { 1 };
                assert_eq!(runs.count(), expected, "{} on day {day}", case.name);
            }
            let lengths = boots.iter().map(|boot| boot.runs.len());
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
        }
    }

    #[test]
    fn the_full_matrix_is_everything_everywhere() {
        let full = Selection { full: true, arches: vec![Arch::Amd64], ..Selection::default() };
        let java = CASES.iter().filter(|case| case.on_each_jdk).count();
        let each = java * JDKS.len() + CASES.len() - java;
        let boots = full.boots().unwrap();
        assert_eq!(boots.len(), x86_kernels().count());
        assert!(boots.iter().all(|boot| boot.runs.len() == each));
        assert!(boots.iter().flat_map(|boot| &boot.runs).all(|run| !run.case.starts_with("broken")));
    }

    #[test]
    fn what_is_not_named_is_all_cases_and_the_jdk_of_the_day() {
        for (place, kernel) in x86_kernels().enumerate() {
            let one = Selection { kernels: names(&[kernel.name]), day: 3, ..Selection::default() };
            let [boot] = &one.boots().unwrap()[..] else { panic!("one boot") };
            assert_eq!(boot.runs.len(), CASES.len());
            let jdks: BTreeSet<u32> = boot.runs.iter().filter_map(|run| run.jdk).collect();
            assert_eq!(jdks, BTreeSet::from([JDKS[(place + 3) % JDKS.len()]]));
        }
        let amd64 = Selection { arches: vec![Arch::Amd64], ..Selection::default() };
        let locks = Selection { cases: names(&["locks", "musl"]), ..amd64.clone() }.boots().unwrap();
        assert!(locks.iter().all(|boot| boot.runs.len() == 2) && locks.len() == x86_kernels().count());
        let old = Selection { jdks: vec![8], ..amd64.clone() }.boots().unwrap();
        assert!(old.iter().all(|boot| boot.runs.len() == CASES.len()));
        assert!(old.iter().flat_map(|boot| &boot.runs).all(|run| run.jdk.is_none_or(|jdk| jdk == 8)));
        let all = Selection { cases: names(&["unwind"]), full: true, ..amd64 }.boots().unwrap();
        assert!(all.iter().all(|boot| boot.runs.len() == JDKS.len()));
    }

    #[test]
    fn another_architecture_has_its_cases_and_no_others() {
        let arm64 = |cases: &[&str], full| Selection {
            kernels: names(&["arm64"]),
            cases: names(cases),
            full,
            ..Selection::default()
        };
        for full in [false, true] {
            assert_eq!(cases(&arm64(&[], full).boots().unwrap()[0]), BTreeSet::from(["native"]));
        }
        let by_arch = Selection { arches: vec![Arch::Arm64], ..Selection::default() }.boots().unwrap();
        assert_eq!(cases(&by_arch[0]), BTreeSet::from(["native"]));
        assert!(
            arm64(&["profile"], false).boots().unwrap_err().to_string().contains("nothing of the matrix")
        );
    }

    #[test]
    fn one_case_on_one_jdk_and_kernel() {
        let one = Selection {
            kernels: names(&["6.1"]),
            jdks: vec![25],
            cases: names(&["profile"]),
            ..Selection::default()
        };
        let [boot] = &one.boots().unwrap()[..] else { panic!("one boot") };
        assert_eq!((boot.kernel.name, boot.runs.len(), boot.runs[0].jdk), ("6.1", 1, Some(25)));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let said = |selection: Selection| selection.boots().unwrap_err().to_string();
        let kernel = said(Selection { kernels: names(&["4.4"]), ..Selection::default() });
        let list = KERNELS.each_ref().map(|kernel| kernel.name).join(", ");
        assert!(kernel.contains(&format!("no kernel is called 4.4; there are: {list}")), "{kernel}");
        let case = said(Selection { cases: names(&["x"]), ..Selection::default() });
        assert!(case.contains("no case is called x; there are: profile, "), "{case}");
        assert!(said(Selection { jdks: vec![9], ..Selection::default() }).contains("there is no JDK 9"));
    }
}
