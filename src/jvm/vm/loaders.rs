//! Since when classes are there: those of loaders that have stayed.
//!
//! The classes of a loader go all at once (`ClassLoaderData::unload`), and each is counted
//! (`ClassLoadingService::notify_class_unloaded`; arrays are not). So a loader that had more classes than have gone since is
//! still the same; the boot loader and those of platform and application never go. A loader has its classes in a list to
//! which each is added in front when it is made, before any method of it runs (`ClassLoaderData::add_class`): what lies
//! behind the one that was the first at an earlier look was there at that look. (JDK 8 to 25.)

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::unloads::UnloadHistory;
use crate::jvm::memory::{Memory, Nonsense, half_in, word_in};
use crate::sample::MonoNs;

/// Loaders that are watched.
const MAX_LOADERS: usize = 256;
/// Classes of a loader that are counted: if as many go at a time, it may be among them.
const MAX_COUNTED: usize = 256;
/// New classes of one loader that are gone through at one look.
const MAX_NEW: usize = 4096;
/// Classes that came lately, all loaders together.
const MAX_YOUNG: usize = 16 << 10;
/// Classes whose loaders are remembered.
const MAX_MET: usize = 16 << 10;
/// How long it is known of a class that it is new, ns: as long as a tick may be asked about.
const YOUNG: u64 = 60_000_000_000;

/// From a class to those of the same loader; offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassLinks {
    /// In a class: its loader's data.
    pub(super) loader: u64,
    /// In that: the first of its classes.
    pub(super) first: u64,
    /// In a class: the next one.
    pub(super) next: u64,
    /// In a class: a number that is negative in those of arrays.
    pub(super) kind: u64,
}

/// A loader that never goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Permanent {
    /// Its data.
    pub(super) loader: u64,
    /// The first in its list of classes.
    pub(super) first: u64,
    /// When that was read, ns.
    pub(super) at: u64,
}

/// The loader of a class that is asked about.
#[derive(Clone, Copy, Debug)]
struct Met {
    loader: u64,
    /// The latest tick in the class.
    at: MonoNs,
}

/// What is known of a loader.
#[derive(Clone, Copy, Debug)]
struct Loader {
    permanent: bool,
    /// It is known to be there since then, with what lies behind `first`.
    since: MonoNs,
    first: u64,
    /// Its classes without arrays, counted as far as it matters.
    classes: usize,
    /// Its list could not be read the last time: what is new in it is not known.
    unread: bool,
}

/// The loaders of the classes that were asked about.
#[derive(Debug, Default)]
pub(super) struct Loaders {
    links: Option<ClassLinks>,
    known: HashMap<u64, Loader>,
    /// Classes that came after the first look at their loader's list, and since when they are known.
    young: HashMap<u64, MonoNs>,
    /// The loaders of the classes that are asked about now.
    asked: HashMap<u64, Met>,
    /// Those of classes that were asked about before, as long as no class goes.
    met: HashMap<u64, u64>,
    /// Classes that had been unloaded before the lists were read the last time.
    unloaded: u64,
}

impl Loaders {
    pub(super) fn new(links: Option<ClassLinks>, permanent: &[Permanent], unloaded: u64) -> Loaders {
        let known = |&Permanent { loader, first, at }: &Permanent| {
            (loader, Loader { permanent: true, since: MonoNs(at), first, classes: 0, unread: false })
        };
        let known = permanent.iter().map(known).collect();
        Loaders { links, known, unloaded, ..Loaders::default() }
    }

    /// Begins with a look: nothing is asked about yet.
    pub(super) fn begin(&mut self) {
        self.asked.clear();
    }

    /// Notes that this class was met, in whose place something ran `at` that time; to be followed by
    /// [`renew`](Self::renew) and [`watch_met`](Self::watch_met).
    pub(super) fn note_class<M: Memory>(&mut self, memory: &M, class: u64, at: MonoNs) {
        let Some(links) = self.links else { return };
        if let Some(met) = self.asked.get_mut(&class) {
            met.at = met.at.max(at);
            return;
        }
        let read = || class.checked_add(links.loader).ok_or(Nonsense).and_then(|at| memory.word(at));
        let Ok(loader) = self.met.get(&class).copied().map_or_else(read, Ok) else { return };
        self.asked.insert(class, Met { loader, at });
        if self.met.len() < MAX_MET {
            self.met.insert(class, loader);
        }
    }

