//! Claims about samples, decided by [sequential tests](crate::wald): batches of samples are taken until all claims are
//! accepted, or one is refused.

use std::fmt::Write as _;

use crate::folded::Folded;
use crate::wald::{Claim, Verdict};

/// The number of batches after which a test fails that is still undecided: its truth lies between right and wrong, or the
/// samples that it asks for do not come. On a free machine one or two batches decide.
const MOST_BATCHES: u32 = 60;

type Property<'a> = Box<dyn Fn(&[String]) -> bool + 'a>;

/// A claim about the stacks of a profile.
pub struct StackClaim<'a> {
    what: String,
    claim: Asked,
    among: Property<'a>,
    holds: Property<'a>,
}

#[derive(Clone, Copy)]
enum Asked {
    Share(Claim),
    Number(u64),
}

/// At least this share of the stacks has a property; [`Claim::AtLeast`] says what is right and wrong.
pub fn at_least<'a>(
    share: f64,
    what: impl Into<String>,
    holds: impl Fn(&[String]) -> bool + 'a,
) -> StackClaim<'a> {
    StackClaim::new(Asked::Share(Claim::AtLeast(share)), what.into(), holds)
}

/// At most this share of the stacks has a property.
pub fn at_most<'a>(
    share: f64,
    what: impl Into<String>,
    holds: impl Fn(&[String]) -> bool + 'a,
) -> StackClaim<'a> {
    StackClaim::new(Asked::Share(Claim::AtMost(share)), what.into(), holds)
}

/// This share of the stacks has a property.
pub fn share<'a>(
    truth: f64,
    what: impl Into<String>,
    holds: impl Fn(&[String]) -> bool + 'a,
) -> StackClaim<'a> {
    StackClaim::new(Asked::Share(Claim::Is(truth)), what.into(), holds)
}

/// This many stacks with a property come, sooner or later: the test reaches its subject.
pub fn seen<'a>(
    number: u64,
    what: impl Into<String>,
    holds: impl Fn(&[String]) -> bool + 'a,
) -> StackClaim<'a> {
    StackClaim::new(Asked::Number(number), what.into(), holds)
}

impl<'a> StackClaim<'a> {
    fn new(claim: Asked, what: String, holds: impl Fn(&[String]) -> bool + 'a) -> StackClaim<'a> {
        StackClaim { what, claim, among: Box::new(|_| true), holds: Box::new(holds) }
    }

    /// The same of only those stacks for which `some` holds.
    #[must_use]
    pub fn among(self, some: impl Fn(&[String]) -> bool + 'a) -> StackClaim<'a> {
        StackClaim { among: Box::new(some), ..self }
    }

    fn hits(&self, all: &Folded) -> u64 {
        all.count(|stack| (self.among)(stack) && (self.holds)(stack))
    }

    fn judge(&self, all: &Folded) -> Verdict {
        match self.claim {
            Asked::Share(claim) => claim.judge(self.hits(all), all.count(|stack| (self.among)(stack))),
            Asked::Number(number) if self.hits(all) >= number => Verdict::Right,
            Asked::Number(_) => Verdict::Open,
        }
    }

    /// The claim, the samples so far, and the commonest stacks that contradict it.
    fn says(&self, all: &Folded) -> String {
        let subjects = all.keep(|stack| (self.among)(stack));
        let (hits, samples) = (self.hits(all), subjects.total());
        let (claim, against) = match self.claim {
            Asked::Share(claim) => {
                let against = |hit: bool| match claim {
                    Claim::AtLeast(_) => !hit,
                    Claim::AtMost(_) => hit,
                    Claim::Is(_) | Claim::IsAbout(_) => true,
                };
                (claim.to_string(), subjects.keep(|stack| against((self.holds)(stack))))
            }
            Asked::Number(number) => (format!("{number} of them"), all.clone()),
        };
        let part = if samples > 0 { hits as f64 / samples as f64 * 100.0 } else { 0.0 };
        format!("{}: {hits} of {samples} ({part:.3} %), not {claim}:\n{}", self.what, against.top(10))
    }
}

/// Takes batches of stacks until all claims about all of them are accepted, and returns them; panics as soon as a claim is
/// refused. The stacks of a batch must be of the same program, in the same state.
#[track_caller]
pub fn prove(mut batch: impl FnMut() -> Folded, claims: &[StackClaim<'_>]) -> Folded {
    let mut all = Folded::default();
    for _ in 0..MOST_BATCHES {
        all.add(batch());
        let verdicts: Vec<Verdict> = claims.iter().map(|claim| claim.judge(&all)).collect();
        if let Some(wrong) = verdicts.iter().position(|verdict| *verdict == Verdict::Wrong) {
            panic!("{}", claims[wrong].says(&all));
        }
        if verdicts.iter().all(|verdict| *verdict == Verdict::Right) {
            return all;
        }
    }
    let mut open = format!("undecided after {MOST_BATCHES} batches of {} stacks:\n", all.total());
    for claim in claims.iter().filter(|claim| claim.judge(&all) == Verdict::Open) {
        let _ = writeln!(open, "{}", claim.says(&all));
    }
    panic!("{open}");
}

/// Samples with a property, of all samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub hits: u64,
    pub samples: u64,
}

/// The same as [`prove`] for samples that are not stacks: `batch` returns a tally for each claim.
#[track_caller]
pub fn prove_tallies(claims: &[(String, Claim)], mut batch: impl FnMut() -> Vec<Tally>) {
    let mut sums = vec![Tally::default(); claims.len()];
    for _ in 0..MOST_BATCHES {
        let tallies = batch();
        assert_eq!(tallies.len(), claims.len(), "a tally for each claim");
        for (sum, tally) in sums.iter_mut().zip(&tallies) {
            sum.hits += tally.hits;
            sum.samples += tally.samples;
        }
        let mut open = false;
        for ((what, claim), sum) in claims.iter().zip(&sums) {
            let verdict = claim.judge(sum.hits, sum.samples);
            assert_ne!(verdict, Verdict::Wrong, "{what}: {} of {}, not {claim}", sum.hits, sum.samples);
            open |= verdict == Verdict::Open;
        }
        if !open {
            return;
        }
    }
    panic!("undecided after {MOST_BATCHES} batches: {claims:?} of {sums:?}");
}
