//! Since when classes are there, concluded from class loaders that were not unloaded.
//!
//! All classes of a loader are unloaded together (`ClassLoaderData::unload`), and each is counted
//! (`ClassLoadingService::notify_class_unloaded`; arrays are not). So a loader that had more classes than were unloaded
//! since is still the same. The boot, platform and application loaders are never unloaded. A loader adds each new class
//! at the front of a list, before any method of the class runs (`ClassLoaderData::add_class`). So every class behind
//! the one that was the first at an earlier look was there at that look. (JDK 8 to 25.)

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::unloads::UnloadHistory;
use crate::jvm::memory::{InvalidMemory, Memory, half_in, word_in};
use crate::sample::MonoNs;

/// Most loaders that are watched.
const MAX_LOADERS: usize = 256;
/// Most classes of a loader that are counted: after as many unloads the loader itself may be gone.
const MAX_COUNTED: usize = 256;
/// Most new classes of one loader that one look reads.
const MAX_NEW: usize = 4096;
/// Most recent classes, all loaders together.
const MAX_YOUNG: usize = 16 << 10;
/// Most classes whose loaders are remembered.
const MAX_LOADER_OF: usize = 16 << 10;
/// How long a class counts as new, ns: as long as questions about a sample may come.
const NEW_CLASS_NS: u64 = 60_000_000_000;

/// Links from a class to the others of its loader; offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassLinks {
    /// In a class: its loader's data.
    pub(super) loader: u64,
    /// In a loader's data: the first of its classes.
    pub(super) first: u64,
    /// In a class: the next class of the loader.
    pub(super) next: u64,
    /// In a class: a number that is negative for array classes.
    pub(super) kind: u64,
}

/// A loader that is never unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PermanentLoader {
    /// The address of its data.
    pub(super) loader: u64,
    /// The first class in its list.
    pub(super) first: u64,
    /// When `first` was read, ns.
    pub(super) read_ns: u64,
}

/// A class in question.
#[derive(Clone, Copy, Debug)]
struct AskedClass {
    loader: u64,
    /// The latest sample in the class.
    at: MonoNs,
}

/// The state of a watched loader.
#[derive(Clone, Copy, Debug)]
struct WatchedLoader {
    permanent: bool,
    /// Since when the loader is known to be there, with the classes behind `first`.
    since: MonoNs,
    first: u64,
    /// Number of classes without arrays, up to `MAX_COUNTED`.
    classes: usize,
    /// The last read of the list failed: its new classes are unknown.
    unread: bool,
}

/// The loaders of the classes in question.
#[derive(Debug, Default)]
pub(super) struct Loaders {
    links: Option<ClassLinks>,
    known: HashMap<u64, WatchedLoader>,
    /// Classes that came after the first look at their loader's list, and since when they are known.
    young: HashMap<u64, MonoNs>,
    /// The loaders of the classes in the current questions.
    asked: HashMap<u64, AskedClass>,
    /// The loaders of classes in earlier questions, until a class is unloaded.
    loader_of: HashMap<u64, u64>,
    /// Number of unloaded classes before the last read of the lists.
    unloaded: u64,
}

impl Loaders {
    pub(super) fn new(links: Option<ClassLinks>, permanent: &[PermanentLoader], unloaded: u64) -> Loaders {
        let known = |&PermanentLoader { loader, first, read_ns }: &PermanentLoader| {
            (
                loader,
                WatchedLoader { permanent: true, since: MonoNs(read_ns), first, classes: 0, unread: false },
            )
        };
        let known = permanent.iter().map(known).collect();
        Loaders { links, known, unloaded, ..Loaders::default() }
    }

    /// Starts a new look, without classes in question.
    pub(super) fn begin_look(&mut self) {
        self.asked.clear();
    }

    /// Notes a class in question, with a sample at `at` in it. Call [`renew`](Self::renew) and
    /// [`watch_new`](Self::watch_new) afterwards.
    pub(super) fn note_class<M: Memory>(&mut self, memory: &M, class: u64, at: MonoNs) {
        let Some(links) = self.links else { return };
        if let Some(asked) = self.asked.get_mut(&class) {
            asked.at = asked.at.max(at);
            return;
        }
        let read = || class.checked_add(links.loader).ok_or(InvalidMemory).and_then(|at| memory.word(at));
        let Ok(loader) = self.loader_of.get(&class).copied().map_or_else(read, Ok) else { return };
        self.asked.insert(class, AskedClass { loader, at });
        if self.loader_of.len() < MAX_LOADER_OF {
            self.loader_of.insert(class, loader);
        }
    }

