//! The stacks that ended waits (`--wakers`), as frames above the waits' own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::profile::kind::waker::{INTERRUPT, SEPARATOR, UNKNOWN};
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::{Stack, ThreadState, WakerId};
use crate::waits::reason::TRACEPOINT_CALLERS;

/// Windows for which a stack is kept: a thread may get its CPU, or its stack its names, long after it was woken.
const KEPT_WINDOWS: u64 = 8;
/// The most stacks that are kept, and their frames. Waits that were ended by others show [`UNKNOWN`].
const MAX_KEPT: usize = 1 << 16;
const MAX_FRAMES: usize = 4 << 20;

/// Prefixes of the functions through which an interrupt enters the kernel (Linux 5.10 to 6.18). The code below them was
/// only interrupted.
const INTERRUPTS: &[&str] = &[
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "asm_call_irq_on_stack",
    "asm_exc_nmi",
    "apic_timer_interrupt",
    "ret_from_intr",
    "el1_irq",
    "el0_irq",
    "el1h_64_irq",
    "el0t_64_irq",
    "el0t_32_irq",
    "el1_interrupt",
    "el0_interrupt",
    "gic_handle_irq",
];

/// A stack that ended waits, as shown: its leaf first, its process last.
struct Waker {
    window: u64,
    frames: Vec<Arc<Frame>>,
}

/// The stacks of the last windows that ended waits.
#[derive(Default)]
pub(super) struct Wakers {
    by_id: HashMap<WakerId, Waker>,
    /// Frames of all these stacks.
    frames: usize,
    /// The frames of these stacks, each once.
    shown: HashSet<Arc<Frame>>,
    /// Stacks for which there was no room, each once for each window that has it.
    left_out: u64,
}

impl Wakers {
    /// Keeps the stack of a waker, with its names as of this window: other code may come to its addresses. `roots`: the
    /// frames of its process and thread. `frames`: the others, root first.
    pub(super) fn add(&mut self, id: WakerId, window: u64, roots: Vec<Frame>, frames: &[Arc<Frame>]) {
        let frames = shown(roots, frames);
        let replaced = self.by_id.get(&id).map(|waker| waker.frames.len());
        let has_room = replaced.is_some() || self.by_id.len() < MAX_KEPT;
        let all = self.frames - replaced.unwrap_or_default() + frames.len();
        if !has_room || all > MAX_FRAMES {
            match self.by_id.get_mut(&id) {
                // A known stack keeps its names as they were.
                Some(known) => known.window = window,
                None => self.left_out += 1,
            }
            return;
        }
        let frames = frames.into_iter().map(|frame| self.intern(frame)).collect();
        self.frames = all;
        self.by_id.insert(id, Waker { window, frames });
    }

    /// Stacks for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    fn intern(&mut self, frame: Frame) -> Arc<Frame> {
        if let Some(known) = self.shown.get(&frame) {
            return Arc::clone(known);
        }
        let frame = Arc::new(frame);
        self.shown.insert(Arc::clone(&frame));
        frame
    }

    /// Forgets stacks that have ended no sampled wait for some windows.
    pub(super) fn forget_old(&mut self, window: u64) {
        let before = self.by_id.len();
        self.by_id.retain(|_, waker| waker.window + KEPT_WINDOWS >= window);
        if self.by_id.len() < before {
            self.frames = self.by_id.values().map(|waker| waker.frames.len()).sum();
            self.shown.retain(|frame| Arc::strong_count(frame) > 1);
        }
    }

    /// The frames above the leaf of a wait; none if the wait is not over, or ended without a waker.
    pub(super) fn frames_above(&self, stack: &Stack) -> Vec<Arc<Frame>> {
        let waited = matches!(stack.key.state, ThreadState::Sleeping | ThreadState::Blocked);
        let Some(id) = stack.waker.filter(|_| waited) else { return Vec::new() };
        let above = |name: &str| Arc::new(Frame::named(Kind::Waker, name));
        let mut frames = vec![above(SEPARATOR)];
        match self.by_id.get(&id) {
            Some(waker) => frames.extend(waker.frames.iter().cloned()),
            None => frames.push(above(UNKNOWN)),
        }
        frames
    }
}

