//! Programs whose debug information attacks its reader: they get the names that they have without debug information,
//! and no symbol worker ends because of them.

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::profiler;
use super::super::program::native;
use super::super::target::Target;
use crate::plan::Found;

/// Samples that suffice: a wrong name would be in each sample.
const ENOUGH: u64 = 100;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = Found::default();
    for (name, wanted, unwanted) in [
        ("inlined", "rotate_[i]", "inlined!fun_"),
        // Section headers claim 2^60 bytes: names come from the symbol table, which is not compressed.
        ("inlined-promises", "work", "_[i]"),
        // One section holds 8 MiB of zeros: the strings of DWARF.
        ("inlined-bomb", "work", "rotate"),
        // A debug link with the absolute path of another file, whose names must not be used.
        ("inlined-linked", "inlined-linked!fun_", "work"),
    ] {
        let all = profiled(name)?;
        found.samples += all.total();
        let has = |word: &str| all.share(|stack| stack.iter().any(|frame| frame.contains(word)));
        let (with, without) = (has(wanted), has(unwanted));
        ensure!(
            with > 0.9 && without < 0.01,
            "{name}: {wanted} {with}, {unwanted} {without}:\n{}",
            all.top(5)
        );
    }
    Ok(found)
}

fn profiled(name: &str) -> anyhow::Result<Folded> {
    let target = Target::start(&mut native(name));
    let run = profiler::record(&["-F", "499", "-d", "2", "-p", &target.pid().to_string()])?;
    ensure!(!run.stderr.contains("a worker crashed or timed out"), "{name}: a worker was lost over it");
    let user = run.folded.keep(|stack| !stack.iter().any(|frame| frame.ends_with("_[k]")));
    ensure!(
        user.total() >= ENOUGH,
        "{name}: {} samples are too few to decide:\n{}",
        user.total(),
        run.folded.top(5)
    );
    Ok(user)
}
