//! Which kernels there are, which cases, and what runs where.

use crate::plan::Run;

/// A kernel, as a distribution ships it.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// How it is called here: the first numbers of its release, or `newest`.
    pub(crate) name: &'static str,
    /// The Debian suite whose `linux-image` it is.
    pub(crate) suite: &'static str,
    /// QEMU's CPU model under TCG. `max` loses 6.12 in a panic; QEMU's default loses Java on 6.1.
    pub(crate) cpu: &'static str,
    /// The JDKs that run on it by default.
    pub(crate) jdks: &'static [u32],
    /// Whether all cases run on it by default, or only those about Java.
    pub(crate) all_cases: bool,
}

/// The kernels, oldest first.
pub(crate) const KERNELS: [Kernel; 4] = [
    Kernel { name: "5.10", suite: "bullseye", cpu: "max", jdks: &[8, 17], all_cases: true },
    Kernel { name: "6.1", suite: "bookworm", cpu: "max", jdks: &[11, 17], all_cases: false },
    Kernel { name: "6.12", suite: "trixie", cpu: "qemu64", jdks: &[11, 21], all_cases: false },
    Kernel { name: "newest", suite: "sid", cpu: "qemu64", jdks: &[8, 25], all_cases: true },
];

/// The JDKs of the root file system.
pub(crate) const JDKS: [u32; 5] = [8, 11, 17, 21, 25];

/// A case: its code is `guest::cases`.
#[derive(Debug)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether it runs once for each JDK.
    pub(crate) java: bool,
    /// How many seconds it may take under TCG on a busy machine.
    pub(crate) patience: u64,
}

/// The cases, in the order in which they run. `refusals` ends with a lockdown of the kernel that only a boot undoes.
pub(crate) const CASES: [Case; 7] = [
    Case { name: "profile", java: true, patience: 240 },
    Case { name: "agentpath", java: true, patience: 240 },
    Case { name: "native", java: false, patience: 120 },
    Case { name: "hotplug", java: false, patience: 120 },
    Case { name: "two", java: false, patience: 180 },
    Case { name: "musl", java: false, patience: 60 },
    Case { name: "refusals", java: false, patience: 300 },
];

/// Cases that must be seen to fail, for the tests of the harness: run only if named.
pub(crate) const BROKEN: [Case; 5] = [
    Case { name: "broken-truth", java: false, patience: 120 },
    Case { name: "broken-case", java: false, patience: 5 },
    Case { name: "broken-guest", java: false, patience: 1 },
    Case { name: "broken-silent", java: false, patience: 5 },
    Case { name: "broken-kernel", java: false, patience: 30 },
];

/// The JDK on which cases run that need some JVM, whichever.
pub(crate) const ANY_JDK: u32 = 17;

/// What is asked of one boot.
#[derive(Debug)]
pub(crate) struct Boot {
    /// The kernel.
    pub(crate) kernel: &'static Kernel,
    /// The cases.
    pub(crate) runs: Vec<Run>,
}

/// What the command line leaves of the matrix; empty lists leave all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Kernels by name.
    pub(crate) kernels: Vec<String>,
    /// JDKs by feature version.
    pub(crate) jdks: Vec<u32>,
    /// Cases by name.
    pub(crate) cases: Vec<String>,
    /// Every JDK and every case on every kernel.
    pub(crate) full: bool,
}

impl Selection {
    /// The boots; a name that nothing is called is an error.
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

    /// The kernels that are wanted.
    pub(crate) fn kernels(&self) -> anyhow::Result<Vec<&'static Kernel>> {
        for name in &self.kernels {
            anyhow::ensure!(
                KERNELS.iter().any(|kernel| kernel.name == name),
                "no kernel is called {name}; there are: {}",
                KERNELS.each_ref().map(|kernel| kernel.name).join(", ")
            );
        }
        let wanted =
            |kernel: &&Kernel| self.kernels.is_empty() || self.kernels.iter().any(|k| k == kernel.name);
        Ok(KERNELS.iter().filter(wanted).collect())
    }

    fn runs(&self, kernel: &Kernel) -> Vec<Run> {
        // Whoever names JDKs or cases wants them on this kernel, whatever the matrix says.
        let jdks: &[u32] = match (&self.jdks[..], self.full) {
            ([], true) => &JDKS,
            ([], false) => kernel.jdks,
            (named, _) => named,
        };
        let wanted = |case: &Case| match &self.cases[..] {
            [] => CASES.iter().any(|c| c.name == case.name) && (case.java || kernel.all_cases || self.full),
            named => named.iter().any(|name| name == case.name),
        };
        let mut runs = Vec::new();
        for case in all_cases().filter(|case| wanted(case)) {
            let on = |jdk| Run { case: case.name.to_owned(), jdk, patience: case.patience };
            if case.java {
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

    use super::{CASES, JDKS, KERNELS, Selection};

    #[test]
    fn each_kernel_has_two_jdks_and_no_jdk_is_left_out() {
        let boots = Selection::default().boots().unwrap();
        assert_eq!(boots.len(), KERNELS.len());
        let mut seen = BTreeSet::new();
        for boot in &boots {
            let jdks: BTreeSet<u32> = boot.runs.iter().filter_map(|run| run.jdk).collect();
            assert!(jdks.len() >= 2, "{}", boot.kernel.name);
            seen.extend(jdks);
        }
        assert_eq!(seen, BTreeSet::from(JDKS));
        for end in [&boots[0], &boots[KERNELS.len() - 1]] {
            let cases: BTreeSet<&str> = end.runs.iter().map(|run| run.case.as_str()).collect();
            assert_eq!(cases, CASES.iter().map(|case| case.name).collect());
        }
    }

    #[test]
    fn the_full_matrix_is_everything_everywhere() {
        let boots = Selection { full: true, ..Selection::default() }.boots().unwrap();
        let java = CASES.iter().filter(|case| case.java).count();
        let each = java * JDKS.len() + CASES.len() - java;
        assert!(boots.iter().all(|boot| boot.runs.len() == each));
        assert!(boots.iter().flat_map(|boot| &boot.runs).all(|run| !run.case.starts_with("broken")));
    }

    #[test]
    fn one_case_on_one_jdk_and_kernel() {
        let one = Selection {
            kernels: vec!["6.1".into()],
            jdks: vec![25],
            cases: vec!["profile".into()],
            full: false,
        };
        let [boot] = &one.boots().unwrap()[..] else { panic!("one boot") };
        assert_eq!((boot.kernel.name, boot.runs.len(), boot.runs[0].jdk), ("6.1", 1, Some(25)));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let said = |selection: Selection| selection.boots().unwrap_err().to_string();
        let kernel = said(Selection { kernels: vec!["4.4".into()], ..Selection::default() });
        assert!(kernel.contains("no kernel is called 4.4; there are: 5.10, "), "{kernel}");
        let case = said(Selection { cases: vec!["x".into()], ..Selection::default() });
        assert!(case.contains("no case is called x; there are: profile, "), "{case}");
        assert!(said(Selection { jdks: vec![9], ..Selection::default() }).contains("there is no JDK 9"));
    }
}
