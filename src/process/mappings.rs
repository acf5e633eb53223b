//! The executable mappings of one program over time.
//!
//! `munmap` makes no event, so a mapping lasts until another one covers it. Code at an address that is no longer mapped
//! cannot run, so no sample has such an address.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::file::FileRef;
use crate::sample::MonoNs;

/// What is mapped at a range of addresses.
#[derive(Clone, Debug)]
pub(super) enum MappedObject {
    /// A file, from this offset on.
    File(Arc<FileRef>, u64),
    /// Anonymous memory: JIT code, mostly.
    Anonymous,
    /// Anonymous memory with the bytes of this file, from this offset on: [moved code](super::moved).
    Moved(Arc<FileRef>, u64),
    /// A vdso, from this offset on.
    Vdso(Vdso, u64),
}

/// The programs that a vdso is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vdso {
    /// 64-bit programs: the vdso lies near the stack, far above 4 GiB.
    Native,
    /// 32-bit programs: the vdso lies below 4 GiB.
    Compat,
}

impl Vdso {
    /// The vdso that ends here: the kernel places that of 64-bit programs near their stacks, far above 4 GiB.
    pub(super) fn ending_at(end: u64) -> Vdso {
        if end > 1 << 32 { Vdso::Native } else { Vdso::Compat }
    }
}

impl MappedObject {
    /// The same object, `by` bytes further.
    fn advanced(&self, by: u64) -> MappedObject {
        match self {
            MappedObject::File(file, offset) => MappedObject::File(Arc::clone(file), offset.wrapping_add(by)),
            MappedObject::Moved(file, offset) => {
                MappedObject::Moved(Arc::clone(file), offset.wrapping_add(by))
            }
            MappedObject::Anonymous => MappedObject::Anonymous,
            MappedObject::Vdso(vdso, offset) => MappedObject::Vdso(*vdso, offset.wrapping_add(by)),
        }
    }

    /// Whether `other`, beginning `by` bytes further, continues this object.
    fn continues_at(&self, by: u64, other: &MappedObject) -> bool {
        match (self, other) {
            (MappedObject::File(a, at), MappedObject::File(b, offset))
            | (MappedObject::Moved(a, at), MappedObject::Moved(b, offset)) => {
                a.same_file(b) && at.wrapping_add(by) == *offset
            }
            (MappedObject::Anonymous, MappedObject::Anonymous) => true,
            (MappedObject::Vdso(a, at), MappedObject::Vdso(b, offset)) => {
                a == b && at.wrapping_add(by) == *offset
            }
            _ => false,
        }
    }
}

/// A range, and since when it is mapped.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    /// Address after the last.
    pub(super) end: u64,
    pub(super) object: MappedObject,
    /// When the mapping was made.
    pub(super) from: MonoNs,
}

impl Mapping {
    /// The part between two addresses that lie within the mapping.
    fn part(&self, start: u64, end: u64) -> Mapping {
        Mapping { start, end, object: self.object.advanced(start - self.start), from: self.from }
    }

    fn covers(&self, pc: u64) -> bool {
        self.start <= pc && pc < self.end
    }
}

/// The mappings of a program over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// Current mappings by first address. They do not overlap.
    now: BTreeMap<u64, Mapping>,
    /// Mappings that others have covered, and when.
    past: Vec<(Mapping, MonoNs)>,
    /// When the last mapping was made that counts as a change, or a little later: each such mapping gives a greater
    /// time.
    changed: MonoNs,
}

impl Mappings {
    /// Adds a mapping that was made at a time. Mappings that it covers end then. Returns whether it covered anything
    /// but anonymous memory.
    pub(super) fn insert_new(&mut self, new: Mapping) -> bool {
        if new.start >= new.end || self.has(&new) {
            return false;
        }
        let overlapping = self.overlapping(&new);
        let grows = |old: &Mapping| matches!(old.object, MappedObject::Anonymous);
        let replaces = !overlapping.iter().all(grows);
        if replaces || !grows(&new) {
            // A mapping of an older time counts, too: what was found there until now is no longer valid.
            self.changed = new.from.max(MonoNs(self.changed.0.saturating_add(1)));
        }
        for old in overlapping {
            self.now.remove(&old.start);
            if old.start < new.start {
                self.now.insert(old.start, old.part(old.start, new.start));
            }
            if new.end < old.end {
                self.now.insert(new.end, old.part(new.end, old.end));
            }
            let covered = old.part(old.start.max(new.start), old.end.min(new.end));
            if covered.from < new.from {
                self.past.push((covered, new.from));
            }
        }
        self.insert_joined(new);
        replaces
    }

