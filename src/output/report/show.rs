//! Tables of a profile for the terminal: functions, lines, or the call tree.

use std::cmp::Reverse;
use std::convert::Infallible;

use super::detail::Detail;
use super::layout::{bytes, cut_middle, percent, thousands};
use super::sections;
use crate::output::folded::FoldedTexts;
use crate::profile::filter::Glob;
use crate::profile::fold::{FoldOptions, PictureBox};
use crate::profile::{Profile, ProfileView};
use crate::sample::Event;
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::unit::Unit;

/// Rows of a table of functions or lines.
const ROWS: usize = 100;
/// A frame with a smaller share than one in this number is not in the tree.
const MIN_SHARE_DIVISOR: u64 = 200;

/// Stand for a table that would be empty.
const NO_CALLER: &str = "No sample has a frame with the name of --caller.";
const NO_LINES: &str = "The profile has no lines of source.";

/// What to show of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownTable {
    /// Functions with their own and their total samples.
    #[default]
    Flat,
    /// What each function calls, from the root on.
    Tree,
    /// Source lines with self samples.
    Lines,
}

/// How to show a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShowOptions {
    /// Which table to print.
    pub table: ShownTable,
    /// Shows only what these functions call, and the functions themselves.
    pub caller: Option<Glob>,
    /// Levels of the call tree; `None` for all.
    pub depth: Option<usize>,
    /// Characters of a line, at least 60; [`ShowOptions::WHOLE`] for whole names.
    pub width: usize,
}

impl ShowOptions {
    /// A width that cuts no name.
    pub const WHOLE: usize = 1 << 20;
}

/// A table for each event of a profile, as lines of text.
#[must_use]
pub fn show(profile: &Profile, options: &ShowOptions) -> String {
    let below = options.caller.as_ref().map(|caller| profile.below(caller));
    let profile = below.as_ref().unwrap_or(profile);
    let detail = Detail { width: options.width.max(60), rows: ROWS, lines: true };
    let mut text = String::new();
    for view in profile.views() {
        let accounts = view.accounts();
        let lost = accounts.lost_total();
        let lost = if lost > 0 { format!("{} lost", thousands(lost)) } else { "none lost".to_owned() };
        text += &format!("{}: {}, {lost}\n", view.event().title(), kept(view.event(), accounts.kept));
        let lines = match options.table {
            _ if accounts.kept == 0 && options.caller.is_some() => vec![NO_CALLER.to_owned()],
            ShownTable::Lines if view.lines().iter().all(|row| row.line == 0) => vec![NO_LINES.to_owned()],
            ShownTable::Flat => sections::functions(&view, detail),
            ShownTable::Lines => sections::lines(&view, detail),
            ShownTable::Tree => tree(&view, options.depth.unwrap_or(usize::MAX), detail.width),
        };
        for line in lines {
            text += &line;
            text.push('\n');
        }
    }
    text
}

/// What a profile has of an event. Files of other programs have amounts, and no number of samples.
fn kept(event: Event, number: u64) -> String {
    match (event.origin(), event.unit()) {
        (Some(EventOrigin::File), Unit::Bytes) => bytes(number),
        (Some(EventOrigin::File), Unit::Nanoseconds) => format!("{} ms", thousands(number / 1_000_000)),
        (Some(EventOrigin::File), Unit::Count) => thousands(number),
        _ => format!("{} samples", thousands(number)),
    }
}

/// A frame of the call tree.
struct Branch {
    depth: usize,
    item: u32,
    itself: u64,
    total: u64,
    children: Vec<usize>,
}

/// The frames of all stacks; the first one is the root.
fn branches(view: &ProfileView<'_>, texts: &FoldedTexts) -> Vec<Branch> {
    let root = Branch { depth: 0, item: 0, itself: 0, total: 0, children: Vec::new() };
    let mut branches = vec![root];
    let mut path = vec![0];
    let fold = FoldOptions { items: &texts.items, least: 0.0, reverse: false };
    let visited = fold.walk(view, |PictureBox { depth, item, ends }| {
        path.truncate(depth + 1);
        let place = branches.len();
        if let Some(parent) = path.last() {
            branches[*parent].children.push(place);
        }
        path.push(place);
        branches.push(Branch { depth: depth + 1, item, itself: ends, total: ends, children: Vec::new() });
        Ok::<(), Infallible>(())
    });
    let Ok(_) = visited;
    for at in (0..branches.len()).rev() {
        let above: u64 = branches[at].children.iter().map(|child| branches[*child].total).sum();
        branches[at].total += above;
    }
    for at in 0..branches.len() {
        let mut children = std::mem::take(&mut branches[at].children);
        children.sort_by_key(|child| Reverse(branches[*child].total));
        branches[at].children = children;
    }
    branches
}

