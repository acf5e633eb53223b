//! Folded stacks: `comm;root;…;leaf count`, one line a stack, sorted; lost ticks as `[lost];[reason] count`.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};

use super::name;
use crate::profile::tree::Tree;
use crate::profile::trie::NodeId;
use crate::profile::{Accounts, Frame, Kind, Labels, Profile};

/// Bytes that a line may have; 1,024 frames of the longest names are some megabytes.
const MAX_LINE: usize = 16 << 20;

/// What stands for a sample without a stack.
pub(super) const NO_FRAMES: &str = "[no frames]";

/// Writes a profile.
///
/// # Errors
/// What the writer says.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let tree = Tree::of(profile);
    let names = names(profile);
    for line in lines(&tree, &names) {
        writeln!(out, "{line}")?;
    }
    for line in lost(&profile.accounts) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Every symbol's text.
pub(super) fn names(profile: &Profile) -> Vec<String> {
    let frames = profile.frames();
    frames.symbols().iter().map(|s| name::folded(frames, s)).collect()
}

/// The lines of a tree, sorted. Different symbols of one text are one line.
pub(super) fn lines(tree: &Tree, names: &[String]) -> Vec<String> {
    let mut stacks: Vec<(String, u64)> =
        tree.ending().map(|node| (stack(tree, names, node), tree.ends[node.index()])).collect();
    let bare = tree.ends[NodeId::ROOT.index()];
    if bare > 0 {
        stacks.push((NO_FRAMES.to_owned(), bare));
    }
    stacks.sort_unstable();
    stacks.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 += next.1;
        }
        same
    });
    stacks.into_iter().map(|(stack, count)| format!("{stack} {count}")).collect()
}

fn stack(tree: &Tree, names: &[String], leaf: NodeId) -> String {
    let mut path: Vec<&str> =
        tree.trie.up(leaf).map(|n| names[tree.trie.item(n) as usize].as_str()).collect();
    path.reverse();
    path.join(";")
}

/// Lost ticks as lines.
pub(super) fn lost(accounts: &Accounts) -> impl Iterator<Item = String> + '_ {
    accounts.lost.iter().map(|(why, n)| format!("{};{} {n}", name::LOST, reason(why)))
}

/// A reason as a frame.
pub(super) fn reason(why: &str) -> String {
    format!("[{}]", why.replace(';', "|"))
}

/// Reads folded stacks of ours or of others. Counts have no period, so weights in nanoseconds are 0.
///
/// # Errors
/// When a line is no stack with a count; the line's number is said, its text is not.
pub fn read(input: &mut impl BufRead) -> anyhow::Result<Profile> {
    let mut profile = Profile::new();
    let mut accounts = Accounts::default();
    let labels = Labels::default();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let most = MAX_LINE as u64 + 1;
        let read = io::Read::take(&mut *input, most)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("line {number}"))?;
        if read == 0 {
            break;
        }
        ensure!(line.len() <= MAX_LINE, "line {number} is longer than {MAX_LINE} bytes");
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() || text.starts_with("# ") {
            continue;
        }
        let Some((stack, count)) = text.rsplit_once(' ') else { bail!("line {number}: no count at its end") };
        let Ok(count) = count.parse::<u64>() else { bail!("line {number}: no whole number at its end") };
        match stack.split_once(';') {
            Some((name::LOST, reason)) => accounts.lose(bare(reason).to_owned(), count),
            _ if stack == NO_FRAMES => profile.add(&labels, &[], count, 0),
            _ => profile.add(&labels, &frames(stack), count, 0),
        }
    }
    accounts.kept = profile.total().count;
    accounts.ticks = accounts.shown();
    profile.accounts = accounts;
    Ok(profile)
}

/// Text without its brackets.
pub(super) fn bare(text: &str) -> &str {
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text)
}

fn frames(stack: &str) -> Vec<Arc<Frame>> {
    let mut parent: Option<Kind> = None;
    let mut frames = Vec::new();
    for (at, text) in stack.split(';').enumerate() {
        let frame = name::parse(text.trim(), at, parent);
        parent = Some(frame.kind);
        frames.push(Arc::new(frame));
    }
    frames
}