    /// Adds a mapping that was read from `/proc/PID/maps`. As far as is known, it exists since `new.from`. If another
    /// object was known to be there, the mapping counts from the time of reading.
    pub(super) fn insert_read(&mut self, new: Mapping, read_at: MonoNs) {
        if new.start >= new.end || self.has(&new) {
            return;
        }
        let overlapping = self.overlapping(&new);
        // `/proc` shows copied code as anonymous memory.
        let is_copy = |old: &&Mapping| matches!(old.object, MappedObject::Moved(..));
        if let Some(copy) =
            overlapping.iter().find(is_copy).filter(|_| matches!(new.object, MappedObject::Anonymous))
        {
            self.insert_read(Mapping { end: copy.start, ..new.clone() }, read_at);
            self.insert_read(Mapping { start: copy.end, ..new }, read_at);
            return;
        }
        let others = overlapping.iter().any(|old| !consistent(old, &new));
        let from = if others { read_at } else { new.from };
        self.insert_new(Mapping { from, ..new });
    }

    /// Notes that anonymous memory between two addresses has the bytes of a file, as long as that memory is mapped.
    /// Returns whether there is such memory.
    pub(super) fn mark_moved(&mut self, start: u64, end: u64, file: &Arc<FileRef>, offset: u64) -> bool {
        let object = MappedObject::Moved(Arc::clone(file), offset);
        let copy = Mapping { start, end, object, from: MonoNs(0) };
        let mut noted = false;
        for old in self.overlapping(&copy).iter().filter(|old| matches!(old.object, MappedObject::Anonymous))
        {
            let part = copy.part(old.start.max(start), old.end.min(end));
            self.insert_new(Mapping { from: old.from, ..part });
            noted = true;
        }
        noted
    }

    /// The pieces of anonymous memory between two addresses.
    pub(super) fn anonymous(&self, start: u64, end: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.now.range(..start).next_back().map(|(_, mapping)| mapping);
        let within =
            before.into_iter().chain(self.now.range(start..end.max(start)).map(|(_, mapping)| mapping));
        let parts = within.filter(|mapping| matches!(mapping.object, MappedObject::Anonymous));
        parts.map(move |part| part.start.max(start)..part.end.min(end)).filter(|piece| !piece.is_empty())
    }

    /// The parts between two addresses that took the place of other code at time `at` and are not a copy of that code.
    pub(super) fn unrestored_ranges(&self, start: u64, end: u64, at: MonoNs) -> Vec<Range<u64>> {
        let was = |copy: &Mapping| {
            self.past.iter().any(|(old, until)| {
                *until == at && old.start <= copy.start && copy.end <= old.end && is_moved_copy_of(copy, old)
            })
        };
        let (mut others, mut from) = (Vec::new(), start);
        for (_, copy) in
            self.now.range(start..end.max(start)).filter(|(_, copy)| copy.end <= end && was(copy))
        {
            others.push(from..copy.start);
            from = copy.end;
        }
        others.push(from..end);
        others.retain(|part| !part.is_empty());
        others
    }

    /// The mapping of an address at a time.
    pub(super) fn find(&self, pc: u64, at: MonoNs) -> Option<&Mapping> {
        let now = self.now.range(..=pc).next_back().map(|(_, mapping)| mapping);
        if let Some(mapping) = now.filter(|mapping| mapping.covers(pc) && mapping.from <= at) {
            return Some(mapping);
        }
        let was =
            |(mapping, until): &&(Mapping, MonoNs)| mapping.covers(pc) && mapping.from <= at && at < *until;
        self.past.iter().rev().find(was).map(|(mapping, _)| mapping)
    }

    /// When the mappings last changed. A lookup for a time after this one gives the current mapping. New anonymous
    /// memory over anonymous or unmapped memory does not count as a change, because JIT code grows all the time.
    pub(super) fn changed(&self) -> MonoNs {
        self.changed
    }

