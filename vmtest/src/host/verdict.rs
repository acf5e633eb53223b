//! Checks that exactly the expected results came, each with samples.

use crate::plan::{Outcome, Run};

#[derive(Debug, Default)]
pub(super) struct Verdict {
    passed: usize,
    faults: Vec<String>,
}

impl Verdict {
    /// Checks one boot: `expected` runs, their results, and an error of the guest itself.
    pub(super) fn add(
        &mut self,
        kernel: &str,
        expected: &[Run],
        (came, broken): (Vec<Outcome>, Option<String>),
    ) {
        if let Some(broken) = broken {
            self.faults.push(format!("kernel {kernel}: {broken}"));
        }
        for run in expected {
            let results: Vec<&Outcome> = came.iter().filter(|outcome| outcome.run == *run).collect();
            let fault = match results[..] {
                [] => Some("no result came".to_owned()),
                [one] => match &one.error {
                    Some(error) => Some(error.clone()),
                    None if one.samples == 0 => Some("it passed without a single sample".to_owned()),
                    None => None,
                },
                _ => Some(format!("{} results came", results.len())),
            };
            match fault {
                Some(fault) => self.faults.push(format!("{run} on kernel {kernel}: {fault}")),
                None => self.passed += 1,
            }
        }
        for outcome in came.iter().filter(|outcome| !expected.contains(&outcome.run)) {
            self.faults.push(format!("{} on kernel {kernel}: this result was not expected", outcome.run));
        }
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// The failures, as one sentence each.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// One line about a result.
pub(super) fn row(outcome: &Outcome) -> String {
    let verdict = if outcome.error.is_none() { "ok" } else { "FAILED" };
    let figures: Vec<String> =
        outcome.figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "{verdict:<7}{:<28}{:<18}{:>5.0} s{:>8} samples  {}",
        outcome.run.to_string(),
        outcome.kernel,
        outcome.seconds,
        outcome.samples,
        figures.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Verdict, row};
    use crate::plan::{Outcome, Run};

    fn run(case: &str) -> Run {
        Run { case: case.to_owned(), jdk: Some(17), patience: 1 }
    }

    fn outcome(case: &str, samples: u64, error: Option<&str>) -> Outcome {
        Outcome {
            run: run(case),
            kernel: "6.1.0".to_owned(),
            samples,
            figures: BTreeMap::from([("to_root".to_owned(), 0.99)]),
            seconds: 1.0,
            error: error.map(str::to_owned),
        }
    }

    fn faults(expected: &[Run], came: Vec<Outcome>) -> Vec<String> {
        let mut verdict = Verdict::default();
        verdict.add("6.1", expected, (came, None));
        assert_eq!(verdict.passed() + verdict.faults().len(), expected.len().max(verdict.faults().len()));
        verdict.faults().to_vec()
    }

    #[test]
    fn exactly_what_was_expected_passes() {
        assert!(faults(&[run("a"), run("b")], vec![outcome("b", 1, None), outcome("a", 5, None)]).is_empty());
    }

    #[test]
    fn everything_else_is_a_fault_with_a_sentence() {
        let sentence = |expected: &[Run], came| match &faults(expected, came)[..] {
            [one] => one.clone(),
            other => panic!("{other:?}"),
        };
        let a = [run("a")];
        assert_eq!(sentence(&a, vec![]), "a on JDK 17 on kernel 6.1: no result came");
        assert!(sentence(&a, vec![outcome("a", 0, None)]).contains("without a single sample"));
        assert!(sentence(&a, vec![outcome("a", 9, Some("burn40: 41 %"))]).ends_with("burn40: 41 %"));
        assert!(sentence(&a, vec![outcome("a", 1, None); 2]).contains("2 results came"));
        assert!(sentence(&[], vec![outcome("a", 1, None)]).contains("not expected"));
    }

    #[test]
    fn a_broken_guest_is_a_fault_even_if_all_results_came() {
        let mut verdict = Verdict::default();
        verdict.add("6.1", &[run("a")], (vec![outcome("a", 1, None)], Some("it panicked".to_owned())));
        assert_eq!((verdict.passed(), verdict.faults()), (1, &["kernel 6.1: it panicked".to_owned()][..]));
    }

    #[test]
    fn a_row_has_the_figures() {
        let text = row(&outcome("profile", 4321, None));
        assert!(
            text.starts_with("ok") && text.contains("profile on JDK 17") && text.contains("to_root=0.99")
        );
    }
}