    /// Reads the lists again. The class unloads up to the end of the read decide which earlier results hold: `unloads`
    /// is renewed before and after.
    pub(super) fn renew<M: Memory>(&mut self, memory: &M, unloads: &mut UnloadHistory) {
        unloads.renew(memory);
        let Some(links) = self.links else { return };
        let before = unloads.count();
        let lists: Vec<(u64, Result<NewClasses, InvalidMemory>)> = self
            .known
            .iter()
            .map(|(&loader, known)| (loader, links.new_classes(memory, loader, known.first)))
            .collect();
        unloads.renew(memory);
        let gone = unloads.count().saturating_sub(self.unloaded);
        if gone > 0 {
            self.loader_of.clear();
        }
        let now = MonoNs::now();
        self.young.retain(|_, since| now.0 < since.0.saturating_add(NEW_CLASS_NS));
        for (loader, list) in lists {
            self.update_loader(loader, list, gone, now);
        }
        self.unloaded = before;
    }

    /// Begins to watch the loaders of the classes in question; `stays`: whether a loader is never unloaded.
    pub(super) fn watch_new<M: Memory>(
        &mut self,
        memory: &M,
        unloads: &mut UnloadHistory,
        stays: impl Fn(u64) -> bool,
    ) {
        let Some(links) = self.links else { return };
        let mut latest_samples: HashMap<u64, MonoNs> = HashMap::new();
        for &AskedClass { loader, at } in self.asked.values() {
            let latest = latest_samples.entry(loader).or_default();
            *latest = at.max(*latest);
        }
        for (loader, at) in latest_samples {
            if !self.known.contains_key(&loader) {
                self.watch(memory, links, unloads, loader, at, stays(loader));
            }
        }
    }

    /// Since when this class is known to be there, if it was noted before the last [`renew`](Self::renew).
    pub(super) fn since(&self, class: u64) -> Option<MonoNs> {
        let known = self.known.get(&self.asked.get(&class)?.loader).filter(|known| !known.unread)?;
        Some(self.young.get(&class).map_or(known.since, |&young| young.max(known.since)))
    }

    /// Applies what a loader's list shows.
    fn update_loader(
        &mut self,
        loader: u64,
        list: Result<NewClasses, InvalidMemory>,
        gone: u64,
        now: MonoNs,
    ) {
        let Some(known) = self.known.get_mut(&loader) else { return };
        let stayed = known.permanent || known.classes as u64 > gone;
        known.unread = list.is_err();
        match list {
            Ok(NewClasses { first, added: Some(added) })
                if stayed && self.young.len() + added.len() <= MAX_YOUNG =>
            {
                known.first = first;
                let counted = added.iter().filter(|new| !new.is_array).count();
                known.classes = known.classes.saturating_add(counted).min(MAX_COUNTED);
                self.young.extend(added.into_iter().map(|new| (new.class, now)));
            }
            // Every class that is there now is believed from now on.
            Ok(NewClasses { first, .. }) if known.permanent => (known.first, known.since) = (first, now),
            Err(InvalidMemory) if known.permanent => {}
            _ => drop(self.known.remove(&loader)),
        }
    }

    /// Begins to watch a loader, if the loader is still there. An unloaded loader can be read until its memory is reused,
    /// so a successful read is no proof. At the sample `at`, either a class of this loader ran, or a class of an earlier
    /// loader ran that had this address before. Unloading a loader unloads all its classes. So the loader is still there
    /// if fewer classes were unloaded since the sample than the loader has.
    fn watch<M: Memory>(
        &mut self,
        memory: &M,
        links: ClassLinks,
        unloads: &mut UnloadHistory,
        loader: u64,
        at: MonoNs,
        permanent: bool,
    ) {
        if self.known.len() >= MAX_LOADERS {
            // A loader that is needed is added again.
            self.known.retain(|_, known| known.permanent);
        }
        let Ok((first, classes)) = links.count(memory, loader) else { return };
        let since = MonoNs::now();
        unloads.renew(memory);
        let gone = unloads.count().saturating_sub(unloads.at_least(at));
        if permanent || classes as u64 > gone {
            self.known.insert(loader, WatchedLoader { permanent, since, first, classes, unread: false });
        }
    }
}

/// A class that was added to a list.
#[derive(Clone, Copy, Debug)]
struct AddedClass {
    class: u64,
    is_array: bool,
}

/// What was added to the list of a loader's classes.
struct NewClasses {
    /// The first class in the list.
    first: u64,
    /// The classes before the one that was first; `None` if that class was not found.
    added: Option<Vec<AddedClass>>,
}

