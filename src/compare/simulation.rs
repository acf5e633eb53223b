//! The verdict on simulated programs whose truth is known: how often it finds a change where there is none, and how
//! often it finds a planted one. The numbers in `docs/diff.md` are from here.

use super::blocks::{Blocks, NoiseBasis};
use super::comparison::{CompareOptions, Comparison, Work};
use super::counts::{BlockCounts, FunctionCounts};

/// Samples of a second: two busy CPUs at 99 Hz.
const RATE: f64 = 198.0;

/// Functions whose own code runs; they belong to [`GROUPS`] callers, and all to `main`.
const LEAVES: usize = 48;
const GROUPS: usize = 8;

/// The function whose share is changed: it has 10 % of the samples.
const PLANTED: usize = 0;

/// Numbers that look random and are the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// As many events as happen by chance if `mean` are expected.
    fn poisson(&mut self, mean: f64) -> u64 {
        let (mut left, mut events) = (self.next(), 0u32);
        let mut probability = (-mean).exp();
        while left > probability && events < 1000 {
            left -= probability;
            events += 1;
            probability *= mean / f64::from(events);
        }
        u64::from(events)
    }

    /// A factor with mean 1 and a standard deviation below 0.28: the sum of four uniform numbers is almost normal.
    fn around_one(&mut self, deviation: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| self.next()).sum();
        1.0 + deviation * 3f64.sqrt() * (sum - 2.0)
    }
}

/// How a simulated program behaves.
#[derive(Clone, Copy)]
struct Behaviour {
    seconds: usize,
    runs: usize,
    /// Whether shares differ from second to second, by 16 %, and are alike in neighbouring seconds.
    has_phases: bool,
    /// Whether shares differ from run to run: by 3 %, and by 20 % for one function of eight.
    has_moods: bool,
}

impl Behaviour {
    /// Samples of each leaf function in each second of each run, one run behind the other. `planted` is the change of
    /// [`PLANTED`] in points.
    fn side(self, random: &mut Random, planted: f64) -> Vec<[u64; LEAVES]> {
        let mut shares: [f64; LEAVES] = std::array::from_fn(|at| 1.0 / (at + 4) as f64);
        let others: f64 = shares[1..].iter().sum();
        shares.iter_mut().for_each(|share| *share *= 0.9 / others);
        shares[PLANTED] = 0.1;
        shares[PLANTED] += planted / 100.0;
        let rest = 1.0 - shares[PLANTED];
        shares[1..].iter_mut().for_each(|share| *share *= rest / 0.9);
        let mut all = Vec::new();
        for _ in 0..self.runs {
            let mut mood = [1.0; LEAVES];
            if self.has_moods {
                mood = std::array::from_fn(|at| random.around_one(if at % 8 == 7 { 0.2 } else { 0.03 }));
            }
            let mut phase = [1.0; LEAVES];
            for _ in 0..self.seconds {
                if self.has_phases {
                    phase = std::array::from_fn(|at| 0.5 * phase[at] + 0.5 * random.around_one(0.28));
                }
                let now: [f64; LEAVES] = std::array::from_fn(|at| shares[at] * mood[at] * phase[at]);
                all.push(sampled(random, &now));
            }
        }
        all
    }

    /// Blocks of both sides by a basis.
    fn counts(self, basis: NoiseBasis, sides: [&[[u64; LEAVES]]; 2]) -> BlockCounts {
        let length = match basis {
            NoiseBasis::Runs => self.seconds,
            NoiseBasis::Seconds => 1,
            NoiseBasis::Assumed => self.seconds * self.runs,
        };
        let blocks = sides.map(|side| side.len() / length);
        let by_block: Vec<[u64; LEAVES]> = sides
            .iter()
            .flat_map(|side| side.chunks(length))
            .map(|block| std::array::from_fn(|at| block.iter().map(|second| second[at]).sum()))
            .collect();
        let of = |leaves: &dyn Fn(usize) -> bool| -> Vec<u64> {
            let sum = |block: &[u64; LEAVES]| (0..LEAVES).filter(|at| leaves(*at)).map(|at| block[at]).sum();
            by_block.iter().map(sum).collect()
        };
        let nothing = vec![0; by_block.len()];
        let mut functions = Vec::new();
        for leaf in 0..LEAVES {
            let own = of(&|at| at == leaf);
            functions.push(FunctionCounts { symbol: leaf as u32, itself: own.clone(), total: own });
        }
        for group in 0..GROUPS {
            let total = of(&|at| at % GROUPS == group);
            functions.push(FunctionCounts {
                symbol: (LEAVES + group) as u32,
                itself: nothing.clone(),
                total,
            });
        }
        let whole = of(&|_| true);
        functions.push(FunctionCounts { symbol: 999, itself: nothing, total: whole.clone() });
        BlockCounts { blocks: Blocks::made(basis, blocks[0], blocks[1]), whole, functions }
    }