    /// Looks at the lists again. What was read before is judged by what has been unloaded by then: `unloads` is renewed
    /// before and after.
    pub(super) fn renew<M: Memory>(&mut self, memory: &M, unloads: &mut UnloadHistory) {
        unloads.renew(memory);
        let Some(links) = self.links else { return };
        let before = unloads.count();
        let lists: Vec<(u64, Result<News, Nonsense>)> = self
            .known
            .iter()
            .map(|(&loader, known)| (loader, links.news(memory, loader, known.first)))
            .collect();
        unloads.renew(memory);
        let gone = unloads.count().saturating_sub(self.unloaded);
        if gone > 0 {
            self.met.clear();
        }
        let now = MonoNs::now();
        self.young.retain(|_, since| now.0 < since.0.saturating_add(YOUNG));
        for (loader, news) in lists {
            self.take(loader, news, gone, now);
        }
        self.unloaded = before;
    }

    /// Watches the loaders of the classes that were met from now on; `stays` tells of one whether it never goes.
    pub(super) fn watch_met<M: Memory>(
        &mut self,
        memory: &M,
        unloads: &mut UnloadHistory,
        stays: impl Fn(u64) -> bool,
    ) {
        let Some(links) = self.links else { return };
        let mut met: HashMap<u64, MonoNs> = HashMap::new();
        for &Met { loader, at } in self.asked.values() {
            let latest = met.entry(loader).or_default();
            *latest = at.max(*latest);
        }
        for (loader, at) in met {
            if !self.known.contains_key(&loader) {
                self.watch(memory, (links, unloads), (loader, at), stays(loader));
            }
        }
    }

    /// Since when this class is known to be there, if it was met before the last [`renew`](Self::renew).
    pub(super) fn since(&self, class: u64) -> Option<MonoNs> {
        let known = self.known.get(&self.asked.get(&class)?.loader).filter(|known| !known.unread)?;
        Some(self.young.get(&class).map_or(known.since, |&young| young.max(known.since)))
    }

    /// Takes in what a loader has loaded.
    fn take(&mut self, loader: u64, news: Result<News, Nonsense>, gone: u64, now: MonoNs) {
        let Some(known) = self.known.get_mut(&loader) else { return };
        let stayed = known.permanent || known.classes as u64 > gone;
        known.unread = news.is_err();
        match news {
            Ok((first, Some(came))) if stayed && self.young.len() + came.len() <= MAX_YOUNG => {
                known.first = first;
                let counted = came.iter().filter(|new| !new.is_array).count();
                known.classes = known.classes.saturating_add(counted).min(MAX_COUNTED);
                self.young.extend(came.into_iter().map(|new| (new.class, now)));
            }
            // All that is there now is believed from now on.
            Ok((first, _)) if known.permanent => (known.first, known.since) = (first, now),
            Err(Nonsense) if known.permanent => {}
            _ => drop(self.known.remove(&loader)),
        }
    }

    /// Begins with a loader that was met. Its memory can be read when it has gone, too, until something else is written
    /// there. It did not go before the tick `at`: what ran then was a class of it, or one that had to go before this one
    /// came to its place. So it has not gone if fewer classes have gone since than it has.
    fn watch<M: Memory>(
        &mut self,
        memory: &M,
        (links, unloads): (ClassLinks, &mut UnloadHistory),
        (loader, at): (u64, MonoNs),
        permanent: bool,
    ) {
        if self.known.len() >= MAX_LOADERS {
            // One that is needed comes again.
            self.known.retain(|_, known| known.permanent);
        }
        let Ok((first, classes)) = links.count(memory, loader) else { return };
        let since = MonoNs::now();
        unloads.renew(memory);
        let gone = unloads.count().saturating_sub(unloads.at_least(at));
        if permanent || classes as u64 > gone {
            self.known.insert(loader, Loader { permanent, since, first, classes, unread: false });
        }
    }
}

/// A class that came to a list.
#[derive(Clone, Copy, Debug)]
struct New {
    class: u64,
    is_array: bool,
}

/// The first in a list, and what lies before the one that was the first; nothing, if that was not met.
type News = (u64, Option<Vec<New>>);

impl ClassLinks {
    /// The first class of a loader.
    pub(super) fn first_of<M: Memory>(&self, memory: &M, loader: u64) -> Result<u64, Nonsense> {
        memory.word(loader.checked_add(self.first).ok_or(Nonsense)?)
    }

    /// What is there before `last`, which was the first.
    fn news<M: Memory>(&self, memory: &M, loader: u64, last: u64) -> Result<News, Nonsense> {
        let first = self.first_of(memory, loader)?;
        let (mut came, mut class) = (Vec::new(), first);
        while class != last {
            // The end: a class that was never finished has left the list.
            if class == 0 || came.len() >= MAX_NEW {
                return Ok((first, None));
            }
            let (next, is_array) = self.step(memory, loader, class)?;
            came.push(New { class, is_array });
            class = next;
        }
        Ok((first, Some(came)))
    }

