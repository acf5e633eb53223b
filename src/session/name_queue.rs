//! Queue of JVM stacks. A stack waits until its JVM has reported compiled code, and then until a batch is full, unless
//! somebody watches the run. Neighbours in a larger batch share more frames, and one second at 99 Hz has few stacks.

use std::collections::{HashMap, HashSet};

use crate::sample::{Count, CountedStack, MonoNs, ProcessId, Stack, WakerId};
use crate::symbolize::CHUNK;
use crate::world::Readiness;

/// Stacks from which a batch is full.
const TOGETHER: usize = 2 * CHUNK;
/// Windows after which a batch need not be full.
const MAX_WINDOWS: u64 = 5;

/// A stack in the queue, and the window that counted it.
pub(super) struct QueuedStack {
    pub(super) window: u64,
    pub(super) stack: Stack,
    pub(super) count: Count,
    /// The process of the stack that ended the wait, if its names are late.
    pub(super) waker: Option<u32>,
}

impl QueuedStack {
    /// The processes whose names the stack needs.
    fn tgids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.stack.key.process.tgid).chain(self.waker)
    }
}

#[derive(Default)]
pub(super) struct NameQueue {
    stacks: Vec<QueuedStack>,
    /// Whether stacks do not wait for a full batch.
    is_watched: bool,
}

/// The stacks of a window.
pub(super) struct PartitionedStacks {
    /// Their names come late.
    pub(super) waiting: Vec<QueuedStack>,
    /// They can be symbolized now.
    pub(super) ready: Vec<QueuedStack>,
}

impl NameQueue {
    /// A queue for a run that somebody watches: each second is shown as soon as it has its names.
    pub(super) fn watched() -> NameQueue {
        NameQueue { is_watched: true, ..NameQueue::default() }
    }

    /// Divides a window's stacks into those that must wait for names, and the others.
    pub(super) fn partition_by_readiness(
        &self,
        window: u64,
        stacks: Vec<CountedStack>,
        readiness: &Readiness,
    ) -> PartitionedStacks {
        let wakers = self.stacks.iter().map(|one| &one.stack).chain(stacks.iter().map(|one| &one.stack));
        let wakers = wakers.filter(|stack| stack.is_waker() && readiness.is_late(stack.key.process.tgid));
        let late: HashMap<WakerId, u32> =
            wakers.filter_map(|stack| Some((stack.waker?, stack.key.process.tgid))).collect();
        let all = stacks.into_iter().map(|CountedStack { stack, count }| {
            let waker = stack.waker.and_then(|waker| late.get(&waker)).copied();
            QueuedStack { window, stack, count, waker }
        });
        let (waiting, ready) = all.partition(|one| one.tgids().any(|tgid| readiness.is_late(tgid)));
        PartitionedStacks { waiting, ready }
    }

    pub(super) fn add(&mut self, counted: Vec<QueuedStack>) {
        self.stacks.extend(counted);
    }

