//! Names of events in options and settings. One name can stand for several events: `wall`.

use crate::sample::{DynamicEvent, Event};

/// The events that one name stands for.
#[derive(Clone, Debug)]
pub(super) struct NamedEvents(Vec<Event>);

/// Why a list of events cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidEvents {
    /// Two names stand for one event.
    #[error("{} is given twice", .0.name())]
    Twice(Event),
    /// There are too many counters and probes.
    #[error("at most {} counters and probes can be sampled at a time", DynamicEvent::AT_ONCE)]
    TooMany,
}

/// The events that a name stands for.
pub(super) fn named(name: &str) -> Result<NamedEvents, String> {
    Event::all_named(name).map(NamedEvents).map_err(|error| error.to_string())
}

/// All events in their order, each once.
pub(super) fn distinct<'a>(
    names: impl IntoIterator<Item = &'a NamedEvents>,
) -> Result<Vec<Event>, InvalidEvents> {
    let mut events = Vec::new();
    for event in names.into_iter().flat_map(|named| &named.0) {
        if events.contains(event) {
            return Err(InvalidEvents::Twice(*event));
        }
        events.push(*event);
    }
    if events.iter().filter(|event| event.origin().is_some()).count() > DynamicEvent::AT_ONCE {
        return Err(InvalidEvents::TooMany);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_event_once_and_not_too_many() {
        let list = |names: &str| {
            let named: Vec<NamedEvents> = names.split(',').map(|name| named(name).unwrap()).collect();
            distinct(&named)
        };
        assert_eq!(list("wall"), Ok(vec![Event::Cpu, Event::Wait]));
        let cycles = Event::parse("cycles").unwrap();
        assert_eq!(list("cycles,cpu-cycles"), Err(InvalidEvents::Twice(cycles)));
        let many = (0..DynamicEvent::AT_ONCE).map(|n| format!("a:b{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(list(&format!("{many},cpu")).map(|events| events.len()), Ok(DynamicEvent::AT_ONCE + 1));
        assert_eq!(list(&format!("{many},cycles")), Err(InvalidEvents::TooMany));
    }
}
