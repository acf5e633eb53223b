//! Two sides in one profile: the runs before and the runs after, one behind the other in time, with stable names.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::names::stable;
use crate::profile::frames::{FrameId, FrameTable, Symbol};
use crate::profile::pauses::PauseMark;
use crate::profile::samples::Sample;
use crate::profile::stripped::file_of_block;
use crate::profile::trie::NodeId;
use crate::profile::{Accounts, Frame, Kind, Profile, ProfileView};
use crate::sample::Event;

/// Limit on the columns of time of both sides: a column is a `u16`. Longer runs get columns of several seconds.
const MAX_COLUMNS: u32 = 60_000;

/// One of the two things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The base.
    Before,
    /// The change.
    After,
}

impl Side {
    /// The word for people and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Before => "before",
            Side::After => "after",
        }
    }
}

/// The place of a run in the common profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedRun {
    /// The side to which the run belongs.
    pub side: Side,
    /// Its columns of time.
    pub columns: Range<u32>,
    /// Where its samples went.
    pub accounts: Accounts,
}

/// The profiles of both sides as one profile. A column of time belongs to one run.
#[derive(Debug)]
pub struct ProfilePair {
    profile: Profile,
    event: Event,
    runs: Vec<ComparedRun>,
    /// The kind of each native function: only the look of a name distinguishes C++ from other code.
    native_kinds: HashMap<Arc<str>, Kind>,
}

/// The events that all profiles have.
#[must_use]
pub fn common_events(before: &[Profile], after: &[Profile]) -> Vec<Event> {
    let all: Vec<Vec<Event>> = before.iter().chain(after).map(Profile::events).collect();
    let is_common = |event: &&Event| all.iter().all(|events| events.contains(event));
    all.first().map(|first| first.iter().filter(is_common).copied().collect()).unwrap_or_default()
}

/// The column of a run's second, if the first column of the run is `first`.
fn column(first: u32, second: u32, step: u32) -> u16 {
    u16::try_from(first + second / step).unwrap_or(u16::MAX)
}

/// A run with its side, before it is a part of the pair.
struct SourceRun<'a> {
    side: Side,
    view: ProfileView<'a>,
}

impl SourceRun<'_> {
    /// Seconds of the run; 1 if the profile does not distinguish them.
    fn seconds(&self) -> u32 {
        self.view.by_second().iter().map(|sample| u32::from(sample.second) + 1).max().unwrap_or(1)
    }
}

impl ProfilePair {
    /// Joins the samples of an event. Names become stable, a function has one kind of frame however it was compiled,
    /// and thread frames are left out.
    #[must_use]
    pub fn of(before: &[Profile], after: &[Profile], event: Event) -> ProfilePair {
        let mut pair =
            ProfilePair { profile: Profile::new(), event, runs: Vec::new(), native_kinds: HashMap::new() };
        let of = |side| move |profile| SourceRun { side, view: Profile::of_event(profile, event) };
        let runs: Vec<SourceRun<'_>> =
            before.iter().map(of(Side::Before)).chain(after.iter().map(of(Side::After))).collect();
        let seconds: u32 = runs.iter().map(SourceRun::seconds).sum();
        let step = seconds.div_ceil(MAX_COLUMNS).max(1);
        for run in runs {
            pair.add(&run, step);
        }
        pair
    }

    /// Adds a run behind those before it, with columns of `step` seconds.
    fn add(&mut self, run: &SourceRun<'_>, step: u32) {
        let SourceRun { side, view } = run;
        let first = self.runs.last().map_or(0, |run| run.columns.end);
        let frames: Vec<Option<FrameId>> =
            view.frames().symbols().iter().map(|symbol| self.frame(view.frames(), symbol)).collect();
        let mut stack: Vec<FrameId> = Vec::new();
        let mut known = (NodeId::ROOT, NodeId::ROOT);
        for sample in view.by_second() {
            if known.0 != sample.leaf {
                stack.clear();
                let nodes = view.trie().path_to_root(sample.leaf);
                stack.extend(
                    nodes.filter_map(|node| frames[view.frames().symbol_of(view.frame_of(node)) as usize]),
                );
                stack.reverse();
                known = (sample.leaf, self.profile.stack_of(&stack));
            }
            let labels = self.profile.intern_labels(view.labels(sample.labels));
            let column = column(first, u32::from(sample.second), step);
            self.profile.add_interned_in_second(column, known.1, labels, self.event, sample.weight);
        }
        let last = run.seconds() - 1;
        for mark in view.pauses().marks() {
            // A JVM may stand still in a second without samples, behind the last one of the run.
            let second = u32::from(mark.second).min(last);
            self.profile.pauses.add(PauseMark { second: column(first, second, step), ..mark });
        }
        self.profile.accounts_mut(self.event).merge(view.accounts());
        let columns = first..first + run.seconds().div_ceil(step);
        self.runs.push(ComparedRun { side: *side, columns, accounts: view.accounts().clone() });
    }