impl ClassLinks {
    /// The first class of a loader.
    pub(super) fn first_of<M: Memory>(&self, memory: &M, loader: u64) -> Result<u64, InvalidMemory> {
        memory.word(loader.checked_add(self.first).ok_or(InvalidMemory)?)
    }

    /// The classes before `last`, which was the first.
    fn new_classes<M: Memory>(
        &self,
        memory: &M,
        loader: u64,
        last: u64,
    ) -> Result<NewClasses, InvalidMemory> {
        let first = self.first_of(memory, loader)?;
        let (mut added, mut class) = (Vec::new(), first);
        while class != last {
            // The end of the list: a class that was never finished has left it.
            if class == 0 || added.len() >= MAX_NEW {
                return Ok(NewClasses { first, added: None });
            }
            let (next, is_array) = self.step(memory, loader, class)?;
            added.push(AddedClass { class, is_array });
            class = next;
        }
        Ok(NewClasses { first, added: Some(added) })
    }

    /// The first class of a loader, and the number of its classes without arrays, up to `MAX_COUNTED`.
    fn count<M: Memory>(&self, memory: &M, loader: u64) -> Result<(u64, usize), InvalidMemory> {
        let first = self.first_of(memory, loader)?;
        let (mut class, mut classes) = (first, 0);
        for _ in 0..MAX_COUNTED {
            if class == 0 {
                break;
            }
            let (next, is_array) = self.step(memory, loader, class)?;
            classes += usize::from(!is_array);
            class = next;
        }
        Ok((first, classes))
    }

