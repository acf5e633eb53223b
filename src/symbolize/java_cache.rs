//! Frames of Java addresses that were asked for before, as long as the code there has not changed.

use std::collections::HashMap;

use super::cache::Cache;
use super::jvms::JavaFrames;
use super::message::Changed;
use crate::process::ProcessId;

/// An address in a code cache; a leaf and a return address are looked up differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) pc: u64,
    pub(crate) leaf: bool,
}

/// Changes are noted for this many bytes at once, as a power of two.
const PAGE_BITS: u32 = 12;
/// Pages with changes that are noted of one JVM: 1 GiB of code. Beyond, all is taken to have changed.
const MAX_PAGES: usize = 256 << 10;

/// When the code of one JVM changed last, in readings of its log.
#[derive(Debug, Default)]
struct Changes {
    now: u64,
    everywhere: u64,
    pages: HashMap<u64, u64>,
}

impl Changes {
    fn note(&mut self, changed: &Changed) {
        self.now += 1;
        let all = match changed {
            Changed::Everywhere => true,
            Changed::Ranges(ranges) => {
                for &(start, end) in ranges {
                    let last = end.saturating_sub(1) >> PAGE_BITS;
                    // The return address of a call at the end of a page lies in the next one.
                    let pages = (start >> PAGE_BITS..=last + 1).take(MAX_PAGES + 1);
                    self.pages.extend(pages.map(|page| (page, self.now)));
                }
                self.pages.len() > MAX_PAGES
            }
        };
        if all {
            self.everywhere = self.now;
            self.pages.clear();
        }
    }

    fn changed_after(&self, pc: u64, then: u64) -> bool {
        self.everywhere > then || self.pages.get(&(pc >> PAGE_BITS)).is_some_and(|&when| when > then)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    frames: JavaFrames,
    /// First time it holds for, ns.
    from: u64,
    /// The reading of the log that it comes from.
    reading: u64,
}

/// Frames by JVM and address.
#[derive(Debug)]
pub(crate) struct JavaCache {
    frames: Cache<(ProcessId, Seen), Entry>,
    changes: HashMap<ProcessId, Changes>,
}

impl JavaCache {
    pub(crate) fn new(capacity: usize) -> JavaCache {
        JavaCache { frames: Cache::new(capacity), changes: HashMap::new() }
    }

    /// The frames of an address at a time, if they are known.
    pub(crate) fn get(&mut self, id: ProcessId, seen: Seen, at: u64) -> Option<JavaFrames> {
        let entry = self.frames.get(&(id, seen))?;
        let changes = self.changes.get(&id)?;
        let holds = at >= entry.from && !changes.changed_after(seen.pc, entry.reading);
        holds.then_some(entry.frames)
    }

    /// Notes an answer that is good from `from` on.
    pub(crate) fn insert(&mut self, id: ProcessId, seen: Seen, from: u64, frames: JavaFrames) {
        let reading = self.changes.entry(id).or_default().now;
        self.frames.insert((id, seen), Entry { frames, from, reading });
    }

    /// The log was read on.
    pub(crate) fn changed(&mut self, id: ProcessId, changed: &Changed) {
        self.changes.entry(id).or_default().note(changed);
    }

    /// Nothing holds any more.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        if let Some(changes) = self.changes.get_mut(&id) {
            changes.note(&Changed::Everywhere);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Why;
    use crate::symbolize::frames::unknown;

    const ID: ProcessId = ProcessId { tgid: 1, start: 2, exec: 3 };

    fn seen(pc: u64) -> Seen {
        Seen { pc, leaf: false }
    }

    #[test]
    fn an_answer_holds_until_its_code_changes() {
        let mut cache = JavaCache::new(100);
        let frames =
            JavaFrames { frames: unknown(Why::NotLogged, None, 0), before_attach: false, lasting: true };
        cache.insert(ID, seen(0x10_0000), 50, frames.clone());
        cache.insert(ID, seen(0x20_0000), 50, frames.clone());
        assert!(cache.get(ID, seen(0x10_0000), 50).is_some());
        assert!(cache.get(ID, seen(0x10_0000), 49).is_none(), "older than the answer");
        assert!(cache.get(ID, Seen { pc: 0x10_0000, leaf: true }, 50).is_none());
        // The call that returns to 0x20_0000 is the last instruction of this code.
        cache.changed(ID, &Changed::Ranges(vec![(0x1f_ff00, 0x20_0000)]));
        assert!(cache.get(ID, seen(0x10_0000), 60).is_some());
        assert!(cache.get(ID, seen(0x20_0000), 60).is_none());
        cache.insert(ID, seen(0x20_0000), 60, frames);
        assert!(cache.get(ID, seen(0x20_0000), 60).is_some());
        cache.changed(ID, &Changed::Everywhere);
        assert!(cache.get(ID, seen(0x10_0000), 60).is_none());
    }

    #[test]
    fn endless_ranges_are_everywhere() {
        let mut changes = Changes::default();
        changes.note(&Changed::Ranges(vec![(0, u64::MAX)]));
        assert!(changes.changed_after(1 << 60, 0));
        assert!(changes.pages.is_empty());
    }
}
