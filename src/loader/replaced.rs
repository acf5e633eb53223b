//! Code that replaced other code at the same addresses. Until the new address space is loaded, the BPF program unwinds
//! by the table of the old code. The callers that it finds that way are wrong.

use std::collections::HashMap;

use crate::process::CoveredCode;
use crate::sample::{MonoNs, Stack, StopReason};

/// Upper bound for the time of a sample that is in progress while the address space is loaded, in nanoseconds.
const MAX_UNWIND_NS: u64 = 10_000_000;
/// Maximum number of separate places of one process.
const MAX_PLACES: usize = 16;

/// By process, the places whose code was replaced.
#[derive(Debug, Default)]
pub(super) struct ReplacedCode(HashMap<u32, Vec<ReplacedRange>>);

#[derive(Clone, Copy, Debug)]
struct ReplacedRange {
    start: u64,
    end: u64,
    from: MonoNs,
    /// When the new address space was loaded.
    loaded: Option<MonoNs>,
}

impl ReplacedRange {
    /// Whether a stack of time `at` may have been unwound by the old code's table.
    fn may_have_misled(&self, at: MonoNs) -> bool {
        self.from <= at && self.loaded.is_none_or(|loaded| at.0 < loaded.0 + MAX_UNWIND_NS)
    }
}

impl ReplacedCode {
    /// Adds code that is not loaded into the BPF program's maps yet.
    pub(super) fn add(&mut self, code: &CoveredCode) {
        let CoveredCode { tgid, start, end, at, .. } = *code;
        let places = self.0.entry(tgid).or_default();
        if places.len() < MAX_PLACES {
            places.push(ReplacedRange { start, end, from: at, loaded: None });
        } else {
            // A process with that many places is not trusted: its stacks are cut after the first user frame.
            let from = places.iter().map(|place| place.from).min().unwrap_or(at);
            *places = vec![ReplacedRange { start: 0, end: u64::MAX, from, loaded: None }];
        }
    }

    /// The new address space of a process was loaded, or its old one was removed.
    pub(super) fn mark_loaded(&mut self, tgid: u32, now: MonoNs) {
        for place in self.0.get_mut(&tgid).into_iter().flatten() {
            place.loaded.get_or_insert(now);
        }
    }

    /// Cuts a stack after the first frame in replaced code, whose caller was found by the wrong table. Returns whether
    /// the stack was cut. A fork is unwound by the address space of its `parent` until its own is loaded.
    pub(super) fn cut(&self, stack: &mut Stack, parent: impl FnOnce() -> Option<u32>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let whose = [Some(stack.key.process.tgid), parent()].into_iter().flatten();
        let places: Vec<&ReplacedRange> = whose
            .filter_map(|tgid| self.0.get(&tgid))
            .flatten()
            .filter(|place| place.may_have_misled(stack.at))
            .collect();
        let is_new = |pc| places.iter().any(|place| (place.start..place.end).contains(&pc));
        let Some(last) = stack.user.iter().position(|word| word.lookup_pc().is_some_and(is_new)) else {
            return false;
        };
        stack.user.truncate(last + 1);
        stack.stop_reason = StopReason::NoTable;
        true
    }

    /// Removes places that only matter for stacks up to a time; all those have been processed.
    pub(super) fn retire(&mut self, until: MonoNs) {
        self.0.retain(|_, places| {
            places.retain(|place| place.loaded.is_none_or(|loaded| until.0 < loaded.0 + MAX_UNWIND_NS));
            !places.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ProcessId;
    use crate::sample::{Leaf, StackKey, ThreadContext, UserWord};

    const TGID: u32 = 7;

    fn code(start: u64, at: u64) -> CoveredCode {
        CoveredCode { tgid: TGID, parent: 1, start, end: start + 0x1000, at: MonoNs(at) }
    }

    /// The number of frames left of a stack of time `at`, and its stop reason.
    fn left(replaced: &ReplacedCode, tgid: u32, at: u64) -> (usize, StopReason) {
        let process = ProcessId { tgid, start: 1, exec: 1 };
        let mut stack = Stack {
            key: StackKey { process, ..StackKey::default() },
            at: MonoNs(at),
            comm: Vec::new(),
            leaf: Leaf::User,
            stop_reason: StopReason::Root,
            kernel: Vec::new(),
            user: vec![
                UserWord::Leaf(0x5000),
                UserWord::Interpreted { method: 0x7010, bcp: 0x7010 },
                // The call is the last instruction of the replaced code.
                UserWord::Return(0x8000),
                UserWord::Return(0x9000),
            ],
            waiting: None,
            lock: None,
            waker: None,
            object: None,
            context: ThreadContext::None,
        };
        let cut = replaced.cut(&mut stack, || None);
        assert_eq!(cut, stack.stop_reason == StopReason::NoTable);
        (stack.user.len(), stack.stop_reason)
    }

    #[test]
    fn callers_that_another_ones_table_gave_are_not_believed() {
        let mut replaced = ReplacedCode::default();
        replaced.add(&code(0x7000, 100));
        assert_eq!(left(&replaced, TGID, 99), (4, StopReason::Root), "it was not there");
        assert_eq!(left(&replaced, TGID, 100), (3, StopReason::NoTable));
        assert_eq!(left(&replaced, TGID + 1, 100), (4, StopReason::Root));
        replaced.mark_loaded(TGID, MonoNs(200));
        replaced.mark_loaded(TGID, MonoNs(u64::MAX / 2));
        assert_eq!(left(&replaced, TGID, 199 + MAX_UNWIND_NS), (3, StopReason::NoTable));
        assert_eq!(left(&replaced, TGID, 200 + MAX_UNWIND_NS), (4, StopReason::Root));
        replaced.add(&code(0x5000, 300));
        assert_eq!(left(&replaced, TGID, 300), (1, StopReason::NoTable), "the leaf is there");
        replaced.retire(MonoNs(200 + MAX_UNWIND_NS));
        assert_eq!(replaced.0[&TGID].len(), 1, "it is not loaded of yet");
    }

    #[test]
    fn replaced_code_is_forgotten_after_its_last_stack() {
        let mut replaced = ReplacedCode::default();
        replaced.add(&code(0x7000, 100));
        replaced.mark_loaded(TGID, MonoNs(200));
        replaced.retire(MonoNs(201));
        assert_eq!(left(&replaced, TGID, 150), (3, StopReason::NoTable), "some may still come");
        replaced.retire(MonoNs(200 + MAX_UNWIND_NS));
        assert!(replaced.0.is_empty());
    }

    #[test]
    fn constant_replacement_invalidates_all_tables() {
        let mut replaced = ReplacedCode::default();
        (0..10 * MAX_PLACES as u64).for_each(|i| replaced.add(&code(0x10_0000 + i * 0x1000, 100 + i)));
        assert!(replaced.0[&TGID].len() <= MAX_PLACES);
        assert_eq!(left(&replaced, TGID, 100), (1, StopReason::NoTable));
        assert_eq!(left(&replaced, TGID, 99), (4, StopReason::Root));
    }
}
