//! The number of classes that a JVM has unloaded: a counter in its performance data (runtime/perfMemory.hpp,
//! perfData.hpp, services/classLoadingService.cpp; the same from JDK 8 to 25). `-XX:-UsePerfData` switches it off.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::jvm::memory::{InvalidMemory, Memory, half_in};
use crate::sample::MonoNs;

const NAME: &[u8] = b"java.cls.unloadedClasses\0";
/// Most entries of performance data. JDK 25 has about 300.
const MAX_ENTRIES: u32 = 4096;
/// Most bytes of an entry up to the end of its name.
const MAX_HEAD: usize = 128;
/// Values of the counter that are remembered: the counter changes at most a few times more than once a second.
const MAX_VALUES: usize = 128;

/// Where performance data is described.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerfData {
    /// Address of the pointer to the data.
    pub(super) start: u64,
    /// At the start of the data: the offset of the first entry, and the number of entries.
    pub(super) first: u64,
    pub(super) count: u64,
    /// In an entry: its length, and the offsets of its name and its value.
    pub(super) length: u64,
    pub(super) name: u64,
    pub(super) value: u64,
}

/// The counter and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnloadCounter {
    address: u64,
    /// Number of unloaded classes.
    pub(super) count: u64,
    /// Since when the counter has this value; ns.
    since: u64,
}

impl UnloadCounter {
    /// Finds the counter and reads it.
    pub(super) fn find<M: Memory>(memory: &M, layout: &PerfData) -> Result<UnloadCounter, InvalidMemory> {
        let data = memory.word(layout.start)?;
        let place = |base: u64, offset: u64| base.checked_add(offset).ok_or(InvalidMemory);
        let number = |address: u64| {
            let mut bytes = [0; 4];
            memory.read_all(address, &mut bytes).map(|()| u32::from_ne_bytes(bytes))
        };
        let count = number(place(data, layout.count)?)?.min(MAX_ENTRIES);
        let mut entry = place(data, u64::from(number(place(data, layout.first)?)?))?;
        for _ in 0..count {
            let mut head = [0; MAX_HEAD];
            let got = memory.read(entry, &mut head);
            let head = head.get(..got).ok_or(InvalidMemory)?;
            let name = usize::try_from(half_in(head, layout.name)?).map_err(|_| InvalidMemory)?;
            if head.get(name..).is_some_and(|name| name.starts_with(NAME)) {
                let address = place(entry, u64::from(half_in(head, layout.value)?))?;
                return UnloadCounter::read(memory, address);
            }
            let length = half_in(head, layout.length)?;
            entry = place(entry, u64::from(length)).ok().filter(|_| length > 0).ok_or(InvalidMemory)?;
        }
        Err(InvalidMemory)
    }

    /// Reads the counter at this address.
    pub(super) fn read<M: Memory>(memory: &M, address: u64) -> Result<UnloadCounter, InvalidMemory> {
        let count = memory.word(address)?;
        // The counter starts at 0.
        let since = if count == 0 { 0 } else { MonoNs::now().0 };
        Ok(UnloadCounter { address, count, since })
    }

    /// Reads the counter again.
    pub(super) fn renew<M: Memory>(&mut self, memory: &M) {
        if let Ok(count) = memory.word(self.address)
            && count != self.count
        {
            (self.count, self.since) = (count, MonoNs::now().0);
        }
    }

    /// The time since which no class was unloaded.
    pub(super) fn since(&self) -> MonoNs {
        MonoNs(self.since)
    }
}

/// The counter, with its earlier values.
#[derive(Clone, Debug)]
pub(super) struct UnloadHistory {
    unloads: UnloadCounter,
    /// Values, and when each was seen for the first time; the oldest first, never empty.
    seen: VecDeque<(MonoNs, u64)>,
}

impl UnloadHistory {
    pub(super) fn new(unloads: UnloadCounter) -> UnloadHistory {
        UnloadHistory { unloads, seen: [(unloads.since(), unloads.count)].into() }
    }

