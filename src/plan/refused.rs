//! JVMs that refuse the agent: later sessions do not attach to them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::jvm::{Jvm, Refusal};

/// Refusals that are remembered, those of JVMs that have ended included.
const MAX_REFUSALS: usize = 4096;

/// Refusals by pid and start time. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub struct PermanentRefusals(Arc<Mutex<HashMap<(u32, u64), Refusal>>>);

impl PermanentRefusals {
    /// The refusal of a JVM, if there was one.
    pub(crate) fn refusal_of(&self, jvm: &Jvm) -> Option<Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key(jvm)).cloned()
    }

    /// Remembers a refusal that is permanent. The next session may ask a JVM again that was only slow or stopped.
    pub(crate) fn record_if_permanent(&self, jvm: &Jvm, why: &Refusal) {
        if !is_permanent(why) {
            return;
        }
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_REFUSALS {
            refused.clear();
        }
        refused.insert(key(jvm), why.clone());
    }
}

fn is_permanent(why: &Refusal) -> bool {
    match why {
        Refusal::AttachDisabled
        | Refusal::AgentLoadingDisabled
        | Refusal::NoexecTmp
        | Refusal::TmpNotWritable
        | Refusal::NotLoaded(_)
        | Refusal::NoLog
        | Refusal::KnownCrash(_)
        | Refusal::UnknownVersion
        | Refusal::NotHotSpot
        | Refusal::ZeroVm
        | Refusal::LayoutUnknown => true,
        Refusal::SignalNotCaught
        | Refusal::NoThreads
        | Refusal::Blocked
        | Refusal::TimedOut
        | Refusal::Interrupted
        | Refusal::Stopped
        | Refusal::Exited
        | Refusal::NoAnswer
        | Refusal::NotPermitted
        | Refusal::HelperStuck
        | Refusal::OutOfResources(_)
        | Refusal::HelperFailed(_) => false,
    }
}

fn key(jvm: &Jvm) -> (u32, u64) {
    (jvm.process.tgid, jvm.start_ticks)
}
