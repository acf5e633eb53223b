//! One stack on its way from addresses to frames. Stacks come in the order of their roots: what two neighbours have in
//! common from the root on is looked up, unfolded and noted once.

use std::sync::Arc;

use super::frames::Frames;
use super::known::{SpaceNumber, Times};
use super::lookup::Step;
use super::vthread;
use crate::capture::{End, Stack};
use crate::profile::Frame;

/// Where a stack's user addresses lead to.
pub(super) struct Walk {
    /// Leaf first, without those that are shared.
    pub(super) steps: Vec<Step>,
    /// So many of the outermost words lead to what those of the stack before lead to.
    pub(super) shared: usize,
    space: Option<SpaceNumber>,
    /// Of each word, outermost first: when it and all beyond it lead there. None of a stack that may be cut.
    hold: Vec<Times>,
}

impl Walk {
    /// How many of the outermost words of `next`, which has its code in `space`, lead where those of this walk's stack do.
    /// Never the leaf.
    pub(super) fn shared_with(&self, stack: &Stack, next: &Stack, space: Option<SpaceNumber>) -> usize {
        let is_cut = |stack: &Stack| stack.end == End::Depth;
        if space.is_none() || space != self.space || is_cut(stack) != is_cut(next) {
            return 0;
        }
        let words = stack.user.iter().rev().zip(next.user.iter().rev()).zip(&self.hold);
        let same = words.take_while(|((a, b), hold)| a == b && hold.contain(next.at)).count();
        same.min(next.user.len().saturating_sub(1))
    }

    /// `steps` and when each of them holds, leaf first, below what is shared with the walk before.
    pub(super) fn new(
        space: Option<SpaceNumber>,
        before: Option<(&Walk, usize)>,
        steps: Vec<(Step, Times)>,
    ) -> Walk {
        let (shared, root) = before
            .map_or((0, &[][..]), |(walk, shared)| (shared, walk.hold.get(..shared).unwrap_or_default()));
        let mut hold = Vec::new();
        // One that goes astray ends its stack; which does is known when all is found.
        if !steps.iter().any(|(step, _)| step.astray) {
            hold.reserve_exact(shared + steps.len());
            hold.extend_from_slice(root);
            let mut all = hold.last().copied().unwrap_or(Times::ALL);
            hold.extend(steps.iter().rev().map(|(_, times)| {
                all = all.both(*times);
                all
            }));
        }
        Walk { steps: steps.into_iter().map(|(step, _)| step).collect(), shared, space, hold }
    }
}

/// A stack's frames.
#[derive(Default)]
pub(super) struct Unfolded {
    /// Root first.
    pub(super) frames: Vec<Arc<Frame>>,
    /// Where the frames of each user word end, outermost first.
    ends: Vec<usize>,
    /// Where a virtual thread begins.
    mount: Option<usize>,
}

impl Unfolded {
    /// Only the frames of the `shared` outermost words.
    pub(super) fn root(&self, shared: usize) -> Unfolded {
        let ends = self.ends.get(..shared).unwrap_or_default();
        let frames = ends.last().and_then(|&end| self.frames.get(..end)).unwrap_or_default();
        let mount = self.mount.filter(|&at| at < frames.len());
        Unfolded { frames: frames.to_vec(), ends: ends.to_vec(), mount }
    }

    /// Puts the frames of the next words, leaf first, on top.
    pub(super) fn extend(&mut self, words: &[Frames]) {
        let from = self.frames.len();
        for frames in words.iter().rev() {
            self.frames.extend(frames.iter().cloned());
            self.ends.push(self.frames.len());
        }
        if self.mount.is_none() {
            self.mount = vthread::mark(&mut self.frames, from);
            if let Some(at) = self.mount {
                self.ends.iter_mut().filter(|end| **end > at).for_each(|end| *end += 1);
            }
        }
    }
}
