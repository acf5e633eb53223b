//! The events that can be sampled.

use serde::{Deserialize, Serialize};

/// An event, in the order of `JP_EVENTS` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Time on a CPU.
    #[default]
    Cpu,
    /// Page faults of any kind.
    PageFaults,
    /// Page faults without disk reads: the page was in memory already, or was new.
    MinorFaults,
    /// Page faults that read from a disk.
    MajorFaults,
    /// A CPU switched from one thread to another; the stack is that of the thread that had the CPU before.
    ContextSwitches,
    /// Time in which a thread had no CPU.
    Wait,
}

/// The unit of an event's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of CPU time or of waiting.
    Nanoseconds,
    /// A number of events.
    Count,
}

/// How many samples of an event are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// One sample for each period of time on each CPU.
    Periodic,
    /// One sample for each period of events, which the source counts.
    OneIn,
    /// As many samples as the programs counted: threads wait or do not.
    Counted,
}

/// The name for all time of threads.
const WALL: &str = "wall";

/// The properties of an event. A new event needs an entry in `Event::facts`.
struct Facts {
    name: &'static str,
    /// perf's other name of the event.
    alias: Option<&'static str>,
    title: &'static str,
    unit: Unit,
    expected: Expectation,
}

impl Event {
    /// All events; the index is the event's value in `enum jp_event` of `bpf/abi.h`.
    pub const ALL: [Event; 6] = [
        Event::Cpu,
        Event::PageFaults,
        Event::MinorFaults,
        Event::MajorFaults,
        Event::ContextSwitches,
        Event::Wait,
    ];

    #[rustfmt::skip]
    fn facts(self) -> Facts {
        use Expectation::{Counted, OneIn, Periodic};
        use Unit::{Count, Nanoseconds};
        let (name, alias, title, unit, expected) = match self {
            Event::Cpu => ("cpu", Some("cpu-clock"), "CPU time", Nanoseconds, Periodic),
            Event::PageFaults => ("page-faults", Some("faults"), "page faults", Count, OneIn),
            Event::MinorFaults => ("minor-faults", None, "minor page faults", Count, OneIn),
            Event::MajorFaults => ("major-faults", None, "major page faults", Count, OneIn),
            Event::ContextSwitches => ("context-switches", Some("cs"), "context switches", Count, OneIn),
            Event::Wait => ("wait", Some("off-cpu"), "waiting time", Nanoseconds, Counted),
        };
        Facts { name, alias, title, unit, expected }
    }

    /// The event's name in perf and in all formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The event with this name, or with this other name of perf.
    #[must_use]
    pub fn named(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name || event.facts().alias == Some(name))
    }

    /// The events that a name stands for: one, or `cpu` and `wait` for `wall`.
    #[must_use]
    pub fn all_named(name: &str) -> Option<Vec<Event>> {
        if name == WALL {
            Some(vec![Event::Cpu, Event::Wait])
        } else {
            Event::named(name).map(|one| vec![one])
        }
    }

    /// All names, separated by commas, for messages.
    #[must_use]
    pub fn names() -> String {
        format!("{}, {WALL} (cpu and wait)", Event::ALL.map(Event::name).join(", "))
    }

    /// The unit of the event's weights.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.facts().unit
    }

    /// How many samples of the event are expected.
    #[must_use]
    pub fn expected(self) -> Expectation {
        self.facts().expected
    }

    /// The event's part of a flame graph's title, after the program's name.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.facts().title
    }
}

impl Unit {
    /// The unit's name in formats.
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
        assert_eq!(Event::all_named("wall"), Some(vec![Event::Cpu, Event::Wait]));
        assert_eq!(Event::all_named("off-cpu"), Some(vec![Event::Wait]));
        assert_eq!(Event::all_named("cycles"), None);
    }
}
