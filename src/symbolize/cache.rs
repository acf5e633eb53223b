//! A bounded map that evicts entries that were not used for long.

use std::collections::HashMap;
use std::hash::Hash;

use ahash::RandomState;

use crate::sample::MonoNs;

/// Two generations. When the young one is full, it becomes the old one, and the previous old one is evicted. A lookup
/// moves an entry to the young generation. The cache holds between `capacity` and twice that many entries.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V, RandomState>,
    old: HashMap<K, V, RandomState>,
    capacity: usize,
    /// When entries were last evicted for their age.
    aged: MonoNs,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(capacity: usize) -> Cache<K, V> {
        let aged = MonoNs::default();
        Cache { young: HashMap::default(), old: HashMap::default(), capacity: capacity.max(1), aged }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.get_mut(key).cloned()
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key)?;
            self.insert(key.clone(), value);
        }
        self.young.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity {
            self.rotate();
        }
        self.young.insert(key, value);
    }

    /// Evicts old entries if the previous call that evicted was at least `every` ns ago: entries that were not used since
    /// then. Returns whether it evicted.
    pub(crate) fn age(&mut self, now: MonoNs, every: u64) -> bool {
        let is_time = now.0.saturating_sub(self.aged.0) >= every;
        if is_time {
            self.aged = now;
            self.rotate();
        }
        is_time
    }

    fn rotate(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_entries_are_evicted() {
        let mut cache = Cache::new(10);
        for i in 0..1000 {
            cache.insert(i, i);
            assert_eq!(cache.get(&0), Some(0), "after {i}");
            assert!(cache.len() <= 21);
        }
        assert_eq!(cache.get(&500), None);
        assert_eq!(cache.get(&999), Some(999));
    }

    #[test]
    fn what_is_not_used_from_one_time_to_the_next_goes() {
        let mut cache = Cache::new(10);
        cache.insert('a', 1);
        cache.insert('b', 2);
        cache.age(MonoNs(100), 100);
        assert_eq!(cache.get(&'a'), Some(1));
        cache.age(MonoNs(199), 100);
        assert_eq!(cache.len(), 2, "it is not time yet");
        cache.age(MonoNs(200), 100);
        assert_eq!((cache.get(&'a'), cache.get(&'b'), cache.len()), (Some(1), None, 1));
    }
}
