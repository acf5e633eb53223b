//! Programs whose debug information attacks its reader: they get the names that they have without debug information,
//! and no symbol worker ends because of them.

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::profiler;
use super::super::program::native;
use super::super::share::{self, ShareClaim, at_least, at_most};
use super::super::target::Target;
use super::of;
use crate::plan::Found;

/// A program, a name that its samples must have, and one that they must not have.
struct Attack {
    program: &'static str,
    wanted: &'static str,
    unwanted: &'static str,
}

const ATTACKS: [Attack; 4] = [
    // No attack: the names that debug information gives.
    Attack { program: "inlined", wanted: "rotate_[i]", unwanted: "inlined!fun_" },
    // Section headers claim 2^60 bytes: names come from the symbol table, which is not compressed.
    Attack { program: "inlined-promises", wanted: "work", unwanted: "_[i]" },
    // One section holds 8 MiB of zeros: the strings of DWARF.
    Attack { program: "inlined-bomb", wanted: "work", unwanted: "rotate" },
    // A debug link with the absolute path of another file, whose names must not be used.
    Attack { program: "inlined-linked", wanted: "inlined-linked!fun_", unwanted: "work" },
];

/// The length of a process's name in the kernel.
const COMM: usize = 15;
/// Seconds of the first profile: four programs share the CPUs, and few wrong names are a claim about 1,000 samples of
/// each.
const SECONDS: u64 = 10;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let targets = ATTACKS.each_ref().map(|attack| Target::start(&mut native(attack.program)));
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    let mut user = Folded::default();
    share::prove(SECONDS, |seconds| {
        let run = profiler::sample(seconds, &["-p", &pids])?;
        ensure!(!run.stderr.contains("a worker crashed or timed out"), "a worker was lost over a program");
        user.add(run.folded.keep(|stack| !stack.iter().any(|frame| frame.ends_with("_[k]"))));
        Ok(ATTACKS.iter().flat_map(|attack| attack.claims(&user)).collect())
    })?;
    Ok(Found { samples: user.total(), ..Found::default() })
}

impl Attack {
    fn claims(&self, user: &Folded) -> [ShareClaim; 2] {
        let Attack { program, wanted, unwanted } = self;
        let own = of(user, &program[..program.len().min(COMM)]);
        let has = |stack: &[String], word: &str| stack.iter().any(|frame| frame.contains(word));
        [
            at_least(0.9, format!("{program}: {wanted}"), &own, |stack| has(stack, wanted)),
            at_most(0.01, format!("{program}: {unwanted}"), &own, |stack| has(stack, unwanted)),
        ]
    }
}