    /// The first class of a loader, and how many it has, without arrays, as far as it matters.
    fn count<M: Memory>(&self, memory: &M, loader: u64) -> Result<(u64, usize), Nonsense> {
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

    /// The class after this one, and whether this is one of arrays. It must say that it is of this loader.
    fn step<M: Memory>(&self, memory: &M, loader: u64, class: u64) -> Result<(u64, bool), Nonsense> {
        let size = self.loader.max(self.next).max(self.kind) + 8;
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| Nonsense)?];
        memory.read_all(class, &mut bytes)?;
        if word_in(&bytes, self.loader)? != loader {
            return Err(Nonsense);
        }
        Ok((word_in(&bytes, self.next)?, half_in(&bytes, self.kind)?.cast_signed() < 0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, FakeMemory};
    use super::super::unloads::Unloads;
    use super::*;

    const UNLOADED: u64 = 0x3000;
    const LINKS: ClassLinks = ClassLinks { loader: 16, first: 0, next: 24, kind: 32 };
    const LOADER: u64 = BASE + 0x4000;

    /// One that never goes.
    const STAYS: u64 = BASE + 0x4800;

    /// Adds a class to the list of [`LOADER`].
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
        look_after((bytes, MonoNs::now()), loaders, unloads, classes)
    }

    /// The same, of ticks at that time.
    fn look_after(
        (bytes, at): (&FakeMemory, MonoNs),
        loaders: &mut Loaders,
        unloads: &mut UnloadHistory,
        classes: &[u64],
    ) -> Vec<Option<MonoNs>> {
        loaders.begin();
        classes.iter().for_each(|&class| loaders.note_class(&bytes, class, at));
        loaders.renew(&bytes, unloads);
        loaders.watch_met(&bytes, unloads, |loader| loader == STAYS);
        classes.iter().map(|&class| loaders.since(class)).collect()
    }

    fn begin(permanent: &[Permanent]) -> (FakeMemory, Loaders, UnloadHistory) {
        let bytes = FakeMemory::made();
        let unloads = Unloads::at(&&bytes, BASE + UNLOADED).unwrap();
        (bytes, Loaders::new(Some(LINKS), permanent, 0), UnloadHistory::new(unloads))
    }

    #[test]
    fn a_class_of_a_permanent_loader_is_there_since_it_came_whatever_goes() {
        let (bytes, _, mut unloads) = begin(&[]);
        let old = load(&bytes, 0);
        let boot = Permanent { loader: LOADER, first: old, at: 5 };
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
        // What came while the list could not be read is not taken for old.
        bytes.word(LOADER - BASE, 7);
        assert_eq!(look(&bytes, &mut loaders, &mut unloads, &[old]), [None]);
        bytes.word(LOADER - BASE, new);
        let (newest, before) = (load(&bytes, 3), MonoNs::now());
        let since = look(&bytes, &mut loaders, &mut unloads, &[old, newest]);
        assert!(since[1].is_some_and(|since| since > before), "{since:?}");
        // The class that was the first one has left the list: what is there is believed from now on.
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
        // It may have gone, and one with more classes come to its place: they do not count for it.
        bytes.word(UNLOADED, 5);
        load(&bytes, 4);
        let now = MonoNs::now();
        let later = look(&bytes, &mut loaders, &mut unloads, &classes);
        assert!(later.iter().all(|since| since.is_some_and(|since| since > now)), "{later:?}");
    }

    #[test]
    fn a_loader_that_may_have_gone_before_it_was_met_is_not_watched() {
        let (bytes, mut loaders, mut unloads) = begin(&[]);
        let classes = [load(&bytes, 0), load(&bytes, 1)];
        let before = MonoNs::now();
        bytes.word(UNLOADED, 2);
        let ticks = (&bytes, before);
        assert_eq!(look_after(ticks, &mut loaders, &mut unloads, &classes), [None, None]);
        assert_eq!(look_after(ticks, &mut loaders, &mut unloads, &classes), [None, None]);
        assert!(loaders.known.is_empty());
        // It has one more than have gone.
        let classes = [classes[0], load(&bytes, 2)];
        assert!(look_after(ticks, &mut loaders, &mut unloads, &classes).iter().all(Option::is_some));
    }

    #[test]
    fn a_permanent_loader_is_known_as_such_when_it_is_met() {
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
        // Of another loader, without end, and nowhere.
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
