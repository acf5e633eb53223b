//! Folded stacks of anybody: what is read can be written, and is then read as the same.
#![no_main]

use jbpf_prof::output::folded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(first) = folded::read(&mut &*data) else { return };
    let mut written = Vec::new();
    assert!(folded::write(&first.view(), &mut written).is_ok());
    let second = folded::read(&mut &*written);
    assert!(second.is_ok_and(|second| second.total().count == first.total().count));
});
