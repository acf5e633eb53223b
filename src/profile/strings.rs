//! Interned strings. Interning replaces control characters of foreign text, even if the caller did not.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

use super::frame::{clean, is_clean};

/// Maximum characters of a name; the middle of a longer name is cut out.
pub const MAX_NAME: usize = 4096;

/// Number of a string in a [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(u32);

/// Distinct strings; number 0 is the empty string.
#[derive(Clone, Debug)]
pub struct Strings {
    list: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, StrId, RandomState>,
}

impl Default for Strings {
    fn default() -> Strings {
        let mut strings = Strings { list: Vec::new(), ids: HashMap::default() };
        strings.insert("".into());
        strings
    }
}

impl Strings {
    /// The empty string, which every table has.
    pub const EMPTY: StrId = StrId(0);

    /// The number of `text` after cleaning and shortening it; adds the string if it is new.
    pub fn intern(&mut self, text: &Arc<str>) -> StrId {
        if let Some(&id) = self.ids.get(&**text) {
            return id;
        }
        if is_clean(text, MAX_NAME) {
            return self.insert(Arc::clone(text));
        }
        let cleaned = clean(text.as_bytes(), MAX_NAME);
        match self.ids.get(cleaned.as_str()) {
            Some(&id) => id,
            None => self.insert(cleaned.into()),
        }
    }

    fn insert(&mut self, text: Arc<str>) -> StrId {
        let id = StrId(self.list.len() as u32);
        self.list.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The string of a number.
    #[must_use]
    pub fn get(&self, id: StrId) -> &Arc<str> {
        &self.list[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME, Strings};

    #[test]
    fn equal_text_is_one_and_foul_text_is_cleaned() {
        let mut s = Strings::default();
        let a = s.intern(&"a\nb".into());
        assert_eq!(s.intern(&"a?b".into()), a);
        assert_eq!(s.intern(&"a\nb".into()), a);
        assert_eq!(&**s.get(a), "a?b");
        assert_eq!(s.intern(&"".into()), Strings::EMPTY);
        let long = s.intern(&"x".repeat(100_000).into());
        assert_eq!(s.get(long).chars().count(), MAX_NAME);
    }
}