    /// Number of current and past mappings.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.past.len()
    }

    /// Whether there is anything to [`retire`](Self::retire).
    pub(super) fn has_past(&self) -> bool {
        !self.past.is_empty()
    }

    /// Evicts mappings that were covered before a time.
    pub(super) fn retire(&mut self, before: MonoNs) {
        self.past.retain(|(_, until)| *until >= before);
        self.past.shrink_to(self.past.len() * 2);
    }

    /// Current mappings, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.now.values()
    }

    /// Whether all of `new` is mapped already, as the same object.
    pub(super) fn has(&self, new: &Mapping) -> bool {
        let old = self.now.range(..=new.start).next_back();
        old.is_some_and(|(_, old)| new.end <= old.end && consistent(old, new))
    }

    fn overlapping(&self, new: &Mapping) -> Vec<Mapping> {
        let before = self.now.range(..new.start).next_back().filter(|(_, old)| old.end > new.start);
        let within = self.now.range(new.start..new.end);
        before.into_iter().chain(within).map(|(_, old)| old.clone()).collect()
    }

    /// Inserts a mapping where nothing is any more. If it continues the neighbour before it, both become one: a JIT's
    /// code grows in small steps.
    fn insert_joined(&mut self, new: Mapping) {
        let before = self.now.range_mut(..new.start).next_back().map(|(_, old)| old);
        match before {
            // The joined part seems as old as the neighbour. No harm: nothing ran there before, or the range would not
            // be free.
            Some(old) if old.end == new.start && consistent(old, &new) => {
                let replaced = self.past.iter().any(|(p, _)| p.start < new.end && new.start < p.end);
                if replaced {
                    self.now.insert(new.start, new);
                } else {
                    old.end = new.end;
                }
            }
            _ => {
                self.now.insert(new.start, new);
            }
        }
    }
}

/// Whether `copy`, moved code within the range of `old`, has the same bytes of the same file at the same addresses.
fn is_moved_copy_of(copy: &Mapping, old: &Mapping) -> bool {
    match (&copy.object, &old.object) {
        (MappedObject::Moved(a, offset), MappedObject::File(b, at) | MappedObject::Moved(b, at)) => {
            a.same_file(b) && at.wrapping_add(copy.start - old.start) == *offset
        }
        _ => false,
    }
}

