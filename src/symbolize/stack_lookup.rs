//! One stack on its way from addresses to frames. Stacks are sorted from their roots, so the words that two neighbours
//! share from the root on are looked up, unfolded and cached once.

use std::sync::Arc;

use super::address_cache::{SpaceNumber, TimedResult, ValidTimes};
use super::frames::FrameChain;
use super::lookup::WordLookup;
use super::vthread;
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::{Stack, StopReason};

/// A stack's frames, root first, without those that it shares with the stack before it.
#[derive(Clone, Debug, Default)]
pub struct NamedStack {
    /// Number of outermost frames shared with the stack before; 0 for the first stack.
    pub same: usize,
    /// The other frames, root first.
    pub frames: Vec<Arc<Frame>>,
}

impl NamedStack {
    /// Turns the frames of the stack before into those of this one.
    pub fn replace(self, stack: &mut Vec<Arc<Frame>>) {
        stack.truncate(self.same);
        stack.extend(self.frames);
    }
}

/// Where a stack's user addresses lead.
pub(super) struct StackLookup {
    /// Leaf first, without the shared words.
    pub(super) steps: Vec<WordLookup>,
    /// Number of outermost words that lead where those of the stack before lead.
    pub(super) shared: usize,
}

/// The stack that was looked up last, and the times at which its addresses lead to the same code.
#[derive(Default)]
pub(super) struct LastLookup<'s> {
    stack: Option<&'s Stack>,
    space: Option<SpaceNumber>,
    /// For each word, outermost first: the times for which the frames of the word, and of all words beyond it, are valid.
    /// Empty for a stack that may be cut.
    valid: Vec<ValidTimes>,
}

impl<'s> LastLookup<'s> {
    /// Number of outermost words of `next`, whose code is in `space`, that lead where those of the last stack do. The
    /// leaf is never included.
    pub(super) fn shared_with(&self, next: &Stack, space: Option<SpaceNumber>) -> usize {
        let is_cut = |stack: &Stack| stack.stop_reason == StopReason::Depth;
        let same_space =
            |last: &&&Stack| space.is_some() && space == self.space && is_cut(last) == is_cut(next);
        let Some(last) = self.stack.as_ref().filter(same_space) else { return 0 };
        let words = last.user.iter().rev().zip(next.user.iter().rev()).zip(&self.valid);
        let same = words.take_while(|((a, b), valid)| a == b && valid.contains(next.at)).count();
        same.min(next.user.len().saturating_sub(1))
    }

    /// Continues with `stack`, which has `shared` words in common with the last one. `steps` are the other words, leaf
    /// first.
    pub(super) fn advance(
        &mut self,
        stack: &'s Stack,
        space: Option<SpaceNumber>,
        shared: usize,
        steps: Vec<TimedResult<WordLookup>>,
    ) -> StackLookup {
        (self.stack, self.space) = (Some(stack), space);
        self.valid.truncate(shared);
        // A return address without code ends its stack. Whether there is code is known only after all lookups.
        if steps.iter().any(|step| step.result.astray) {
            self.valid.clear();
        } else {
            let mut all = self.valid.last().copied().unwrap_or(ValidTimes::ALL);
            self.valid.extend(steps.iter().rev().map(|step| {
                all = all.intersect(step.times);
                all
            }));
        }
        StackLookup { steps: steps.into_iter().map(|step| step.result).collect(), shared }
    }
}

/// The frames of the stack that was unfolded last, as far as the next one needs them.
#[derive(Default)]
pub(super) struct InlineExpansion {
    /// End of the frames of each user word, outermost first.
    ends: Vec<usize>,
    /// Index of the `[vthread]` marker.
    mount: Option<usize>,
    /// Frames without a name: index and reason.
    unknown: Vec<(usize, UnknownReason)>,
}

impl InlineExpansion {
    /// Begins a stack with the frames of the `shared` outermost words. `cut`: frames are missing at its root.
    pub(super) fn begin(&mut self, shared: usize, cut: bool) -> NamedStack {
        self.ends.truncate(shared);
        let same = self.ends.last().copied().unwrap_or(0);
        self.mount = self.mount.filter(|&at| at < same);
        self.unknown.truncate(self.unknown.partition_point(|(at, _)| *at < same));
        let marker = (cut && same == 0).then(|| Arc::new(Frame::named(Kind::Marker, "[truncated]")));
        NamedStack { same, frames: marker.into_iter().collect() }
    }

    /// Adds the frames of the next words, given leaf first. No other frames of user code follow.
    pub(super) fn extend(&mut self, named: &mut NamedStack, words: &[FrameChain]) {
        let NamedStack { same, frames } = named;
        let first = self.ends.len();
        for word in words.iter().rev() {
            frames.extend(word.iter().cloned());
            self.ends.push(*same + frames.len());
        }
        if self.mount.is_none()
            && let Some(at) = vthread::insert_marker(frames)
        {
            self.mount = Some(*same + at);
            self.ends[first..].iter_mut().filter(|end| **end > *same + at).for_each(|end| *end += 1);
        }
        let nameless = frames.iter().zip(*same..).filter_map(|(frame, at)| Some((at, frame.unknown?)));
        self.unknown.extend(nameless);
    }

    /// The reasons of all user frames without a name.
    pub(super) fn unknown(&self) -> impl Iterator<Item = UnknownReason> + '_ {
        self.unknown.iter().map(|(_, why)| *why)
    }
}