    /// Takes the stacks that are due when `window` has come. `over`: the last window of a part whose outcome waits for
    /// its stacks.
    pub(super) fn take_due(
        &mut self,
        window: u64,
        over: Option<u64>,
        readiness: &Readiness,
    ) -> Vec<QueuedStack> {
        // A JVM reports compiled code up to a window late.
        let is_ripe =
            |one: &QueuedStack| one.window < window && !one.tgids().any(|tgid| readiness.is_undecided(tgid));
        let is_old = |one: &QueuedStack| window - one.window >= MAX_WINDOWS;
        let (ripe, unripe): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.stacks).into_iter().partition(is_ripe);
        let is_over = |one: &QueuedStack| over.is_some_and(|last| one.window <= last);
        let all =
            self.is_watched || ripe.len() >= TOGETHER || ripe.iter().any(|one| is_over(one) || is_old(one));
        // A JVM that has ended reports no further code.
        let is_due = |one: &QueuedStack| all || !one.tgids().any(|tgid| readiness.is_late(tgid));
        let (due, early) = ripe.into_iter().partition(is_due);
        self.stacks = unripe;
        self.stacks.extend::<Vec<_>>(early);
        due
    }

    pub(super) fn take_all(&mut self) -> Vec<QueuedStack> {
        std::mem::take(&mut self.stacks)
    }

    /// Whether a stack of a window up to `last` waits.
    pub(super) fn reaches_back_to(&self, last: u64) -> bool {
        self.stacks.iter().any(|one| one.window <= last)
    }

    /// When the oldest stack was seen first.
    pub(super) fn oldest(&self) -> Option<MonoNs> {
        self.stacks.iter().map(|one| one.stack.at).min()
    }

    /// Processes of the stacks.
    pub(super) fn processes(&self) -> HashSet<ProcessId> {
        self.stacks.iter().map(|one| one.stack.key.process).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Leaf, StackKey, StopReason, ThreadContext};
    use crate::world::NameDelay;

    /// A JVM whose names come late, one that has ended, and one for which names are undecided.
    const FOLLOWED: u32 = 1;
    const ENDED: u32 = 2;
    const OPEN: u32 = 3;

    fn readiness() -> Readiness {
        let mut readiness = Readiness::default();
        readiness.set(FOLLOWED, NameDelay::Late);
        readiness.set(OPEN, NameDelay::Undecided);
        readiness
    }

    fn stacks(window: u64, tgid: u32, number: usize) -> Vec<QueuedStack> {
        let process = ProcessId { tgid, start: 1, exec: 1 };
        let key = StackKey { process, ..StackKey::default() };
        let (at, comm, leaf, stop_reason) = (MonoNs(1), Vec::new(), Leaf::User, StopReason::Root);
        let (kernel, user, context) = (Vec::new(), Vec::new(), ThreadContext::None);
        let stack = Stack {
            key,
            at,
            comm,
            leaf,
            stop_reason,
            kernel,
            user,
            waiting: None,
            lock: None,
            waker: None,
            object: None,
            context,
        };
        let count = Count { samples: 1, weight: 1, ..Count::default() };
        (0..number).map(|_| QueuedStack { window, stack: stack.clone(), count, waker: None }).collect()
    }

    /// How many stacks are due in each window from the second on, if each window adds `each` stacks.
    fn due(mut queue: NameQueue, tgid: u32, each: usize, windows: u64) -> Vec<usize> {
        let mut due = Vec::new();
        for window in 1..=windows {
            due.push(queue.take_due(window, None, &readiness()).len());
            queue.add(stacks(window, tgid, each));
        }
        due.split_off(1)
    }

    #[test]
    fn few_wait_for_each_other_and_many_for_their_jvm_only() {
        let due = |tgid, each, windows| due(NameQueue::default(), tgid, each, windows);
        assert_eq!(due(FOLLOWED, 10, 12), [0, 0, 0, 0, 50, 0, 0, 0, 0, 50, 0]);
        assert_eq!(due(FOLLOWED, TOGETHER / 2, 6), [0, TOGETHER, 0, TOGETHER, 0]);
        assert_eq!(due(FOLLOWED, TOGETHER, 4), [TOGETHER; 3]);
        assert_eq!(due(ENDED, 10, 4), [10; 3]);
        assert_eq!(due(OPEN, TOGETHER, 12), [0; 11]);
    }

    #[test]
    fn who_watches_a_run_waits_for_jvms_only() {
        assert_eq!(due(NameQueue::watched(), FOLLOWED, 10, 4), [10; 3]);
        assert_eq!(due(NameQueue::watched(), OPEN, 10, 4), [0; 3]);
    }

    #[test]
    fn the_end_of_a_part_waits_for_jvms_only() {
        let mut queue = NameQueue::default();
        queue.add(stacks(1, FOLLOWED, 10));
        queue.add(stacks(1, OPEN, 10));
        queue.add(stacks(2, FOLLOWED, 10));
        assert_eq!(queue.take_due(2, Some(1), &readiness()).len(), 10);
        assert!(queue.reaches_back_to(1), "one that is open");
        assert_eq!(queue.take_due(3, Some(1), &readiness()).len(), 0, "the next part's wait for each other");
        assert_eq!(queue.take_all().len(), 20);
        assert!(!queue.reaches_back_to(2) && queue.oldest().is_none());
    }
}