/// Whether two ranges are parts of one mapping of the same object.
fn consistent(a: &Mapping, b: &Mapping) -> bool {
    if a.start <= b.start {
        a.object.continues_at(b.start - a.start, &b.object)
    } else {
        b.object.continues_at(a.start - b.start, &a.object)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are ranges of addresses")]
mod tests {
    use super::super::event::Inode;
    use super::*;
    use std::path::Path;

    fn file(ino: u64) -> Arc<FileRef> {
        let inode = Inode { major: 8, minor: 1, ino, generation: 0 };
        Arc::new(FileRef::new(inode, Arc::from(Path::new("/lib/x.so"))))
    }

    fn mapping(start: u64, end: u64, object: MappedObject, from: u64) -> Mapping {
        Mapping { start, end, object, from: MonoNs(from) }
    }

    fn what(maps: &Mappings, pc: u64, at: u64) -> Option<(u64, u64)> {
        maps.find(pc, MonoNs(at)).map(|m| match &m.object {
            MappedObject::File(file, offset) | MappedObject::Moved(file, offset) => {
                (file.inode().ino, offset + (pc - m.start))
            }
            MappedObject::Anonymous => (0, 0),
            MappedObject::Vdso(_, offset) => (u64::MAX, offset + (pc - m.start)),
        })
    }

    #[test]
    fn a_later_mapping_wins_and_the_earlier_one_is_remembered() {
        let mut maps = Mappings::default();
        assert!(!maps.insert_new(mapping(0x1000, 0x5000, MappedObject::File(file(1), 0x100), 10)));
        assert!(
            maps.insert_new(mapping(0x2000, 0x3000, MappedObject::File(file(2), 0), 20)),
            "in the place of the first"
        );
        assert!(
            !maps.insert_new(mapping(0x2000, 0x3000, MappedObject::File(file(2), 0), 25)),
            "it was there"
        );
        assert_eq!(what(&maps, 0x1fff, 30), Some((1, 0x10ff)));
        assert_eq!(what(&maps, 0x2000, 30), Some((2, 0)));
        assert_eq!(what(&maps, 0x2000, 15), Some((1, 0x1100)));
        assert_eq!(what(&maps, 0x3000, 30), Some((1, 0x2100)));
        assert_eq!(what(&maps, 0x5000, 30), None);
        assert_eq!(what(&maps, 0x1000, 9), None, "not before it was mapped");
        maps.retire(MonoNs(21));
        assert_eq!(what(&maps, 0x2000, 15), None);
        assert_eq!(what(&maps, 0x2000, 30), Some((2, 0)));
    }

    #[test]
    fn each_mapping_is_a_change_also_one_of_an_older_time() {
        let mut maps = Mappings::default();
        let map = |maps: &mut Mappings, ino, from| {
            let before = maps.changed();
            maps.insert_new(mapping(0x1000, 0x5000, MappedObject::File(file(ino), 0), from));
            maps.changed() > before
        };
        assert!(map(&mut maps, 1, 20));
        assert!(map(&mut maps, 2, 20));
        assert!(map(&mut maps, 3, 10));
        assert!(!map(&mut maps, 3, 30), "it was there");
    }

    #[test]
    fn code_that_grows_is_no_change_and_what_comes_over_it_is() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(0x1000, 0x5000, MappedObject::File(file(1), 0), 10));
        let changed = maps.changed();
        maps.insert_new(mapping(0x6000, 0x7000, MappedObject::Anonymous, 20));
        maps.insert_new(mapping(0x6000, 0x8000, MappedObject::Anonymous, 30));
        maps.insert_new(mapping(0x5800, 0x9000, MappedObject::Anonymous, 40));
        assert_eq!(maps.changed(), changed);
        assert_eq!(what(&maps, 0x8fff, 50), Some((0, 0)));
        assert!(maps.insert_new(mapping(0x4000, 0x6000, MappedObject::Anonymous, 60)));
        assert_eq!(maps.changed(), MonoNs(60), "over a file");
        assert!(
            !maps.insert_new(mapping(0x6000, 0x7000, MappedObject::File(file(2), 0), 70)),
            "over no file"
        );
        assert_eq!(maps.changed(), MonoNs(70), "a file over it");
        maps.insert_new(mapping(0xa000, 0xb000, MappedObject::File(file(2), 0), 80));
        assert_eq!(maps.changed(), MonoNs(80), "a file where nothing was");
    }

    #[test]
    fn one_mapping_over_several() {
        let mut maps = Mappings::default();
        for i in 0..4 {
            maps.insert_new(mapping(
                0x1000 * (i + 1),
                0x1000 * (i + 2),
                MappedObject::File(file(i + 1), 0),
                10,
            ));
        }
        maps.insert_new(mapping(0x1800, 0x4800, MappedObject::File(file(9), 0), 20));
        let at_20: Vec<_> = [0x1000, 0x1800, 0x2000, 0x3000, 0x4000, 0x4800]
            .map(|pc| what(&maps, pc, 20).unwrap().0)
            .to_vec();
        assert_eq!(at_20, [1, 9, 9, 9, 9, 4]);
        let at_19: Vec<_> =
            [0x1000, 0x1800, 0x2000, 0x3000, 0x4000].map(|pc| what(&maps, pc, 19).unwrap().0).to_vec();
        assert_eq!(at_19, [1, 1, 2, 3, 4]);
    }

    #[test]
    fn code_that_grows_step_by_step_is_one_mapping() {
        let mut maps = Mappings::default();
        for i in 0..1000 {
            maps.insert_new(mapping(
                0x10_000 + i * 0x1000,
                0x11_000 + i * 0x1000,
                MappedObject::Anonymous,
                i,
            ));
        }
        assert_eq!(maps.len(), 1);
        // The same again, as `mprotect` there and back does.
        maps.insert_new(mapping(0x10_000, 0x11_000, MappedObject::Anonymous, 2000));
        assert_eq!(maps.len(), 1);
    }

    #[test]
    fn growth_does_not_reach_back_over_what_was_there_before() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(0x1000, 0x2000, MappedObject::Anonymous, 1));
        maps.insert_new(mapping(0x2000, 0x3000, MappedObject::File(file(1), 0), 2));
        maps.insert_new(mapping(0x2000, 0x3000, MappedObject::Anonymous, 9));
        assert_eq!(what(&maps, 0x2000, 5), Some((1, 0)));
        assert_eq!(what(&maps, 0x2000, 9), Some((0, 0)));
    }

    #[test]
    fn maps_complete_mappings_from_events() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(0x8000, 0x9000, MappedObject::File(file(1), 0x1000), 50));
        maps.insert_read(mapping(0x8000, 0x9000, MappedObject::File(file(1), 0x1000), 0), MonoNs(90));
        maps.insert_read(mapping(0x1000, 0x2000, MappedObject::File(file(2), 0), 0), MonoNs(90));
        assert_eq!(what(&maps, 0x8000, 40), None, "the event says that it was mapped later");
        assert_eq!(what(&maps, 0x8000, 60), Some((1, 0x1000)));
        assert_eq!(what(&maps, 0x1000, 1), Some((2, 0)), "there since the beginning");
        maps.insert_read(mapping(0x8000, 0x9000, MappedObject::File(file(3), 0), 0), MonoNs(95));
        assert_eq!(what(&maps, 0x8000, 94), Some((1, 0x1000)));
        assert_eq!(what(&maps, 0x8000, 95), Some((3, 0)));
    }

    #[test]
    fn a_copy_holds_since_its_memory_is_there_and_until_something_is_mapped_over_it() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(0x1000, 0x9000, MappedObject::File(file(1), 0x1000), 10));
        maps.insert_new(mapping(0x2000, 0x8000, MappedObject::Anonymous, 20));
        let changed = maps.changed();
        assert!(!maps.mark_moved(0x8000, 0x9000, &file(1), 0x8000), "there is the file");
        assert!(maps.mark_moved(0x3000, 0xa000, &file(1), 0x3000));
        assert!(maps.changed() > changed);
        assert_eq!(what(&maps, 0x3fff, 15), Some((1, 0x3fff)), "the file's own");
        assert_eq!(what(&maps, 0x3fff, 20), Some((1, 0x3fff)));
        assert_eq!(what(&maps, 0x2fff, 20), Some((0, 0)));
        assert_eq!(maps.anonymous(0, u64::MAX).collect::<Vec<_>>(), [0x2000..0x3000]);
        assert_eq!(maps.anonymous(0x2800, 0x2900).collect::<Vec<_>>(), [0x2800..0x2900]);
        // As `/proc` shows it.
        maps.insert_read(mapping(0x2000, 0x8000, MappedObject::Anonymous, 0), MonoNs(30));
        assert_eq!(what(&maps, 0x3fff, 40), Some((1, 0x3fff)));
        assert_eq!(what(&maps, 0x7fff, 40), Some((1, 0x7fff)));
        assert!(maps.insert_new(mapping(0x2000, 0x5000, MappedObject::Anonymous, 50)), "another protection");
        assert_eq!((what(&maps, 0x3fff, 49), what(&maps, 0x3fff, 50)), (Some((1, 0x3fff)), Some((0, 0))));
        assert_eq!(what(&maps, 0x5000, 50), Some((1, 0x5000)));
    }

    #[test]
    fn what_was_covered_is_restored_by_a_copy_of_itself_only() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(0x1000, 0x9000, MappedObject::File(file(1), 0x1000), 10));
        maps.insert_new(mapping(0x2000, 0x8000, MappedObject::Anonymous, 20));
        assert_eq!(maps.unrestored_ranges(0x2000, 0x8000, MonoNs(20)), [0x2000..0x8000]);
        maps.mark_moved(0x3000, 0x5000, &file(1), 0x3000);
        maps.mark_moved(0x6000, 0x7000, &file(1), 0x9000);
        assert_eq!(maps.unrestored_ranges(0x2000, 0x8000, MonoNs(20)), [0x2000..0x3000, 0x5000..0x8000]);
        assert_eq!(
            maps.unrestored_ranges(0x2000, 0x8000, MonoNs(19)),
            [0x2000..0x8000],
            "it was not covered then"
        );
        maps.mark_moved(0x2000, 0x8000, &file(1), 0x2000);
        assert_eq!(maps.unrestored_ranges(0x2000, 0x8000, MonoNs(20)), [0x6000..0x7000]);
    }

    #[test]
    fn extreme_addresses_do_not_overflow() {
        let mut maps = Mappings::default();
        maps.insert_new(mapping(u64::MAX - 1, u64::MAX, MappedObject::File(file(1), u64::MAX), 1));
        maps.insert_new(mapping(0, u64::MAX, MappedObject::Vdso(Vdso::Native, u64::MAX), 2));
        maps.insert_new(mapping(5, 4, MappedObject::Anonymous, 3));
        assert_eq!(what(&maps, u64::MAX, 9), None);
        assert_eq!(maps.find(1, MonoNs(9)).map(|m| m.start), Some(0));
    }
}
