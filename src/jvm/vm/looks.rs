//! What was found at addresses of methods when they were last asked about, and since when it is known to be there.

use std::collections::HashMap;
use std::sync::Arc;

use super::methods::MethodInfo;
use crate::sample::MonoNs;

/// Methods that are remembered of one JVM, and the bytes, about, that they may take: then all are forgotten. A warm Scala
/// compiler has some thousand methods that are interpreted.
const MAX_LOOKS: usize = 16 << 10;
const MAX_BYTES: usize = 4 << 20;
/// A method that was not asked about for so long is forgotten, ns, or for up to twice as long: where classes come and go
/// nobody will ask again.
const KEPT: u64 = 300_000_000_000;
/// Names are read anew this often, ns, though nothing says that they are others: nobody counts methods that are redefined.
const RENEWED: u64 = 60_000_000_000;

/// What a `Method*` led to when it was last asked about.
#[derive(Clone, Debug)]
struct MethodLook {
    /// Nothing, if what was there had gone.
    found: Option<MethodInfo>,
    /// It is not known to have been there before.
    since: Option<MonoNs>,
    /// At least so many classes had been unloaded when this one was still there.
    unloaded: u64,
    /// When it was asked about.
    at: MonoNs,
    /// When its names were read.
    read: MonoNs,
}

impl MethodLook {
    /// Memory that it takes, about.
    fn bytes(&self) -> usize {
        self.found.as_ref().map_or(0, |found| found.method.bytes())
    }
}

/// What is known of classes that were unloaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// Since when the method is known to be there, without an earlier look.
    pub(super) since: Option<MonoNs>,
    /// Classes that have been unloaded.
    pub(super) gone: u64,
    /// At least so many had been at the time of the tick that is asked about.
    pub(super) gone_at_tick: u64,
}

/// The looks at the methods of one JVM.
#[derive(Debug, Default)]
pub(super) struct MethodLooks {
    looks: HashMap<u64, MethodLook>,
    bytes: usize,
    /// When those were last forgotten that nobody had asked about.
    thinned: MonoNs,
}

impl MethodLooks {
    /// What was found at a method when it was last asked about, if it is known that it has not gone since: so many classes
    /// have been unloaded.
    pub(super) fn known(&self, method: u64, unloaded: u64, now: MonoNs) -> Option<MethodInfo> {
        let look = self.looks.get(&method)?;
        let holds = look.unloaded == unloaded && now.0 < look.read.0.saturating_add(RENEWED);
        look.found.clone().filter(|_| holds)
    }

    /// Since when it is known to be there, and what it is.
    pub(super) fn last(&self, method: u64) -> Option<(Option<MonoNs>, Option<&MethodInfo>)> {
        self.looks.get(&method).map(|look| (look.since, look.found.as_ref()))
    }

    /// Compares with the last look; returns since when it is known to be as it is now.
    ///
    /// A method can be read after it has gone, until something else comes to its place. It did not go before the tick:
    /// what ran then was it, or had to go before it came.
    pub(super) fn compare(
        &mut self,
        method: u64,
        now: Option<&MethodInfo>,
        Evidence { since, gone, gone_at_tick }: Evidence,
    ) -> Option<MonoNs> {
        let at = MonoNs::now();
        let Some(look) = self.looks.get_mut(&method) else {
            // What never was a method may become one; or it was one, and went with the classes that have gone since.
            if let Some(found) = now {
                let unloaded = gone_at_tick;
                self.insert(method, MethodLook { found: Some(found.clone()), since, unloaded, at, read: at });
            }
            return since;
        };
        if look.found.as_ref() != now {
            self.bytes -= look.bytes();
            *look = MethodLook { found: now.cloned(), since: Some(at), unloaded: gone_at_tick, at, read: at };
            self.bytes += look.bytes();
            return look.since;
        }
        // Something else can have been there in between only if two classes have gone: it, and what was there before.
        if now.is_some() && gone.saturating_sub(look.unloaded) > 1 {
            (look.since, look.unloaded) = (since, gone_at_tick);
        }
        let same = |a: &MethodInfo, b: &MethodInfo| Arc::ptr_eq(&a.method, &b.method);
        if !look.found.as_ref().zip(now).is_some_and(|(a, b)| same(a, b)) {
            (look.found, look.read) = (now.cloned(), at);
        }
        (look.unloaded, look.at) = (look.unloaded.max(gone_at_tick), at);
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

    /// Forgets what nobody asks about any more.
    pub(super) fn thin(&mut self, now: MonoNs) {
        if now.0.saturating_sub(self.thinned.0) < KEPT {
            return;
        }
        let last = std::mem::replace(&mut self.thinned, now);
        self.looks.retain(|_, look| look.at >= last);
        self.looks.shrink_to_fit();
        self.bytes = self.looks.values().map(MethodLook::bytes).sum();
    }

    /// As if all names had been read long ago.
    #[cfg(test)]
    pub(super) fn age(&mut self) {
        self.looks.values_mut().for_each(|look| look.read = MonoNs(0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::allowance::BoundedMemory;
    use super::super::made::{FakeMemory, layout};
    use super::super::methods::MethodReader;
    use super::*;

    #[test]
    fn what_nobody_asks_about_any_more_is_forgotten() {
        let bytes = FakeMemory::made();
        let (used, past) = (bytes.java(0, "used"), bytes.java(1, "past"));
        let memory = BoundedMemory::new(&bytes);
        memory.renew(1 << 20);
        let mut looks = MethodLooks::default();
        let ask = |looks: &mut MethodLooks, method: u64| {
            let found = MethodReader::new(false).at(&memory, &layout(), method).unwrap();
            looks.compare(method, Some(&found), Evidence::default());
        };
        looks.thin(MonoNs::now());
        ask(&mut looks, used);
        ask(&mut looks, past);
        let both = looks.bytes;
        let soon = MonoNs(looks.thinned.0 + KEPT - 1);
        looks.thin(soon);
        assert_eq!(looks.looks.len(), 2);
        looks.thin(MonoNs(soon.0 + 1));
        assert_eq!(looks.looks.len(), 2, "both were asked about since the last time");
        looks.thinned = MonoNs::now();
        ask(&mut looks, used);
        looks.thin(MonoNs(looks.thinned.0 + KEPT));
        assert!(looks.looks.contains_key(&used) && looks.looks.len() == 1);
        assert!(looks.bytes > 0 && looks.bytes < both);
    }
}
