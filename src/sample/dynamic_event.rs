//! Events whose names are known only when the program runs: users name them, or a file has them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::counter::Counter;
use super::probe::Probe;
use super::unit::Unit;

/// An event whose name was not known at compile time. A copy is a pointer; the description is never freed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DynamicEvent(&'static EventDescription);

/// What is known of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventDescription {
    /// The name in all formats.
    pub name: String,
    /// The unit of its weights.
    pub unit: Unit,
    /// Where its samples come from.
    pub origin: EventOrigin,
}

/// Where the samples of an event come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventOrigin {
    /// A counter of the kernel or the processor.
    Counter(Counter),
    /// A place at which a BPF program runs.
    Probe(Probe),
    /// A file of another program, which can be shown and not sampled.
    File,
}

/// All descriptions: one for each event, so that the memory is bounded by the number of events.
static DESCRIPTIONS: Mutex<BTreeSet<&'static EventDescription>> = Mutex::new(BTreeSet::new());

impl DynamicEvent {
    /// How many of them can be sampled at a time: `JP_EVENT_SLOTS` in `bpf/abi.h`.
    pub const AT_ONCE: usize = 8;
    /// How many there can be in one run of the program, and the bytes of a name: a file can name any number.
    const MAX: usize = 1024;
    const MAX_NAME: usize = 4096;

    /// The event with this description; `None` if there are too many events or the name is too long.
    #[must_use]
    pub fn of(description: EventDescription) -> Option<DynamicEvent> {
        let mut all = DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&description) {
            return Some(DynamicEvent(known));
        }
        if all.len() >= DynamicEvent::MAX || description.name.len() > DynamicEvent::MAX_NAME {
            return None;
        }
        let description: &'static EventDescription = Box::leak(Box::new(description));
        all.insert(description);
        Some(DynamicEvent(description))
    }

    /// The description, which stays for the life of the program.
    #[must_use]
    pub fn description(self) -> &'static EventDescription {
        self.0
    }
}

impl fmt::Debug for DynamicEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_description_is_one_event() {
        let of = |unit| {
            DynamicEvent::of(EventDescription { name: "x".to_owned(), unit, origin: EventOrigin::File })
        };
        assert_eq!(of(Unit::Count), of(Unit::Count));
        assert_ne!(of(Unit::Count), of(Unit::Bytes));
        let long = "x".repeat(DynamicEvent::MAX_NAME + 1);
        assert_eq!(
            DynamicEvent::of(EventDescription { name: long, unit: Unit::Count, origin: EventOrigin::File }),
            None
        );
    }
}