fn shown(roots: Vec<Frame>, frames: &[Arc<Frame>]) -> Vec<Frame> {
    let is_kernel = |frame: &Frame| frame.kind == Kind::Kernel;
    // At the leaf of each waker: the profiler's program, and what calls it.
    let is_own = |frame: &&Arc<Frame>| {
        let is_named_so = TRACEPOINT_CALLERS.iter().any(|prefix| frame.name.starts_with(prefix));
        (is_kernel(frame) && is_named_so) || frame.unknown == Some(UnknownReason::NotKernelText)
    };
    let own = frames.iter().rev().take_while(is_own).count();
    let frames = &frames[..frames.len() - own];
    let hides_kernel = frames.last().is_some_and(|leaf| leaf.unknown == Some(UnknownReason::KernelHidden));
    let is_interrupt = |frame: &Arc<Frame>| {
        is_kernel(frame) && INTERRUPTS.iter().any(|prefix| frame.name.starts_with(prefix))
    };
    let interrupt = frames.iter().rposition(is_interrupt).map(|last| {
        let entry = frames[..last].iter().rev().take_while(|frame| is_interrupt(frame)).count();
        last - entry
    });
    let (roots, frames) = match interrupt {
        Some(begin) => (vec![Frame::named(Kind::Waker, INTERRUPT)], &frames[begin..]),
        // Whether an interrupt came is unknown.
        None if hides_kernel => (vec![Frame::named(Kind::Waker, UNKNOWN)], &frames[frames.len()..]),
        None => (roots, frames),
    };
    let all = frames.iter().map(|frame| Frame::clone(frame)).rev().chain(roots.into_iter().rev());
    all.map(|frame| Frame { kind: Kind::Waker, ..frame }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(frames: &[(Kind, &str)]) -> Vec<String> {
        let frames: Vec<_> = frames.iter().map(|(kind, name)| Arc::new(Frame::named(*kind, *name))).collect();
        let shown =
            shown(vec![Frame::named(Kind::Process, "app"), Frame::named(Kind::Thread, "pool")], &frames);
        assert!(shown.iter().all(|frame| frame.kind == Kind::Waker));
        shown.iter().map(|frame| frame.name.to_string()).collect()
    }

    #[test]
    fn a_waker_is_upside_down_without_the_profilers_own_frames() {
        let stack = [
            (Kind::Native, "main"),
            (Kind::Kernel, "do_futex"),
            (Kind::Kernel, "try_to_wake_up"),
            (Kind::Kernel, "__traceiter_sched_waking"),
            (Kind::Kernel, "bpf_trace_run1"),
        ];
        assert_eq!(names(&stack), ["try_to_wake_up", "do_futex", "main", "pool", "app"]);
    }

    #[test]
    fn an_interrupt_is_not_the_work_of_the_code_that_it_interrupts() {
        let stack = [
            (Kind::Native, "innocent"),
            (Kind::Kernel, "asm_sysvec_apic_timer_interrupt"),
            (Kind::Kernel, "sysvec_apic_timer_interrupt"),
            (Kind::Kernel, "hrtimer_wakeup"),
        ];
        let interrupt = ["hrtimer_wakeup", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt"];
        assert_eq!(names(&stack), [&interrupt[..], &[INTERRUPT]].concat());
    }

    #[test]
    fn deep_stacks_of_one_process_do_not_take_all_memory() {
        let mut wakers = Wakers::default();
        let frame = Arc::new(Frame::named(Kind::Native, "deeper"));
        let deep: Vec<_> = (0..1000).map(|_| Arc::clone(&frame)).collect();
        for id in 1..=5_000 {
            wakers.add(WakerId::new(id).unwrap(), 1, Vec::new(), &deep);
        }
        let room = MAX_FRAMES / 1000;
        assert_eq!((wakers.by_id.len(), wakers.shown.len()), (room, 1));
        assert_eq!(wakers.left_out(), 5_000 - room as u64);
        wakers.add(WakerId::new(1).unwrap(), 9, Vec::new(), &deep);
        assert_eq!(wakers.left_out(), 5_000 - room as u64, "a known stack has its room");
        wakers.forget_old(2 + KEPT_WINDOWS);
        assert_eq!((wakers.by_id.len(), wakers.frames), (1, 1000));
    }

    #[test]
    fn stacks_are_forgotten_after_some_windows() {
        let (mut wakers, id) = (Wakers::default(), WakerId::new(7).unwrap());
        wakers.add(id, 1, vec![Frame::named(Kind::Process, "app")], &[]);
        wakers.forget_old(1 + KEPT_WINDOWS);
        assert_eq!(wakers.by_id.len(), 1);
        wakers.forget_old(2 + KEPT_WINDOWS);
        assert!(wakers.by_id.is_empty());
    }
}
