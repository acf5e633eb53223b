//! Names of events in options and settings. One name can stand for several events: `wall`.

use crate::sample::Event;

/// The events that one name stands for.
#[derive(Clone, Debug)]
pub(super) struct NamedEvents(Vec<Event>);

/// The events that a name stands for.
pub(super) fn named(name: &str) -> Result<NamedEvents, String> {
    let events = Event::all_named(name).map(NamedEvents);
    events.ok_or_else(|| format!("unknown event; known events are {}", Event::names()))
}

/// All events in their order. An error is an event that two names stand for.
pub(super) fn distinct<'a>(names: impl IntoIterator<Item = &'a NamedEvents>) -> Result<Vec<Event>, Event> {
    let mut events = Vec::new();
    for event in names.into_iter().flat_map(|named| &named.0) {
        if events.contains(event) {
            return Err(*event);
        }
        events.push(*event);
    }
    Ok(events)
}
