//! The numbers of events in the BPF program.

use anyhow::Context as _;

use crate::sample::{DynamicEvent, Event};

/// The events of a run by number: those with numbers of their own, then the slots.
#[derive(Clone, Debug, Default)]
pub struct EventNumbers {
    /// The events that a run chooses by name, by slot.
    slots: Vec<Event>,
}

impl EventNumbers {
    /// `JP_EVENT_NUMBERS`.
    pub(super) const COUNT: u32 = (Event::FIXED.len() + DynamicEvent::AT_ONCE) as u32;

    pub(super) fn of(events: &[Event]) -> EventNumbers {
        EventNumbers { slots: events.iter().filter(|event| event.origin().is_some()).copied().collect() }
    }

    /// The number of an event.
    #[must_use]
    pub fn number(&self, event: Event) -> Option<u32> {
        let fixed = Event::FIXED.iter().position(|fixed| *fixed == event);
        fixed
            .or_else(|| Some(Event::FIXED.len() + self.slot(event)?))
            .and_then(|number| number.try_into().ok())
    }

    /// The key of an event in maps that have an entry for each event in each of two windows.
    pub(super) fn key(&self, parity: u32, event: Event) -> anyhow::Result<u32> {
        Ok(parity * Self::COUNT + self.number(event).context("an event without number")?)
    }

    /// The event with a number.
    #[must_use]
    pub fn event(&self, number: u32) -> Option<Event> {
        let number = number as usize;
        let fixed = Event::FIXED.get(number).copied();
        fixed.or_else(|| self.slots.get(number.checked_sub(Event::FIXED.len())?).copied())
    }

    /// The slot of an event without a number of its own.
    pub(super) fn slot(&self, event: Event) -> Option<usize> {
        self.slots.iter().position(|of| *of == event)
    }

    /// The events that have a slot, by slot.
    pub(super) fn slots(&self) -> &[Event] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        let named = |name| Event::parse(name).unwrap();
        let events = [named("sched:sched_switch"), Event::Wait, named("cycles")];
        let numbers = EventNumbers::of(&events);
        let first = Event::FIXED.len() as u32;
        assert_eq!(events.map(|event| numbers.number(event)), [Some(first), Some(5), Some(first + 1)]);
        for event in events {
            assert_eq!(numbers.event(numbers.number(event).unwrap()), Some(event));
        }
        assert_eq!((numbers.event(first + 2), numbers.number(named("instructions"))), (None, None));
    }
}
