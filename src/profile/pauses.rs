//! How often and how long JVMs stood still: in all, and by the second.

use serde::{Deserialize, Serialize};

/// How often and how long a JVM stood still in one second of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseMark {
    /// Process id of the JVM.
    pub pid: u32,
    /// Number of the second since the begin of the profile.
    pub second: u16,
    /// The pauses in this second.
    pub totals: PauseTotals,
}

/// How often and how long a JVM stood still, as the JVM counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseTotals {
    /// Safepoints: times at which all Java threads stood still.
    pub safepoints: u64,
    /// Time until all threads stood still and in which they did, microseconds.
    pub safepoint_usec: u64,
    /// Garbage collections; of collectors that run beside the program, each of their pauses.
    pub collections: u64,
    /// Time of the collections, microseconds.
    pub collection_usec: u64,
}

impl PauseTotals {
    /// The sum of two times.
    #[must_use]
    pub fn plus(self, other: PauseTotals) -> PauseTotals {
        PauseTotals {
            safepoints: self.safepoints.saturating_add(other.safepoints),
            safepoint_usec: self.safepoint_usec.saturating_add(other.safepoint_usec),
            collections: self.collections.saturating_add(other.collections),
            collection_usec: self.collection_usec.saturating_add(other.collection_usec),
        }
    }
}