    /// Reads the counter again.
    pub(super) fn renew<M: Memory>(&mut self, memory: &M) {
        let before = self.unloads.count;
        self.unloads.renew(memory);
        if self.unloads.count != before {
            if self.seen.len() == MAX_VALUES {
                self.seen.pop_front();
            }
            self.seen.push_back((self.unloads.since(), self.unloads.count));
        }
    }

    /// The counter's value when it was last read.
    pub(super) fn count(&self) -> u64 {
        self.unloads.count
    }

    /// Since when the counter has its value.
    pub(super) fn since(&self) -> MonoNs {
        self.unloads.since()
    }

    /// A lower bound of the counter at `time`: 0 if `time` is before all remembered values.
    pub(super) fn at_least(&self, time: MonoNs) -> u64 {
        self.seen.iter().rev().find(|(seen, _)| *seen <= time).map_or(0, |&(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, FakeMemory};
    use super::*;

    #[test]
    fn a_time_has_the_count_that_was_seen_before_it() {
        let bytes = FakeMemory::made();
        let mut history = UnloadHistory::new(UnloadCounter::read(&&bytes, BASE + POINTER).unwrap());
        let first = MonoNs::now();
        assert_eq!([history.count(), history.at_least(first)], [0, 0]);
        bytes.word(POINTER, 5);
        assert_eq!(history.at_least(MonoNs::now()), 0, "it was not read yet");
        history.renew(&&bytes);
        let second = MonoNs::now();
        assert_eq!([history.count(), history.at_least(first), history.at_least(second)], [5, 0, 5]);
        for count in 6..6 + MAX_VALUES as u64 {
            bytes.word(POINTER, count);
            history.renew(&&bytes);
        }
        assert_eq!(history.seen.len(), MAX_VALUES);
        assert_eq!(history.at_least(second), 0, "that is forgotten");
    }

    const POINTER: u64 = 0x300;
    const DATA: u64 = 0x1000;
    const LAYOUT: PerfData =
        PerfData { start: BASE + POINTER, first: 24, count: 28, length: 0, name: 4, value: 16 };

    /// Performance data with these counters.
    fn data(names: &[&str]) -> FakeMemory {
        let bytes = FakeMemory::made();
        bytes.word(POINTER, BASE + DATA);
        bytes.half(DATA + 24, 32);
        bytes.half(DATA + 28, u32::try_from(names.len()).unwrap());
        for (place, name) in (0..).zip(names) {
            let entry = DATA + 32 + place * 64;
            for (field, value) in [(0, 64), (4, 20), (16, 56)] {
                bytes.half(entry + field, value);
            }
            bytes.text(entry + 20, name);
            bytes.word(entry + 56, place + 1);
        }
        bytes
    }

    #[test]
    fn the_counter_is_found_and_renewed() {
        let bytes =
            data(&["java.cls.loadedClasses", "java.cls.unloadedClassesX", "java.cls.unloadedClasses"]);
        let mut unloads = UnloadCounter::find(&&bytes, &LAYOUT).unwrap();
        assert_eq!(unloads.count, 3);
        let before = unloads;
        unloads.renew(&&bytes);
        assert_eq!(unloads, before);
        bytes.word(DATA + 32 + 2 * 64 + 56, 4);
        unloads.renew(&&bytes);
        assert_eq!(unloads.count, 4);
        assert!(unloads.since() > before.since());
    }

    #[test]
    fn data_without_the_counter_or_without_sense_has_none() {
        assert_eq!(UnloadCounter::find(&&data(&["a"]), &LAYOUT), Err(InvalidMemory));
        assert_eq!(UnloadCounter::find(&&FakeMemory::made(), &LAYOUT), Err(InvalidMemory));
        let endless = data(&["a"]);
        endless.half(DATA + 28, u32::MAX);
        endless.half(DATA + 32, 0);
        assert_eq!(UnloadCounter::find(&&endless, &LAYOUT), Err(InvalidMemory));
        endless.half(DATA + 32, u32::MAX);
        assert_eq!(UnloadCounter::find(&&endless, &LAYOUT), Err(InvalidMemory));
        let name = data(&["java.cls.unloadedClasses"]);
        name.half(DATA + 32 + 4, u32::MAX);
        assert_eq!(UnloadCounter::find(&&name, &LAYOUT), Err(InvalidMemory));
    }
}
