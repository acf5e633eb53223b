//! Folded stacks with two counts, `stack before after`, as `difffolded.pl` writes them: other tools draw them.

use std::io::Write;

use super::format::DiffFormat;
use super::model::Difference;
use super::stacks::{DiffStacks, SideCounts, lost};
use crate::output::{folded, name};

pub(super) static FORMAT: DiffFormat =
    DiffFormat { extension: "folded", write: |difference, _, out| write(difference, out) };

fn write(difference: &Difference<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let stacks = DiffStacks::of(difference);
    let text = |node| stacks.text(difference, node).to_owned();
    stacks.for_each(difference, text, |stack, counts| line(out, stack, counts))?;
    for (reason, counts) in lost(difference) {
        line(out, &format!("{};{}", name::LOST, folded::reason(&reason)), counts)?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, stack: &str, [before, after]: SideCounts) -> anyhow::Result<()> {
    Ok(writeln!(out, "{stack} {before} {after}")?)
}
