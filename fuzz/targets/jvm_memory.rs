//! A JVM's memory, in which some words are wrong: tables of its library, its code heap, compiled methods, classes. Half
//! of the words change while the memory is read. The bytes are counters of a JVM's pauses, too.

use std::ops::Range;

use jbpf_prof::jvm::pauses::PauseCounters;
use jbpf_prof::jvm::vm::made::{BASE, FakeMemory, jvm, read};

/// A wrong value: the index of a byte that is read, size and kind of the value, its bytes.
type Lie = [u8; 11];

fn plant(bytes: &FakeMemory, used: &[Range<u64>], lies: &[Lie]) {
    let length: u64 = used.iter().map(|range| range.end - range.start).sum();
    for [low, high, form, value @ ..] in lies {
        let mut place = u64::from(u16::from_le_bytes([*low, *high])) % length;
        let Some(range) = used.iter().find(|range| {
            let inside = place < range.end - range.start;
            place -= if inside { 0 } else { range.end - range.start };
            inside
        }) else {
            continue;
        };
        let mut value = u64::from_le_bytes(*value);
        if form & 4 != 0 {
            value = value.wrapping_add(BASE);
        }
        bytes.put(range.start + place, &value.to_ne_bytes()[..1 << (form & 3)]);
    }
}

pub(crate) fn run(data: &[u8]) {
    let (bytes, used) = jvm();
    let (before, after) = data.as_chunks().0.split_at(data.len() / 11 / 2);
    plant(&bytes, &used, before);
    read(&bytes, |bytes| plant(bytes, &used, after));
    let _ = PauseCounters::parse(data);
}
