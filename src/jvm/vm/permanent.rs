//! The loaders that never go: the boot loader, and those of platform and application.
//!
//! The boot loader is that of `java.lang.Object`. From JDK 9 on the other two are the only objects of two classes of the
//! JDK, held by static fields (`jdk.internal.loader.ClassLoaders`), and the data of a loader says of which class it is
//! (`ClassLoaderData::_class_loader_klass` since JDK 11: one of the words after `_next`). JDK 8 says which is the
//! application's (`SystemDictionary::_java_system_loader`), whose parent is the other.

use serde::{Deserialize, Serialize};

use super::layout::Methods;
use super::loaders::{ClassLinks, Permanent};
use super::methods::class_name;
use crate::jvm::memory::{Memory, Nonsense};
use crate::process::MonoNs;

/// Loaders that are gone through: these three were among the first, which come last.
const MAX_LOADERS: usize = 4096;
/// Words after the link to the next loader of which one is the loader's class.
const WORDS: usize = 4;
/// The classes that have one object each.
const ONLY: [&[u8]; 2] = [
    b"jdk/internal/loader/ClassLoaders$AppClassLoader",
    b"jdk/internal/loader/ClassLoaders$PlatformClassLoader",
];

/// Where loaders are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Graph {
    /// Address of the pointer to the newest one's data; in that, where the next one is.
    pub(super) head: u64,
    pub(super) next: u64,
    /// Address of the pointer to the class of all objects.
    pub(super) object: u64,
    /// JDK 8: address of the pointer to the application's loader, and where its data has the same one.
    pub(super) system: Option<(u64, u64)>,
}

impl Graph {
    /// Those that are there by now.
    pub(super) fn permanent<M: Memory>(
        &self,
        memory: &M,
        links: &ClassLinks,
        methods: &Methods,
    ) -> Vec<Permanent> {
        let next = |&loader: &u64| memory.word(loader.checked_add(self.next)?).ok().filter(|&next| next != 0);
        let loaders = std::iter::successors(memory.word(self.head).ok().filter(|&head| head != 0), next);
        let begun = |loader| {
            let first = links.first_of(memory, loader).ok()?;
            Some(Permanent { loader, first, at: MonoNs::now().0 })
        };
        let stays = |loader: &u64| self.is_permanent(memory, *loader, links, methods);
        loaders.take(MAX_LOADERS).filter(stays).filter_map(begun).collect()
    }

    /// Whether the loader with this data is one of the three.
    pub(super) fn is_permanent<M: Memory>(
        &self,
        memory: &M,
        loader: u64,
        links: &ClassLinks,
        methods: &Methods,
    ) -> bool {
        let of = |class: u64| memory.word(place(class, links.loader)?);
        let Ok(boot) = memory.word(self.object).and_then(of) else { return false };
        let is_only = |class: u64| {
            of(class) == Ok(boot)
                && class_name(memory, methods, class).is_ok_and(|name| ONLY.contains(&name.as_slice()))
        };
        if let Some((system, field)) = self.system {
            let same = |system| Ok(system != 0 && memory.word(place(loader, field)?)? == system);
            return loader == boot || memory.word(system).and_then(same) == Ok(true);
        }
        let mut words = [0; 8 * WORDS];
        let read = place(loader, self.next + 8).and_then(|at| memory.read_all(at, &mut words));
        let mut words = words.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        loader == boot || (read.is_ok() && words.any(is_only))
    }
}

fn place(base: u64, offset: u64) -> Result<u64, Nonsense> {
    base.checked_add(offset).ok_or(Nonsense)
}
