//! The loaders that are never unloaded: the boot, platform and application loaders.
//!
//! The boot loader is that of `java.lang.Object`. Since JDK 9 the other two are the only objects of two classes of the
//! JDK, held by static fields (`jdk.internal.loader.ClassLoaders`). The data of a loader refers to the loader's class
//! (`ClassLoaderData::_class_loader_klass` since JDK 11: one of the words after `_next`). JDK 8 names the application's
//! loader (`SystemDictionary::_java_system_loader`); the platform's is its parent.

use std::collections::VecDeque;

use super::layout::{ClassUnloadLayout, LoaderGraphOffsets, MethodOffsets, SystemLoaderLayout, VmLayout};
use super::loaders::{ClassLinks, PermanentLoader};
use super::methods::class_name;
use crate::jvm::memory::{InvalidMemory, Memory};
use crate::sample::MonoNs;

/// Most loaders of the list that are read. The list begins with the newest.
const MAX_LOADERS: usize = 1 << 17;
/// Loaders at the list's end that are checked: the three permanent loaders are among the oldest.
const MAX_OLDEST: usize = 4096;
/// How often the list is read: a loader that is unloaded meanwhile may lead elsewhere.
const MAX_TRIES: usize = 3;
/// Words after the link to the next loader; one of them is the loader's class.
const WORDS: usize = 4;
/// The classes that have one object each.
const ONLY: [&[u8]; 2] = [
    b"jdk/internal/loader/ClassLoaders$AppClassLoader",
    b"jdk/internal/loader/ClassLoaders$PlatformClassLoader",
];

impl VmLayout {
    /// Whether the loader with this data is never unloaded.
    pub(super) fn is_permanent<M: Memory>(&self, memory: &M, loader: u64) -> bool {
        let ClassUnloadLayout { graph, links, .. } = &self.classes;
        graph
            .zip(*links)
            .is_some_and(|(graph, links)| graph.is_permanent(memory, loader, &links, &self.method))
    }
}

impl LoaderGraphOffsets {
    /// The permanent loaders that exist by now.
    pub(super) fn permanent<M: Memory>(
        &self,
        memory: &M,
        links: &ClassLinks,
        methods: &MethodOffsets,
    ) -> Vec<PermanentLoader> {
        let begun = |loader| {
            let first = links.first_of(memory, loader).ok()?;
            Some(PermanentLoader { loader, first, read_ns: MonoNs::now().0 })
        };
        let boot = self.boot(memory, links);
        let whole = |oldest: &VecDeque<u64>| oldest.back().is_some_and(|&last| boot == Ok(last));
        let oldest = (0..MAX_TRIES).map(|_| self.oldest(memory)).find(whole).unwrap_or_default();
        let stays = |loader: &u64| self.is_permanent(memory, *loader, links, methods);
        let permanent = oldest.into_iter().rev().filter(stays).take(1 + ONLY.len());
        permanent.filter_map(begun).collect()
    }

    /// The oldest loaders, the oldest last.
    fn oldest<M: Memory>(&self, memory: &M) -> VecDeque<u64> {
        let next = |&loader: &u64| memory.word(loader.checked_add(self.next)?).ok().filter(|&next| next != 0);
        let loaders = std::iter::successors(memory.word(self.head).ok().filter(|&head| head != 0), next);
        let mut oldest = VecDeque::new();
        for loader in loaders.take(MAX_LOADERS) {
            if oldest.len() == MAX_OLDEST {
                oldest.pop_front();
            }
            oldest.push_back(loader);
        }
        oldest
    }

    /// The boot loader, which is older than all others.
    fn boot<M: Memory>(&self, memory: &M, links: &ClassLinks) -> Result<u64, InvalidMemory> {
        let object = memory.word(self.object)?;
        memory.word(place(object, links.loader)?)
    }

    /// Whether the loader with this data is one of the three.
    pub(super) fn is_permanent<M: Memory>(
        &self,
        memory: &M,
        loader: u64,
        links: &ClassLinks,
        methods: &MethodOffsets,
    ) -> bool {
        let of = |class: u64| memory.word(place(class, links.loader)?);
        let Ok(boot) = self.boot(memory, links) else { return false };
        let is_only = |class: u64| {
            of(class) == Ok(boot)
                && class_name(memory, methods, class).is_ok_and(|name| ONLY.contains(&name.as_slice()))
        };
        if let Some(SystemLoaderLayout { pointer, field }) = self.system {
            let same = |system| Ok(system != 0 && memory.word(place(loader, field)?)? == system);
            return loader == boot || memory.word(pointer).and_then(same) == Ok(true);
        }
        let mut words = [0; 8 * WORDS];
        let read = place(loader, self.next + 8).and_then(|at| memory.read_all(at, &mut words));
        let mut words = words.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        loader == boot || (read.is_ok() && words.any(is_only))
    }
}

fn place(base: u64, offset: u64) -> Result<u64, InvalidMemory> {
    base.checked_add(offset).ok_or(InvalidMemory)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;

    /// Words; the first read of a loader that was just unloaded leads elsewhere.
    struct Words {
        words: HashMap<u64, u64>,
        gone: Cell<Option<u64>>,
    }

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let misled = self.gone.get() == Some(address);
            if misled {
                self.gone.set(None);
            }
            let word = self.words.get(&address).copied().filter(|_| !misled).unwrap_or(0);
            buffer.fill(0);
            buffer.get_mut(..8).into_iter().for_each(|bytes| bytes.copy_from_slice(&word.to_ne_bytes()));
            buffer.len()
        }
    }

    const GRAPH: LoaderGraphOffsets = LoaderGraphOffsets {
        head: 8,
        next: 16,
        object: 24,
        system: Some(SystemLoaderLayout { pointer: 32, field: 8 }),
    };
    const LINKS: ClassLinks = ClassLinks { loader: 8, first: 0, next: 16, kind: 24 };
    const OBJECT: u64 = 0x800;
    const SYSTEM: u64 = 0x900;

    #[test]
    fn however_many_loaders_there_are_the_first_ones_are_found() {
        let methods = super::super::made::layout().method;
        for (count, found) in [(3, 2), (20_000, 2), (MAX_LOADERS as u64 + 1, 0)] {
            let loader = |n: u64| 0x10_0000 + n * 64;
            let mut words: HashMap<u64, u64> = (1..count).map(|n| (loader(n) + 16, loader(n - 1))).collect();
            // The boot loader is the first, the application's loader the second.
            words.extend([(8, loader(count - 1)), (24, OBJECT), (OBJECT + 8, loader(0))]);
            words.extend([(32, SYSTEM), (loader(1) + 8, SYSTEM)]);
            let memory = Words { words, gone: Cell::new(Some(loader(count / 2) + 16)) };
            let permanent = GRAPH.permanent(&memory, &LINKS, &methods);
            let loaders: Vec<u64> = permanent.iter().map(|permanent| permanent.loader).collect();
            assert_eq!(loaders, [loader(0), loader(1)][..found], "{count}");
        }
    }
}
