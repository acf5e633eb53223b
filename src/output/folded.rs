//! Folded stacks: `comm;root;…;leaf count`, one stack per line, in the order of their frames. Lost samples are lines
//! `[lost];[reason] count`.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};

use super::format::{Format, FormatReader, FormatRequirements};
use super::name;
use crate::profile::fold::FoldOptions;
use crate::profile::frames::{FrameId, FrameTable};
use crate::profile::samples::Weight;
use crate::profile::trie::NodeId;
use crate::profile::{Accounts, Kind, Labels, Profile, ProfileView};
use crate::sample::Event;

/// Maximum bytes of a line; 1,024 frames of the longest names are some megabytes.
const MAX_LINE: usize = 16 << 20;

/// Marker frame of a sample without a stack.
pub(super) const NO_FRAMES: &str = "[no frames]";

/// Marker frame of stacks whose outermost frame is too small for the picture.
pub(super) const TOO_SMALL: &str = "[too small]";

/// The folded stacks format.
pub static FORMAT: Format = Format {
    names: &["folded", "collapsed"],
    media_type: "text/plain; charset=utf-8",
    needs: FormatRequirements::NONE,
    several: false,
    write: |views, _, out| Ok(views.iter().try_for_each(|view| write(view, out))?),
    read: FormatReader::By { magic: b"", read: |input| read(input) },
};

/// Writes the samples of one event.
///
/// # Errors
/// The error of `out`.
pub fn write(view: &ProfileView<'_>, out: &mut dyn Write) -> io::Result<()> {
    let texts = FoldedTexts::of(view.frames());
    texts.lines(view, 0.0, false, |line| writeln!(out, "{line}"))?;
    for line in lost(view.accounts()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The texts of a profile's symbols; several symbols may share a text.
pub(super) struct FoldedTexts {
    /// The distinct texts in ascending order.
    pub(super) list: Vec<String>,
    /// For each symbol the index of its text in `list`.
    pub(super) items: Vec<u32>,
}

impl FoldedTexts {
    pub(super) fn of(frames: &FrameTable) -> FoldedTexts {
        let all: Vec<String> = frames.symbols().iter().map(|s| name::folded(frames, s)).collect();
        let mut list = all.clone();
        list.sort_unstable();
        list.dedup();
        // The search always succeeds, because `list` contains every text.
        let items = all.iter().map(|t| list.binary_search(t).unwrap_or(0) as u32).collect();
        FoldedTexts { list, items }
    }

    /// Passes a view's lines one at a time, because they may be gigabytes. See [`FoldOptions`] for `least` and
    /// `reverse`.
    pub(super) fn lines<E>(
        &self,
        view: &ProfileView<'_>,
        least: f64,
        reverse: bool,
        mut each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut line = String::new();
        // For each depth, the end of its text in `line`.
        let mut ends: Vec<usize> = Vec::new();
        let fold = FoldOptions { items: &self.items, least, reverse };
        let bare = fold.walk(view, |folded| {
            ends.truncate(folded.depth);
            line.truncate(ends.last().copied().unwrap_or(0));
            if folded.depth > 0 {
                line.push(';');
            }
            line.push_str(&self.list[folded.item as usize]);
            ends.push(line.len());
            match folded.ends {
                0 => Ok(()),
                count => {
                    line.push_str(&format!(" {count}"));
                    each(&line)
                }
            }
        })?;
        for (text, count) in [(NO_FRAMES, bare.frameless), (TOO_SMALL, bare.cut)] {
            if count > 0 {
                each(&format!("{text} {count}"))?;
            }
        }
        Ok(())
    }
}

pub(super) fn lost(accounts: &Accounts) -> impl Iterator<Item = String> + '_ {
    accounts.lost.iter().map(|(why, n)| format!("{};{} {n}", name::LOST, reason(why)))
}

/// A marker frame for the reason of a loss.
pub(super) fn reason(why: &str) -> String {
    format!("[{}]", why.replace(';', "|"))
}

/// Reads folded stacks of any writer. A file does not contain its event: the samples become `cpu` samples, or those of
/// `wait` or `alloc` if most of their stacks end in why a thread waited or who woke it, or in what it allocated. Their
/// period is unknown, so weights in nanoseconds are 0.
///
/// # Errors
/// A line is not a stack with a count. The error has the line's number, but not its text.
pub fn read(input: &mut (impl BufRead + ?Sized)) -> anyhow::Result<Profile> {
    let mut profile = Profile::new();
    let mut accounts = Accounts::default();
    let labels = profile.intern_labels(&Labels::default());
    let mut sum = Weight::default();
    let mut parsed = FoldedParser::default();
    let mut line = Vec::new();
    let mut stacks: HashMap<NodeId, u64> = HashMap::new();
    let mut ends = StackEnds::default();
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
        let text = text.trim_matches(is_space);
        if text.is_empty() || text.starts_with("# ") {
            continue;
        }
        let Some((stack, count)) = text.rsplit_once(' ') else {
            bail!("line {number}: the count at the end is missing")
        };
        let Ok(count) = count.parse::<u64>() else {
            bail!("line {number}: the count at the end is not a whole number")
        };
        sum = sum
            .checked_add(Weight { count, ..Weight::default() })
            .with_context(|| format!("line {number}: the counts sum to more than 63 bits"))?;
        match stack.split_once(';') {
            Some((name::LOST, reason)) => accounts.lose(name::strip_brackets(reason).to_owned(), count),
            _ if stack == NO_FRAMES => *stacks.entry(NodeId::ROOT).or_default() += count,
            _ => {
                let frames = parsed.stack(stack, &mut profile);
                ends.note(frames.last().map(|leaf| profile.frames().kind(*leaf)), count);
                *stacks.entry(profile.stack_of(frames)).or_default() += count;
            }
        }
    }
    let event = ends.event();
    for (leaf, count) in stacks {
        profile.add_interned(leaf, labels, event, Weight { count, ..Weight::default() });
    }
    accounts.kept = sum.count.saturating_sub(accounts.lost_total());
    accounts.taken = accounts.shown();
    *profile.accounts_mut(event) = accounts;
    Ok(profile)
}

