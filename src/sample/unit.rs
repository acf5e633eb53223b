//! What the numbers of an event mean.

/// The unit of an event's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Nanoseconds of CPU time or of waiting.
    Nanoseconds,
    /// A number of events.
    Count,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// The unit's name in formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
        }
    }

    /// The unit with this name in formats. Files of other programs have further units, which are numbers of something.
    #[must_use]
    pub fn named(name: &str) -> Unit {
        match name {
            "nanoseconds" => Unit::Nanoseconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        }
    }
}

/// How many samples of an event are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// One sample for each period of time on each CPU.
    Periodic,
    /// One sample for each period of events, which the source counts.
    OneIn,
    /// As many samples as the programs counted, and those that the kernel skipped and counted.
    Counted,
}
