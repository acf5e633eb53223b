//! The events that can be sampled.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::counter::NamedCounter;
use super::dynamic_event::{DynamicEvent, EventDescription, EventOrigin};
use super::probe::{InvalidProbe, Probe};
use super::unit::{Expectation, Unit};

/// An event. The first ones have numbers in the BPF program, in the order of `JP_EVENTS` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Bytes of objects that Java code allocated.
    Alloc,
    /// Bytes by which the resident memory of processes grew.
    Rss,
    /// Bytes that native code asked its allocator for.
    NativeAlloc,
    /// A counter, a probe, or an event of a file, by its name.
    Dynamic(DynamicEvent),
}

/// Bytes between two samples of allocations.
const ALLOCATION_INTERVAL: u64 = 512 << 10;

/// The bytes of growth that a sample stands for: a page of most machines.
const PAGE: u64 = 4096;

/// The name for all time of threads.
const WALL: &str = "wall";

/// Why a text names no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownEvent {
    /// No event has this name.
    #[error("unknown event; known events are {}", Event::names())]
    Name,
    /// The text begins as a probe and is none.
    #[error(transparent)]
    Probe(#[from] InvalidProbe),
}

/// An event that a text names, which need not be an event of this run of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventName {
    /// An event with a number of its own.
    Fixed(Event),
    /// A counter or a probe.
    Dynamic(EventDescription),
}

impl EventName {
    /// Reads the name of an event that can be sampled. Unlike [`Event::parse`] this keeps nothing, so that a stranger may
    /// choose the text.
    ///
    /// # Errors
    /// Why there is none.
    pub fn parse(name: &str) -> Result<EventName, UnknownEvent> {
        let fixed = |event: &Event| event.name() == name || event.facts().aliases.contains(&name);
        if let Some(event) = Event::FIXED.into_iter().find(fixed) {
            return Ok(EventName::Fixed(event));
        }
        let (name, origin) = match (NamedCounter::named(name), Probe::parse(name)?) {
            (Some(counter), _) => (counter.name, EventOrigin::Counter(counter.counter)),
            (None, Some(probe)) => (probe.to_string(), EventOrigin::Probe(probe)),
            (None, None) => return Err(UnknownEvent::Name),
        };
        Ok(EventName::Dynamic(EventDescription { name, unit: Unit::Count, origin }))
    }

    /// Whether this is the name of the event.
    #[must_use]
    pub fn names(&self, event: Event) -> bool {
        match (self, event) {
            (EventName::Fixed(fixed), _) => *fixed == event,
            (EventName::Dynamic(description), Event::Dynamic(of)) => of.description() == description,
            (EventName::Dynamic(_), _) => false,
        }
    }
}

/// The properties of an event. A new event needs an entry in `Event::facts`.
struct Facts {
    name: &'static str,
    /// perf's other names of the event.
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    expected: Expectation,
}

impl Event {
    /// The events with numbers of their own; the index is the event's value in `enum jp_event` of `bpf/abi.h`.
    pub const FIXED: [Event; 9] = [
        Event::Cpu,
        Event::PageFaults,
        Event::MinorFaults,
        Event::MajorFaults,
        Event::ContextSwitches,
        Event::Wait,
        Event::Alloc,
        Event::Rss,
        Event::NativeAlloc,
    ];

    #[rustfmt::skip]
    fn facts(self) -> Facts {
        use Expectation::{Counted, OneIn, Periodic};
        use Unit::{Bytes, Count, Nanoseconds};
        let (name, aliases, title, unit, expected): (_, &[&str], _, _, _) = match self {
            Event::Cpu => ("cpu", &["cpu-clock", "task-clock"], "CPU time", Nanoseconds, Periodic),
            Event::PageFaults => ("page-faults", &["faults"], "page faults", Count, OneIn),
            Event::MinorFaults => ("minor-faults", &[], "minor page faults", Count, OneIn),
            Event::MajorFaults => ("major-faults", &[], "major page faults", Count, OneIn),
            Event::ContextSwitches => ("context-switches", &["cs"], "context switches", Count, OneIn),
            Event::Wait => ("wait", &["off-cpu"], "waiting time", Nanoseconds, Counted),
            Event::Alloc => ("alloc", &[], "Java allocations", Bytes, Counted),
            Event::Rss => ("rss", &[], "growth of memory", Bytes, Counted),
            Event::NativeAlloc => ("native-alloc", &[], "native allocations", Bytes, Counted),
            Event::Dynamic(event) => {
                let EventDescription { name, unit, origin } = event.description();
                (name, &[], name, *unit, if matches!(origin, EventOrigin::Counter(_)) { OneIn } else { Counted })
            }
        };
        Facts { name, aliases, title, unit, expected }
    }

    /// The event's name in perf and in all formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The event that a user or a file of ours names.
    ///
    /// # Errors
    /// Why there is none.
    pub fn parse(name: &str) -> Result<Event, UnknownEvent> {
        let description = match EventName::parse(name)? {
            EventName::Fixed(event) => return Ok(event),
            EventName::Dynamic(description) => description,
        };
        DynamicEvent::of(description).map(Event::Dynamic).ok_or(UnknownEvent::Name)
    }

