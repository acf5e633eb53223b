//! An event with its period.

use super::Event;

/// An event to sample, and what one of its samples stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPeriod {
    /// What is sampled.
    pub event: Event,
    /// Nanoseconds of CPU time or of waiting, a number of occurrences, or bytes: the unit is that of the event.
    pub period: u64,
}