    /// The class after this one, and whether this one is an array class. The class must refer to this loader.
    fn step<M: Memory>(&self, memory: &M, loader: u64, class: u64) -> Result<(u64, bool), InvalidMemory> {
        let size = self.loader.max(self.next).max(self.kind) + 8;
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| InvalidMemory)?];
        memory.read_all(class, &mut bytes)?;
        if word_in(&bytes, self.loader)? != loader {
            return Err(InvalidMemory);
        }
        Ok((word_in(&bytes, self.next)?, half_in(&bytes, self.kind)?.cast_signed() < 0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, FakeMemory};
    use super::super::unloads::UnloadCounter;
    use super::*;

    const UNLOADED: u64 = 0x3000;
    const LINKS: ClassLinks = ClassLinks { loader: 16, first: 0, next: 24, kind: 32 };
    const LOADER: u64 = BASE + 0x4000;

    /// A loader that is never unloaded.
    const STAYS: u64 = BASE + 0x4800;

    fn load(bytes: &FakeMemory, number: u64) -> u64 {
        let class = 0x5000 + number * 64;
        bytes.word(class + 16, LOADER);
        bytes.word(class + 24, bytes.get(LOADER - BASE));
        bytes.word(LOADER - BASE, BASE + class);
        BASE + class
    }

    /// Since when classes are known to be there.
    fn look(
        bytes: &FakeMemory,
        loaders: &mut Loaders,
        unloads: &mut UnloadHistory,
        classes: &[u64],
    ) -> Vec<Option<MonoNs>> {
        look_after(bytes, MonoNs::now(), loaders, unloads, classes)
    }

    /// The same, for samples at that time.
    fn look_after(
        bytes: &FakeMemory,
        at: MonoNs,
        loaders: &mut Loaders,
        unloads: &mut UnloadHistory,
        classes: &[u64],
    ) -> Vec<Option<MonoNs>> {
        loaders.begin_look();
        classes.iter().for_each(|&class| loaders.note_class(&bytes, class, at));
        loaders.renew(&bytes, unloads);
        loaders.watch_new(&bytes, unloads, |loader| loader == STAYS);
        classes.iter().map(|&class| loaders.since(class)).collect()
    }

    fn begin(permanent: &[PermanentLoader]) -> (FakeMemory, Loaders, UnloadHistory) {
        let bytes = FakeMemory::made();
        let unloads = UnloadCounter::read(&&bytes, BASE + UNLOADED).unwrap();
        (bytes, Loaders::new(Some(LINKS), permanent, 0), UnloadHistory::new(unloads))
    }

    #[test]
    fn a_class_of_a_permanent_loader_is_there_since_it_came_whatever_goes() {
        let (bytes, _, mut unloads) = begin(&[]);
        let old = load(&bytes, 0);
        let boot = PermanentLoader { loader: LOADER, first: old, read_ns: 5 };
        let mut loaders = Loaders::new(Some(LINKS), &[boot], 0);
        let new = load(&bytes, 1);
        let before = MonoNs::now();
        for round in 1..4 {
            bytes.word(UNLOADED, round * 1000);
            let since = look(&bytes, &mut loaders, &mut unloads, &[old, new]);
            assert_eq!(since[0], Some(MonoNs(5)));
            assert!(since[1].is_some_and(|since| since > before), "{since:?}");
        }
        let first = look(&bytes, &mut loaders, &mut unloads, &[new]);
        load(&bytes, 2);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[new]), first);
        // A class that came while the list could not be read does not count as old.
        bytes.word(LOADER - BASE, 7);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[old]), [None]);
        bytes.word(LOADER - BASE, new);
        let (newest, before) = (load(&bytes, 3), MonoNs::now());
        let since = look(&bytes, &mut loaders, &mut unloads, &[old, newest]);
        assert!(since[1].is_some_and(|since| since > before), "{since:?}");
        // The earlier first class has left the list: every class there is believed from now on.
        bytes.word(LOADER - BASE, new);
        let now = MonoNs::now();
        assert!(look(&bytes, &mut loaders, &mut unloads, &[old])[0].is_some_and(|since| since > now));
    }

    #[test]
    fn another_loader_is_the_same_while_fewer_classes_go_than_it_had() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        let classes = [load(&bytes, 0), load(&bytes, 1), load(&bytes, 2)];
        let array = load(&bytes, 3);
        bytes.half(array - BASE + 32, 0x8000_0000);
        let first = look(&bytes, &mut loaders, &mut unloads, &classes);
        assert!(first.iter().all(Option::is_some));
        bytes.word(UNLOADED, 2);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &classes), first);
        // The loader may be gone, and one with more classes in its place: those do not count for it.
        bytes.word(UNLOADED, 5);
        load(&bytes, 4);
        let now = MonoNs::now();
        let later = look(&bytes, &mut loaders, &mut unloads, &classes);
        assert!(later.iter().all(|since| since.is_some_and(|since| since > now)), "{later:?}");
    }

    #[test]
    fn a_loader_that_may_be_unloaded_is_not_watched() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        let classes = [load(&bytes, 0), load(&bytes, 1)];
        let before = MonoNs::now();
        bytes.word(UNLOADED, 2);
        assert_eq!(look_after(&bytes, before, &mut loaders, &mut unloads, &classes), [None, None]);
        assert_eq!(look_after(&bytes, before, &mut loaders, &mut unloads, &classes), [None, None]);
        assert!(loaders.known.is_empty());
        // The loader has one class more than were unloaded.
        let classes = [classes[0], load(&bytes, 2)];
        assert!(look_after(&bytes, before, &mut loaders, &mut unloads, &classes).iter().all(Option::is_some));
    }

    #[test]
    fn a_permanent_loader_is_recognized_at_first_sight() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        let class = load(&bytes, 0);
        bytes.word(class - BASE + 16, STAYS);
        bytes.word(STAYS - BASE, class);
        let first = look(&bytes, &mut loaders, &mut unloads, &[class]);
        bytes.word(UNLOADED, 1000);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[class]), first);
    }

    #[test]
    fn lists_that_make_no_sense_prove_nothing() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        let class = load(&bytes, 0);
        // A class of another loader, a list without end, and an invalid address.
        let other = load(&bytes, 1);
        bytes.word(other - BASE + 16, LOADER + 8);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[class]), [None]);
        bytes.word(other - BASE + 16, LOADER);
        bytes.word(class - BASE + 24, other);
        bytes.word(UNLOADED, MAX_COUNTED as u64);
        assert_eq!(
            look(&bytes, &mut loaders, &mut unloads, &[class]),
            [None],
            "as many have gone as are counted"
        );
        let now = MonoNs::now();
        let endless = look(&bytes, &mut loaders, &mut unloads, &[class]);
        assert!(endless[0].is_some_and(|since| since > now));
        bytes.word(class - BASE + 24, 7);
        bytes.word(LOADER - BASE, u64::MAX);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[class]), [None]);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[u64::MAX, 0]), [None, None]);
    }

    #[test]
    fn only_so_many_loaders_are_watched() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        for number in 0..3 * MAX_LOADERS as u64 {
            let class = 0x8_0000 + number * 128;
            let loader = class + 64;
            bytes.word(class + 16, BASE + loader);
            bytes.word(loader, BASE + class);
            assert!(look(&bytes, &mut loaders, &mut unloads, &[BASE + class])[0].is_some());
            assert!(loaders.known.len() <= MAX_LOADERS);
        }
    }
}
