//! A cache of frames of the interpreter. Each answer is valid for a range of times.

use super::address_cache::{TimedResult, ValidTimes};
use super::cache::Cache;
use super::frames::FrameChain;
use crate::sample::{MonoNs, ProcessId};

/// What the symbol source is asked about an interpreter frame: a method, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InterpretedFrame {
    /// Address of the method in the JVM: its `Method*`.
    pub(crate) method: u64,
    /// The address of the bytecode; 0 if it is not known.
    pub(crate) bcp: u64,
}

/// Answers that are kept for one method: each window may have another one, and its stacks may wait for some windows.
const ANSWERS: usize = 8;

/// How long an unused answer is kept, ns: longer than stacks wait for their JVM's data.
const KEPT_NS: u64 = 120_000_000_000;

#[derive(Debug)]
pub(crate) struct MethodCache(Cache<(ProcessId, InterpretedFrame), Vec<TimedResult<FrameChain>>>);

impl MethodCache {
    pub(crate) fn new(capacity: usize) -> MethodCache {
        MethodCache(Cache::new(capacity))
    }

    /// The cached frames of a method at a time.
    pub(crate) fn get(
        &mut self,
        id: ProcessId,
        at: InterpretedFrame,
        time: MonoNs,
    ) -> Option<TimedResult<FrameChain>> {
        let answers = self.0.get_mut(&(id, at))?;
        let about = answers.iter().filter(|answer| answer.times.contains(time));
        // Take the answer that begins nearest. Of two, take the first, given when more was known of that time.
        about.min_by_key(|answer| time.0 - answer.times.from).cloned()
    }

    /// Caches an answer for times `from..=until`. If the answer before is the same, it is valid in between too.
    pub(crate) fn insert(
        &mut self,
        id: ProcessId,
        at: InterpretedFrame,
        from: u64,
        until: u64,
        frames: FrameChain,
    ) {
        self.0.age(MonoNs(until), KEPT_NS);
        let answer = TimedResult { result: frames, times: ValidTimes { from, until } };
        let Some(answers) = self.0.get_mut(&(id, at)) else {
            self.0.insert((id, at), vec![answer]);
            return;
        };
        if let Some(last) = answers.last_mut().filter(|last| last.result == answer.result) {
            last.times = ValidTimes { from: last.times.from.min(from), until };
            return;
        }
        answers.push(answer);
        if answers.len() > ANSWERS {
            answers.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::UnknownReason;
    use crate::symbolize::frames::unknown;

    const ID: ProcessId = ProcessId { tgid: 1, start: 2, exec: 3 };
    const AT: InterpretedFrame = InterpretedFrame { method: 0x10, bcp: 0x20 };

    #[test]
    fn an_answer_holds_for_its_time() {
        let mut cache = MethodCache::new(10);
        let (frames, others) =
            (unknown(UnknownReason::BadMemory, None, 0), unknown(UnknownReason::MethodGone, None, 0));
        cache.insert(ID, AT, 10, 20, frames.clone());
        let times = [9, 10, 20, 21];
        assert_eq!(times.map(|time| cache.get(ID, AT, MonoNs(time)).is_some()), [false, true, true, false]);
        assert!(cache.get(ID, InterpretedFrame { bcp: 0, ..AT }, MonoNs(15)).is_none());
        cache.insert(ID, AT, 25, 30, frames);
        let times = [9, 10, 22, 30, 31];
        assert_eq!(
            times.map(|time| cache.get(ID, AT, MonoNs(time)).is_some()),
            [false, true, true, true, false]
        );
        cache.insert(ID, AT, 35, 40, others);
        assert_eq!([30, 33, 35].map(|time| cache.get(ID, AT, MonoNs(time)).is_some()), [true, false, true]);
    }

    #[test]
    fn what_was_proven_of_a_time_stays_when_there_is_another_method() {
        let mut cache = MethodCache::new(10);
        let names = [UnknownReason::BadMemory, UnknownReason::NotLogged, UnknownReason::MethodGone]
            .map(|why| unknown(why, None, 0));
        let [first, second, gone] = &names;
        cache.insert(ID, AT, 10, 20, first.clone());
        cache.insert(ID, AT, 25, 30, second.clone());
        cache.insert(ID, AT, 10, 40, gone.clone());
        let shown = [10, 15, 27, 35].map(|time| cache.get(ID, AT, MonoNs(time)).unwrap().result);
        assert_eq!(shown, [first, first, second, gone].map(Clone::clone));
        for at in 50..50 + 2 * ANSWERS as u64 {
            cache.insert(ID, AT, at, at, names[at as usize % 2].clone());
        }
        assert!(cache.get(ID, AT, MonoNs(15)).is_none(), "so many are kept");
    }
}