    /// The frame of a symbol in the common profile; `None` for a thread.
    fn frame(&mut self, frames: &FrameTable, symbol: &Symbol) -> Option<FrameId> {
        let name = frames.name(symbol);
        let frame = match symbol.unknown {
            _ if symbol.kind == Kind::Thread => return None,
            // The address is of one build of the file.
            Some(why) => Frame { name: file_of_block(name).into(), ..Frame::unknown(why, None, 0) },
            None => {
                let name: Arc<str> = stable(symbol.kind, name).into();
                Frame::named(self.kind(symbol.kind, &name), name)
            }
        };
        Some(self.profile.intern_frame(&Arc::new(frame)))
    }

    /// The kind of a function: how it was compiled, and into what it was inlined, is no difference.
    fn kind(&mut self, kind: Kind, name: &Arc<str>) -> Kind {
        let kind = match kind {
            Kind::Java | Kind::JavaInlined | Kind::JavaInterpreted => return Kind::Java,
            Kind::NativeInlined => Kind::Native,
            Kind::Native | Kind::Cpp => kind,
            other => return other,
        };
        *self.native_kinds.entry(Arc::clone(name)).or_insert(kind)
    }

    /// The samples of both sides.
    #[must_use]
    pub fn view(&self) -> ProfileView<'_> {
        self.profile.of_event(self.event)
    }

    /// The runs, in the order of their columns: first those before, then those after.
    #[must_use]
    pub fn runs(&self) -> &[ComparedRun] {
        &self.runs
    }

    /// The runs of a side.
    pub fn runs_of(&self, side: Side) -> impl Iterator<Item = &ComparedRun> {
        self.runs.iter().filter(move |run| run.side == side)
    }

    /// The columns of a side.
    #[must_use]
    pub fn columns(&self, side: Side) -> Range<u32> {
        let first = self.runs_of(side).map(|run| run.columns.start).min().unwrap_or(0);
        first..self.runs_of(side).map(|run| run.columns.end).max().unwrap_or(first)
    }

    /// The side of a sample of [`ProfilePair::view`].
    #[must_use]
    pub fn side_of(&self, sample: &Sample) -> Side {
        if u32::from(sample.second) < self.columns(Side::Before).end { Side::Before } else { Side::After }
    }

    /// How often a stack was cut because the common profile was full.
    #[must_use]
    pub fn truncated_stacks(&self) -> u64 {
        self.profile.truncated_stacks()
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;
    use std::sync::Arc;

    use super::{PauseMark, ProfilePair, Side};
    use crate::profile::pauses::PauseTotals;
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    fn run(stack: &[(Kind, &str)], seconds: u16) -> Profile {
        let mut profile = Profile::new();
        let frames: Vec<Arc<Frame>> =
            stack.iter().map(|(kind, name)| Arc::new(Frame::named(*kind, *name))).collect();
        let node = profile.intern_stack(&frames);
        let labels = profile.intern_labels(&Labels::default());
        for second in 0..seconds {
            profile.add_interned_in_second(
                second,
                node,
                labels,
                Event::Cpu,
                Weight { count: 10, ..Weight::default() },
            );
        }
        profile.accounts_mut(Event::Cpu).kept = 10 * u64::from(seconds);
        profile.accounts_mut(Event::Cpu).taken = 10 * u64::from(seconds);
        profile
    }

    #[test]
    fn sides_stand_behind_each_other_and_share_their_stacks() {
        let mut before = run(
            &[(Kind::Process, "java"), (Kind::Thread, "pool-1-thread-2"), (Kind::Java, "a.B$$Lambda$1.run")],
            3,
        );
        let mut after = run(&[(Kind::Process, "java"), (Kind::JavaInlined, "a.B$$Lambda/0x00007f00.run")], 2);
        let mark = |second| {
            let totals = PauseTotals { safepoints: 1, ..PauseTotals::default() };
            PauseMark { pid: 7, second, totals }
        };
        before.pauses = [mark(1), mark(9)].into_iter().collect();
        after.pauses.add(mark(0));
        let pair = ProfilePair::of(&[before.clone(), before], &[after], Event::Cpu);
        let pauses: Vec<u16> = pair.view().pauses().marks().map(|mark| mark.second).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 6]);
        assert_eq!((pair.columns(Side::Before), pair.columns(Side::After)), (0..6, 6..8));
        let view = pair.view();
        view.check().unwrap();
        assert_eq!(view.leaves().len(), 1, "one stack");
        let sum = |side| -> u64 {
            view.by_second().iter().filter(|s| pair.side_of(s) == side).map(|s| s.weight.count).sum()
        };
        assert_eq!((sum(Side::Before), sum(Side::After)), (60, 20));
    }

    #[test]
    fn long_runs_get_wider_columns() {
        let long = run(&[(Kind::Process, "x")], 50_000);
        let pair = ProfilePair::of(from_ref(&long), from_ref(&long), Event::Cpu);
        assert_eq!((pair.columns(Side::Before), pair.columns(Side::After)), (0..25_000, 25_000..50_000));
        assert_eq!(pair.view().total().count, 1_000_000);
    }
}