/// How many samples end in which kind of frame. The order of the lines does not matter, and one strange name does not
/// decide.
#[derive(Default)]
struct StackEnds {
    /// In why a thread waited.
    waits: u64,
    /// In a class of objects.
    objects: u64,
    /// In a function.
    functions: u64,
}

impl StackEnds {
    fn note(&mut self, leaf: Option<Kind>, count: u64) {
        let ends = match leaf {
            Some(Kind::Object) => &mut self.objects,
            Some(kind) if kind.is_wait() => &mut self.waits,
            _ => &mut self.functions,
        };
        *ends = ends.saturating_add(count);
    }

    /// The event of such a file.
    fn event(&self) -> Event {
        match self {
            ends if ends.waits > ends.objects.max(ends.functions) => Event::Wait,
            ends if ends.objects > ends.waits.max(ends.functions) => Event::Alloc,
            _ => Event::Cpu,
        }
    }
}

/// Spaces that other writers put around frames and lines; non-ASCII spaces are a part of a name.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}

/// Maximum cached frames for each place of a stack; large programs have some ten thousand.
const MAX_PARSED: usize = 1 << 16;

/// A cache of frames by text: a file contains few distinct frames, each many times.
#[derive(Default)]
struct FoldedParser {
    /// One map for each combination that changes the meaning of a text; see [`FoldedParser::place`].
    places: [HashMap<Box<str>, (Kind, FrameId)>; 6],
    stack: Vec<FrameId>,
}

impl FoldedParser {
    /// The frames of a stack, root first.
    fn stack(&mut self, stack: &str, profile: &mut Profile) -> &[FrameId] {
        self.stack.clear();
        let mut parent: Option<Kind> = None;
        for (at, text) in stack.split(';').enumerate() {
            let (kind, id) = self.frame(text.trim_matches(is_space), at, parent, profile);
            parent = Some(kind);
            self.stack.push(id);
        }
        &self.stack
    }

    fn frame(
        &mut self,
        text: &str,
        at: usize,
        parent: Option<Kind>,
        profile: &mut Profile,
    ) -> (Kind, FrameId) {
        let known = &mut self.places[Self::place(at, parent)];
        if let Some(&frame) = known.get(text) {
            return frame;
        }
        let frame = name::parse(text, at, parent);
        let frame = (frame.kind, profile.intern_frame(&Arc::new(frame)));
        if known.len() < MAX_PARSED {
            known.insert(text.into(), frame);
        }
        frame
    }

    /// The outermost frame is a process, the next one may be a thread, and an inlined frame is Java or native like its
    /// parent.
    fn place(at: usize, parent: Option<Kind>) -> usize {
        at.min(2) * 2 + usize::from(Kind::inlined_in(parent) == Kind::JavaInlined)
    }
}
