//! JVMs that did not let the agent be attached to them. None is asked twice, in whatever session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::jvm::{Jvm, Refusal};

/// As many are remembered, of those that have ended too.
const MOST: usize = 4096;

/// Why, by pid and start time. Copies share what they know.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<Mutex<HashMap<(u32, u64), Refusal>>>);

impl Refused {
    /// Why this one refused, if it did.
    pub(super) fn why(&self, jvm: &Jvm) -> Option<Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key(jvm)).cloned()
    }

    pub(super) fn note(&self, jvm: &Jvm, why: &Refusal) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MOST {
            refused.clear();
        }
        refused.insert(key(jvm), why.clone());
    }
}

fn key(jvm: &Jvm) -> (u32, u64) {
    (jvm.process.tgid, jvm.start_ticks)
}
