//! Folded stacks from untrusted files: a profile can be written after reading, and keeps its total. A strange name may
//! have another kind afterwards, so the event, which is guessed from the kinds, may change.

use jbpf_prof::output::folded;
use jbpf_prof::profile::{Profile, ProfileView};

/// The samples of the file's only event.
fn samples(profile: &Profile) -> Option<ProfileView<'_>> {
    profile.events().first().map(|event| profile.of_event(*event))
}

pub(crate) fn run(mut data: &[u8]) {
    let Ok(first) = folded::read(&mut data) else { return };
    let Some(first) = samples(&first) else { return };
    let mut written = Vec::new();
    assert!(folded::write(&first, &mut written).is_ok());
    let second = folded::read(&mut &*written);
    let total = second.ok().as_ref().and_then(samples).map_or(0, |second| second.total().count);
    assert_eq!(total, first.total().count);
}
