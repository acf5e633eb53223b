//! Folded stacks from untrusted files: a profile can be written after reading, and keeps its total.
#![no_main]

use jbpf_prof::output::folded;
use jbpf_prof::sample::Event;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(first) = folded::read(&mut &*data) else { return };
    let first = first.of_event(Event::Cpu);
    let mut written = Vec::new();
    assert!(folded::write(&first, &mut written).is_ok());
    let second = folded::read(&mut &*written);
    assert!(second.is_ok_and(|second| second.of_event(Event::Cpu).total().count == first.total().count));
});
