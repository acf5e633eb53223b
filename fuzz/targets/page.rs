//! The document of a page from an untrusted file: its accounts add up, and a page that is written of it has the same
//! samples.

use jbpf_prof::output::{PictureOptions, page};
use jbpf_prof::profile::Profile;
use jbpf_prof::sample::Event;

fn totals(profile: &Profile) -> Vec<(Event, u64, u64)> {
    let views = profile.views();
    let of = views.iter().map(|view| (view.event(), view.total().count, view.accounts().shown()));
    let mut all: Vec<_> = of.collect();
    all.sort_unstable_by_key(|(event, ..)| event.name());
    all
}

pub(crate) fn run(data: &[u8]) {
    let Ok(first) = page::read::document(data) else { return };
    assert!(first.check().is_ok());
    let Ok(packed) = page::packed(&first.views(), &PictureOptions::default()) else {
        panic!("a profile is not written")
    };
    let Ok(second) = page::read::read(&mut &*packed) else { panic!("the own page is not read") };
    assert!(totals(&first) == totals(&second));
}