    /// Percent of pairs of sides for which `is_found` is true.
    fn percent(
        self,
        basis: NoiseBasis,
        options: &CompareOptions,
        pairs: u32,
        planted: f64,
        is_found: impl Fn(&Comparison) -> bool,
    ) -> f64 {
        let mut random = Random(20_261_126);
        let mut found = 0;
        for _ in 0..pairs {
            let (before, after) = (self.side(&mut random, 0.0), self.side(&mut random, planted));
            let counts = self.counts(basis, [&before, &after]);
            found += u32::from(is_found(&Comparison::of_counts(&counts, [1.0; 2], options.clone()).unwrap()));
        }
        f64::from(found) * 100.0 / f64::from(pairs)
    }
}

/// The samples of one second: as many of each function as chance gives.
fn sampled(random: &mut Random, shares: &[f64; LEAVES]) -> [u64; LEAVES] {
    let whole: f64 = shares.iter().sum();
    std::array::from_fn(|at| random.poisson(RATE * shares[at] / whole))
}

const EVERY_CHANGE: CompareOptions = CompareOptions { threshold: 0.0, per: None };
const ONE_POINT: CompareOptions = CompareOptions { threshold: 1.0, per: None };

/// One run of 30 seconds.
const ONE_RUN: Behaviour = Behaviour { seconds: 30, runs: 1, has_phases: true, has_moods: false };

fn runs(runs: usize, seconds: usize) -> Behaviour {
    Behaviour { seconds, runs, has_phases: true, has_moods: true }
}

fn found_planted(comparison: &Comparison) -> bool {
    comparison.findings().any(|function| function.symbol == PLANTED as u32 && function.itself.points() > 0.0)
}

#[test]
fn the_same_program_is_called_different_in_at_most_five_of_100_pairs() {
    let steady = Behaviour { has_phases: false, seconds: 20, ..ONE_RUN };
    for (what, behaviour, basis) in [
        ("20 seconds", Behaviour { seconds: 20, ..ONE_RUN }, NoiseBasis::Seconds),
        ("30 seconds", ONE_RUN, NoiseBasis::Seconds),
        ("two runs", runs(2, 10), NoiseBasis::Runs),
        ("two long runs", runs(2, 60), NoiseBasis::Runs),
        ("five runs", runs(5, 6), NoiseBasis::Runs),
        ("independent samples", steady, NoiseBasis::Assumed),
    ] {
        // Even if every change counts.
        let wrong = behaviour.percent(basis, &EVERY_CHANGE, 100, 0.0, Comparison::is_changed);
        assert!(wrong <= 5.0, "{what}: {wrong} % of the pairs are called different");
    }
    let per = Some(Work { name: "request".to_owned(), before: 7.0, after: 7.0 });
    let by_work = CompareOptions { per, ..EVERY_CHANGE };
    for (behaviour, basis) in [(ONE_RUN, NoiseBasis::Seconds), (runs(3, 6), NoiseBasis::Runs)] {
        let wrong = behaviour.percent(basis, &by_work, 100, 0.0, Comparison::is_changed);
        assert!(wrong <= 5.0, "by work: {wrong} % of the pairs are called different");
    }
}

/// The table of `docs/diff.md`.
#[test]
fn a_planted_change_is_found_as_often_as_the_documents_say() {
    for (behaviour, basis, planted, power) in [
        (Behaviour { seconds: 60, ..ONE_RUN }, NoiseBasis::Seconds, 5.0, 95.0),
        (runs(3, 30), NoiseBasis::Runs, 5.0, 95.0),
        (runs(5, 60), NoiseBasis::Runs, 2.0, 95.0),
    ] {
        let found = behaviour.percent(basis, &ONE_POINT, 25, planted, found_planted);
        assert!(found >= power, "{planted} points, {basis:?}: {found} % instead of {power} %");
    }
    let per = Some(Work { name: "request".to_owned(), before: 100.0, after: 80.0 });
    let by_work = CompareOptions { per, ..ONE_POINT };
    let found = ONE_RUN.percent(NoiseBasis::Seconds, &by_work, 25, 0.0, |found| {
        found.whole.is_some_and(|whole| whole.is_finding && (whole.points() - 25.0).abs() < 5.0)
    });
    assert!(found >= 95.0, "the same samples for less work: {found} %");
}
