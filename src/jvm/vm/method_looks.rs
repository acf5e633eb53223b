//! The last look at each interpreted method, and since when the method is known to be there.

use std::collections::HashMap;
use std::sync::Arc;

use super::methods::MethodInfo;
use crate::sample::MonoNs;

/// Most methods that are remembered of one JVM, and the bytes, about, that they may take: then all are forgotten. A
/// warm Scala compiler has some thousand interpreted methods.
const MAX_LOOKS: usize = 16 << 10;
const MAX_BYTES: usize = 4 << 20;
/// A method is forgotten when no question came for so long, ns, at the latest after twice that time. Where classes come
/// and go the question may never come again.
const KEPT_NS: u64 = 300_000_000_000;
/// Names are read again after so long, ns, even without a class unload: no counter shows that a method was redefined.
const REREAD_AFTER_NS: u64 = 60_000_000_000;

/// The result of the last look at a `Method*`.
#[derive(Clone, Debug)]
struct MethodLook {
    /// `None` if the method was gone.
    found: Option<MethodInfo>,
    /// The method is not known to have been there before this time.
    since: Option<MonoNs>,
    /// The method was still there when at least so many classes had been unloaded.
    unloaded: u64,
    /// When the look was.
    at: MonoNs,
    /// When the names were read.
    read: MonoNs,
}

impl MethodLook {
    fn bytes(&self) -> usize {
        self.found.as_ref().map_or(0, |found| found.method.bytes())
    }
}

/// Facts about class unloads, for one question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnloadEvidence {
    /// Since when the method is known to be there, without an earlier look.
    pub(super) since: Option<MonoNs>,
    /// Number of unloaded classes now.
    pub(super) gone: u64,
    /// Lower bound of that number at the time of the sample in question.
    pub(super) gone_at_sample: u64,
}

/// The looks at the methods of one JVM.
#[derive(Debug, Default)]
pub(super) struct MethodLooks {
    looks: HashMap<u64, MethodLook>,
    bytes: usize,
    /// When methods without questions were last forgotten.
    thinned: MonoNs,
}

/// A method as the last look found it.
pub(super) struct KnownMethod<'l> {
    /// Since when the method is known to be there.
    pub(super) since: Option<MonoNs>,
    pub(super) method: Option<&'l MethodInfo>,
}

impl MethodLooks {
    /// The result of the last look at `method`, if it still holds: the number of unloaded classes is still `unloaded`,
    /// and the names were read recently.
    pub(super) fn known(&self, method: u64, unloaded: u64, now: MonoNs) -> Option<MethodInfo> {
        let look = self.looks.get(&method)?;
        let holds = look.unloaded == unloaded && now.0 < look.read.0.saturating_add(REREAD_AFTER_NS);
        look.found.clone().filter(|_| holds)
    }

    /// The state of a method at its last look.
    pub(super) fn last(&self, method: u64) -> Option<KnownMethod<'_>> {
        let look = self.looks.get(&method)?;
        Some(KnownMethod { since: look.since, method: look.found.as_ref() })
    }

    /// Compares the method with the last look; returns since when it is known to be as it is now.
    ///
    /// A freed method can be read until its memory is reused. But the method that is read now was not freed before the
    /// sample: either this method ran at the sample, or another method ran there, which had to be freed before this
    /// method could get its address.
    pub(super) fn compare(
        &mut self,
        method: u64,
        now: Option<&MethodInfo>,
        UnloadEvidence { since, gone, gone_at_sample }: UnloadEvidence,
    ) -> Option<MonoNs> {
        let at = MonoNs::now();
        let Some(look) = self.looks.get_mut(&method) else {
            // An address without a method is not remembered. A method may come there, or was freed with the classes
            // unloaded since.
            if let Some(found) = now {
                let unloaded = gone_at_sample;
                self.insert(method, MethodLook { found: Some(found.clone()), since, unloaded, at, read: at });
            }
            return since;
        };
        if look.found.as_ref() != now {
            self.bytes -= look.bytes();
            *look =
                MethodLook { found: now.cloned(), since: Some(at), unloaded: gone_at_sample, at, read: at };
            self.bytes += look.bytes();
            return look.since;
        }
        // Another method can have been there in between only if two classes were unloaded: its own, and that of the
        // method before.
        if now.is_some() && gone.saturating_sub(look.unloaded) > 1 {
            (look.since, look.unloaded) = (since, gone_at_sample);
        }
        let same = |a: &MethodInfo, b: &MethodInfo| Arc::ptr_eq(&a.method, &b.method);
        if !look.found.as_ref().zip(now).is_some_and(|(a, b)| same(a, b)) {
            (look.found, look.read) = (now.cloned(), at);
        }
        (look.unloaded, look.at) = (look.unloaded.max(gone_at_sample), at);
        look.since
    }

    fn insert(&mut self, method: u64, look: MethodLook) {
        let bytes = look.bytes();
        if self.looks.len() >= MAX_LOOKS || self.bytes + bytes > MAX_BYTES {
            self.looks.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.looks.insert(method, look);
    }

    /// Forgets methods without recent questions.
    pub(super) fn evict_unused(&mut self, now: MonoNs) {
        if now.0.saturating_sub(self.thinned.0) < KEPT_NS {
            return;
        }
        let last = std::mem::replace(&mut self.thinned, now);
        self.looks.retain(|_, look| look.at >= last);
        self.looks.shrink_to_fit();
        self.bytes = self.looks.values().map(MethodLook::bytes).sum();
    }

    /// Makes all names look as if they were read long ago.
    #[cfg(test)]
    pub(super) fn age(&mut self) {
        self.looks.values_mut().for_each(|look| look.read = MonoNs(0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounded_memory::BoundedMemory;
    use super::super::made::{FakeMemory, layout};
    use super::super::methods::MethodReader;
    use super::*;

    #[test]
    fn unused_methods_are_evicted() {
        let bytes = FakeMemory::made();
        let (used, past) = (bytes.java(0, "used"), bytes.java(1, "past"));
        let memory = BoundedMemory::new(&bytes);
        memory.renew(1 << 20);
        let mut looks = MethodLooks::default();
        let ask = |looks: &mut MethodLooks, method: u64| {
            let found = MethodReader::new(false).at(&memory, &layout(), method).unwrap();
            looks.compare(method, Some(&found), UnloadEvidence::default());
        };
        looks.evict_unused(MonoNs::now());
        ask(&mut looks, used);
        ask(&mut looks, past);
        let both = looks.bytes;
        let soon = MonoNs(looks.thinned.0 + KEPT_NS - 1);
        looks.evict_unused(soon);
        assert_eq!(looks.looks.len(), 2);
        looks.evict_unused(MonoNs(soon.0 + 1));
        assert_eq!(looks.looks.len(), 2, "both were asked about since the last time");
        looks.thinned = MonoNs::now();
        ask(&mut looks, used);
        looks.evict_unused(MonoNs(looks.thinned.0 + KEPT_NS));
        assert!(looks.looks.contains_key(&used) && looks.looks.len() == 1);
        assert!(looks.bytes > 0 && looks.bytes < both);
    }
}