    /// The event with this name and unit in a file: one that can be sampled, or else an event of the file. `None` if
    /// there are too many or the name is too long.
    #[must_use]
    pub fn stored(name: &str, unit: Unit) -> Option<Event> {
        let known = Event::parse(name).ok().filter(|event| event.unit() == unit);
        known.or_else(|| Event::foreign(name, unit))
    }

    fn foreign(name: &str, unit: Unit) -> Option<Event> {
        let description = EventDescription { name: name.to_owned(), unit, origin: EventOrigin::File };
        DynamicEvent::of(description).map(Event::Dynamic)
    }

    /// The events that a name stands for: one, or `cpu` and `wait` for `wall`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn all_named(name: &str) -> Result<Vec<Event>, UnknownEvent> {
        if name == WALL { Ok(vec![Event::Cpu, Event::Wait]) } else { Ok(vec![Event::parse(name)?]) }
    }

    /// The most used names, separated by commas, for messages.
    #[must_use]
    pub fn names() -> String {
        let fixed = Event::FIXED.map(Event::name).join(", ");
        format!("{fixed}, {WALL} (cpu and wait), and those that 'jbpf-prof events' lists")
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

    /// Whether the event is of allocations, which are sampled by bytes.
    #[must_use]
    pub fn allocates(self) -> bool {
        matches!(self, Event::Alloc | Event::NativeAlloc)
    }

    /// Whether all occurrences are in user mode, with no frame of the kernel.
    #[must_use]
    pub fn is_in_user_mode(self) -> bool {
        let is_in_file = |origin: &EventOrigin| {
            matches!(origin, EventOrigin::Probe(Probe::Function { .. } | Probe::Marker { .. }))
        };
        self.allocates() || self.origin().is_some_and(is_in_file)
    }

    /// Where the samples of an event without a number of its own come from.
    #[must_use]
    pub fn origin(self) -> Option<&'static EventOrigin> {
        if let Event::Dynamic(event) = self { Some(&event.description().origin) } else { None }
    }

    /// How many occurrences, or bytes, a sample stands for unless the user says it.
    #[must_use]
    pub fn usual_period(self) -> u64 {
        match (self, self.origin()) {
            (event, _) if event.allocates() => ALLOCATION_INTERVAL,
            (Event::Rss, _) => PAGE,
            (_, Some(EventOrigin::Counter(counter))) => counter.usual_period(),
            _ => 1,
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The unit of an event that can be sampled is known by its name; that of another one is taken as a number.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
        let name = String::deserialize(deserializer)?;
        let event = Event::parse(&name).ok().or_else(|| Event::foreign(&name, Unit::Count));
        event.ok_or_else(|| de::Error::custom("too many events"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for event in Event::FIXED {
            assert_eq!(Event::parse(event.name()), Ok(event));
            assert_eq!(serde_json::to_string(&event).unwrap(), format!("\"{}\"", event.name()));
            assert_eq!(Event::stored(event.name(), event.unit()), Some(event));
        }
        let heap = Event::stored("alloc_space", Unit::Bytes).unwrap();
        assert_eq!((heap.name(), heap.unit(), heap.usual_period()), ("alloc_space", Unit::Bytes, 1));
        assert_eq!(
            serde_json::from_str::<Event>("\"sched:sched_switch\"").unwrap().name(),
            "sched:sched_switch"
        );
        assert_eq!(Event::parse("cs"), Ok(Event::ContextSwitches));
        assert_eq!(Event::parse("task-clock"), Ok(Event::Cpu));
        assert_eq!(Event::parse("unknown"), Err(UnknownEvent::Name));
        assert_eq!(Event::all_named("wall"), Ok(vec![Event::Cpu, Event::Wait]));
        assert_eq!(Event::all_named("off-cpu"), Ok(vec![Event::Wait]));
        assert_eq!(Event::all_named("unknown"), Err(UnknownEvent::Name));
    }

    #[test]
    fn all_spellings_of_an_event_are_one_event() {
        let tracepoint = Event::parse("tracepoint:block:block_rq_issue").unwrap();
        assert_eq!(
            (tracepoint, tracepoint.unit()),
            (Event::parse("block:block_rq_issue").unwrap(), Unit::Count)
        );
        assert_eq!(tracepoint.name(), "block:block_rq_issue");
        assert_eq!((tracepoint.expected(), tracepoint.usual_period()), (Expectation::Counted, 1));
        let cycles = Event::parse("cycles").unwrap();
        assert_eq!((cycles, cycles.name()), (Event::parse("cpu-cycles").unwrap(), "cpu-cycles"));
        assert_eq!(cycles.expected(), Expectation::OneIn);
        let name = EventName::parse("cpu-cycles").unwrap();
        assert!(name.names(cycles) && !name.names(tracepoint) && !name.names(Event::Cpu));
        assert!(EventName::parse("cs").unwrap().names(Event::ContextSwitches));
        assert!(cycles.usual_period() > 1);
        assert!(matches!(Event::parse("kretprobe:vfs_read"), Err(UnknownEvent::Probe(InvalidProbe::Return))));
    }
}
