//! New stacks from the ring, until their window is taken.

use crate::sample::Stack;

/// Frames that are kept for one window, about 200 MiB. A process that makes new deep stacks all the time fills this
/// first, before it takes the memory of the host.
const MAX_FRAMES: usize = 8 << 20;

/// A stack takes as much memory as so many frames, besides its own.
const FRAMES_OF_STACK: usize = 16;

/// The new stacks of one window. Samples of stacks without room count as lost, because their frames never arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    stacks: Vec<Stack>,
    frames: usize,
}

impl Arrivals {
    pub(super) fn add(&mut self, stack: Stack) {
        let frames = self.frames + FRAMES_OF_STACK + stack.kernel.len() + stack.user.len();
        if frames <= MAX_FRAMES {
            self.frames = frames;
            self.stacks.push(stack);
        }
    }

    /// The stacks of the window, which is over.
    pub(super) fn take(&mut self) -> Vec<Stack> {
        std::mem::take(self).stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Leaf, MonoNs, StackKey, StopReason, ThreadContext};

    #[test]
    fn one_window_has_a_bounded_number_of_frames() {
        let deep = Stack {
            key: StackKey::default(),
            at: MonoNs::default(),
            comm: Vec::new(),
            leaf: Leaf::None,
            stop_reason: StopReason::Root,
            kernel: vec![1; MAX_FRAMES / 2 - FRAMES_OF_STACK],
            user: Vec::new(),
            waiting: None,
            lock: None,
            waker: None,
            object: None,
            context: ThreadContext::None,
        };
        let mut arrivals = Arrivals::default();
        for _ in 0..3 {
            arrivals.add(deep.clone());
        }
        assert_eq!(arrivals.take().len(), 2);
        arrivals.add(deep);
        assert_eq!(arrivals.take().len(), 1);
    }
}
