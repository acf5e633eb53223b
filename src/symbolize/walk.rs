//! One stack on its way from addresses to frames. Stacks come in the order of their roots: what two neighbours have in
//! common from the root on is looked up, unfolded and noted once.

use std::sync::Arc;

use super::frames::FrameChain;
use super::known::{SpaceNumber, Times};
use super::lookup::Step;
use super::vthread;
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::{Stack, StopReason};

/// A stack's frames, root first, as far as they are others than those of the stack that was named before it.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// So many of the outermost frames are those of the stack before; 0 of the first stack.
    pub same: usize,
    /// The others.
    pub frames: Vec<Arc<Frame>>,
}

impl Named {
    /// Makes the frames of the stack before into those of this one.
    pub fn replace(self, stack: &mut Vec<Arc<Frame>>) {
        stack.truncate(self.same);
        stack.extend(self.frames);
    }
}

/// Where a stack's user addresses lead to.
pub(super) struct Walk {
    /// Leaf first, without those that are shared.
    pub(super) steps: Vec<Step>,
    /// So many of the outermost words lead to what those of the stack before lead to.
    pub(super) shared: usize,
}

/// The stack that was walked last, and when its addresses lead to what they led to.
#[derive(Default)]
pub(super) struct LastWalk<'s> {
    stack: Option<&'s Stack>,
    space: Option<SpaceNumber>,
    /// Of each word, outermost first: when it and all beyond it lead there. None of a stack that may be cut.
    hold: Vec<Times>,
}

impl<'s> LastWalk<'s> {
    /// How many of the outermost words of `next`, which has its code in `space`, lead where those of the last stack do.
    /// Never the leaf.
    pub(super) fn shared_with(&self, next: &Stack, space: Option<SpaceNumber>) -> usize {
        let is_cut = |stack: &Stack| stack.end == StopReason::Depth;
        let same_space =
            |last: &&&Stack| space.is_some() && space == self.space && is_cut(last) == is_cut(next);
        let Some(last) = self.stack.as_ref().filter(same_space) else { return 0 };
        let words = last.user.iter().rev().zip(next.user.iter().rev()).zip(&self.hold);
        let same = words.take_while(|((a, b), hold)| a == b && hold.contain(next.at)).count();
        same.min(next.user.len().saturating_sub(1))
    }

    /// Goes on to `stack`, of which so many words are `shared`: `steps` are the others, leaf first, and when each of them
    /// holds.
    pub(super) fn advance(
        &mut self,
        stack: &'s Stack,
        space: Option<SpaceNumber>,
        shared: usize,
        steps: Vec<(Step, Times)>,
    ) -> Walk {
        (self.stack, self.space) = (Some(stack), space);
        self.hold.truncate(shared);
        // One that goes astray ends its stack; which does is known when all is found.
        if steps.iter().any(|(step, _)| step.astray) {
            self.hold.clear();
        } else {
            let mut all = self.hold.last().copied().unwrap_or(Times::ALL);
            self.hold.extend(steps.iter().rev().map(|(_, times)| {
                all = all.both(*times);
                all
            }));
        }
        Walk { steps: steps.into_iter().map(|(step, _)| step).collect(), shared }
    }
}

/// The frames of the stack that was unfolded last, as far as the next one needs them.
#[derive(Default)]
pub(super) struct Unfolding {
    /// Where the frames of each user word end, outermost first.
    ends: Vec<usize>,
    /// Where a virtual thread begins.
    mount: Option<usize>,
    /// Frames without a name.
    unknown: Vec<(usize, UnknownReason)>,
}

impl Unfolding {
    /// Begins a stack with the frames of the `shared` outermost words; `cut`: its root side is missing.
    pub(super) fn begin(&mut self, shared: usize, cut: bool) -> Named {
        self.ends.truncate(shared);
        let same = self.ends.last().copied().unwrap_or(0);
        self.mount = self.mount.filter(|&at| at < same);
        self.unknown.truncate(self.unknown.partition_point(|(at, _)| *at < same));
        let marker = (cut && same == 0).then(|| Arc::new(Frame::named(Kind::Marker, "[truncated]")));
        Named { same, frames: marker.into_iter().collect() }
    }

    /// Puts the frames of the next words, leaf first, on top; nothing else of user code comes after them.
    pub(super) fn extend(&mut self, named: &mut Named, words: &[FrameChain]) {
        let Named { same, frames } = named;
        let first = self.ends.len();
        for word in words.iter().rev() {
            frames.extend(word.iter().cloned());
            self.ends.push(*same + frames.len());
        }
        if self.mount.is_none()
            && let Some(at) = vthread::mark(frames)
        {
            self.mount = Some(*same + at);
            self.ends[first..].iter_mut().filter(|end| **end > *same + at).for_each(|end| *end += 1);
        }
        let nameless = frames.iter().zip(*same..).filter_map(|(frame, at)| Some((at, frame.unknown?)));
        self.unknown.extend(nameless);
    }

    /// Why frames of the user's code have no name, of each that has none.
    pub(super) fn unknown(&self) -> impl Iterator<Item = UnknownReason> + '_ {
        self.unknown.iter().map(|(_, why)| *why)
    }
}
