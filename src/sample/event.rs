//! What is sampled.

use serde::{Deserialize, Serialize};

/// An event, in the order of `JP_EVENTS` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Time on a CPU.
    #[default]
    Cpu,
    /// Memory that was touched and was not there.
    PageFaults,
    /// Of those, what was in memory already, or was new.
    MinorFaults,
    /// Of those, what was read from a disk.
    MajorFaults,
    /// A CPU that went from one thread to another one: who had it before.
    ContextSwitches,
}

/// What a weight is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// A number of events.
    Count,
}

/// How many samples of an event there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// One for each period of time of each CPU.
    Periodic,
    /// One for so many of the events, which the source counts.
    OneIn,
}

/// What is known of an event: all that a new one needs here.
struct Facts {
    name: &'static str,
    /// Another name by which perf knows it.
    alias: Option<&'static str>,
    title: &'static str,
    unit: Unit,
    expected: Expectation,
}

impl Event {
    /// Every event.
    pub const ALL: [Event; 5] =
        [Event::Cpu, Event::PageFaults, Event::MinorFaults, Event::MajorFaults, Event::ContextSwitches];

    #[rustfmt::skip]
    fn facts(self) -> Facts {
        use Expectation::{OneIn, Periodic};
        use Unit::{Count, Nanoseconds};
        let (name, alias, title, unit, expected) = match self {
            Event::Cpu => ("cpu", Some("cpu-clock"), "CPU time", Nanoseconds, Periodic),
            Event::PageFaults => ("page-faults", Some("faults"), "page faults", Count, OneIn),
            Event::MinorFaults => ("minor-faults", None, "minor page faults", Count, OneIn),
            Event::MajorFaults => ("major-faults", None, "major page faults", Count, OneIn),
            Event::ContextSwitches => ("context-switches", Some("cs"), "context switches", Count, OneIn),
        };
        Facts { name, alias, title, unit, expected }
    }

    /// Its name: perf's, and the one in every format.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The event of a name, or of another one by which perf knows it.
    #[must_use]
    pub fn named(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name || event.facts().alias == Some(name))
    }

    /// Every name, for people.
    #[must_use]
    pub fn names() -> String {
        Event::ALL.map(Event::name).join(", ")
    }

    /// What its weights are in.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.facts().unit
    }

    /// How many samples of it there should be.
    #[must_use]
    pub fn expected(self) -> Expectation {
        self.facts().expected
    }

    /// What a picture of it shows, after the program's name.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.facts().title
    }
}

impl Unit {
    /// Its name in formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Count => "count",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn names_lead_back() {
        for event in Event::ALL {
            assert_eq!(Event::named(event.name()), Some(event));
            assert_eq!(serde_json::to_string(&event).unwrap(), format!("\"{}\"", event.name()));
        }
        assert_eq!(Event::named("cs"), Some(Event::ContextSwitches));
        assert_eq!(Event::named("cycles"), None);
    }
}