/// The call tree, the largest branches first.
fn tree(view: &ProfileView<'_>, depth: usize, width: usize) -> Vec<String> {
    let texts = FoldedTexts::of(view.frames());
    let branches = branches(view, &texts);
    let shown = view.accounts().shown();
    let mut lines = vec!["   total     self  frame".to_owned()];
    let mut hidden = 0;
    let mut waiting: Vec<usize> = branches[0].children.iter().rev().copied().collect();
    while let Some(at) = waiting.pop() {
        let branch = &branches[at];
        if branch.depth > depth || branch.total * MIN_SHARE_DIVISOR < shown {
            hidden += 1;
            continue;
        }
        let indent = "  ".repeat(branch.depth - 1);
        let left =
            format!("{:>8} {:>8}  {indent}", percent(branch.total, shown), percent(branch.itself, shown));
        let room = width.saturating_sub(left.chars().count()).max(20);
        lines.push(left + &cut_middle(&texts.list[branch.item as usize], room));
        waiting.extend(branch.children.iter().rev());
    }
    if hidden > 0 {
        lines
            .push(format!("not shown: {} branches that are smaller than 0.5 % or deeper", thousands(hidden)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{NO_CALLER, NO_LINES, ShowOptions, ShownTable, show};
    use crate::profile::filter::Glob;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
    use crate::sample::Event;
    use crate::sample::unit::Unit;

    fn profile() -> Profile {
        let mut profile = Profile::new();
        for (names, count) in
            [("p main work deep", 600), ("p main work", 300), ("p other", 97), ("q tiny", 1)]
        {
            let frame = |name: &str| {
                let kind = if name.len() == 1 { Kind::Process } else { Kind::Native };
                Arc::new(Frame { line: 7, file: Some("x.c".into()), ..Frame::named(kind, name) })
            };
            let stack: Vec<Arc<Frame>> = names.split(' ').map(frame).collect();
            profile.add(&Labels::default(), &stack, count, 0);
        }
        *profile.accounts_mut(Event::Cpu) = Accounts { taken: 1000, kept: 998, ..Accounts::default() };
        profile.accounts_mut(Event::Cpu).lose("ring full", 2);
        profile
    }

    #[test]
    fn amounts_of_other_programs_have_their_unit() {
        let first = |unit: Unit, value: u64| {
            let event = Event::stored(&format!("of {}", unit.name()), unit).unwrap();
            let mut profile = Profile::new();
            *profile.accounts_mut(event) = Accounts { taken: value, kept: value, ..Accounts::default() };
            show(&profile, &ShowOptions::default()).lines().next().unwrap().to_owned()
        };
        assert_eq!(first(Unit::Bytes, 3 << 20), "of bytes: 3.0 MiB, none lost");
        assert_eq!(first(Unit::Nanoseconds, 5_000_000_000), "of nanoseconds: 5,000 ms, none lost");
        assert_eq!(first(Unit::Count, 1234), "of count: 1,234, none lost");
    }

    fn lines(options: &ShowOptions) -> Vec<String> {
        let text = show(&profile(), &ShowOptions { width: 80, ..options.clone() });
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_tree_has_the_largest_branches_first_and_counts_what_it_hides() {
        let tree = ShowOptions { table: ShownTable::Tree, ..ShowOptions::default() };
        assert_eq!(
            lines(&tree),
            [
                "CPU time: 998 samples, 2 lost",
                "total self frame",
                "99.7 % 0.0 % p",
                "90.0 % 0.0 % main",
                "90.0 % 30.0 % work",
                "60.0 % 60.0 % deep",
                "9.7 % 9.7 % other",
                "not shown: 1 branches that are smaller than 0.5 % or deeper",
            ]
        );
        let flat = lines(&ShowOptions { depth: Some(2), ..tree.clone() });
        assert_eq!(flat.len(), 6, "{flat:?}");
        let below = lines(&ShowOptions { caller: Some(Glob::new("wor*")), ..tree });
        assert_eq!(below[..3], ["CPU time: 900 samples, 2 lost", "total self frame", "99.8 % 33.3 % work"]);
    }

    #[test]
    fn what_is_empty_says_why() {
        let missing = ShowOptions { caller: Some(Glob::new("none")), ..ShowOptions::default() };
        assert_eq!(lines(&missing), ["CPU time: 0 samples, 2 lost", NO_CALLER]);
        let mut without = Profile::new();
        without.add(&Labels::default(), &[Arc::new(Frame::named(Kind::Native, "main"))], 1, 0);
        without.accounts_mut(Event::Cpu).kept = 1;
        let by_line = ShowOptions { table: ShownTable::Lines, ..ShowOptions::default() };
        assert!(show(&without, &by_line).contains(NO_LINES));
    }

    #[test]
    fn functions_and_lines_are_those_of_the_report() {
        let flat = lines(&ShowOptions::default());
        assert!(flat.contains(&"60.0 % 60.0 % native deep".to_owned()), "{flat:?}");
        assert!(flat.contains(&"30.0 % 90.0 % native work".to_owned()), "{flat:?}");
        let by_line = lines(&ShowOptions { table: ShownTable::Lines, ..ShowOptions::default() });
        assert!(by_line.contains(&"60.0 % 600 deep (x.c:7)".to_owned()), "{by_line:?}");
    }
}
