//! Output formats, one module each; the formats depend on `profile` only.
//!
//! The samples of every format sum to [`Accounts::shown`](crate::profile::Accounts::shown): kept samples and lost
//! samples.

pub mod convert;
pub mod destination;
pub mod difference;
pub mod file;
pub mod firefox;
pub mod folded;
pub mod format;
pub mod jfr;
pub mod name;
pub mod otlp;
pub mod page;
pub mod palette;
mod per_container;
mod picture_options;
pub mod pprof;
pub mod registry;
pub mod report;
mod seconds;
pub mod stream;
pub mod svg;
pub mod target;

use std::io::Write;

use anyhow::bail;

use crate::profile::ProfileView;
use crate::sample::Event;
pub use convert::read;
pub use destination::Destination;
pub use format::{Format, FormatRequirements};
pub use per_container::write_each;
pub use picture_options::PictureOptions;
pub use registry::{FORMATS, UnknownFormat};
pub use target::{BadOutput, OutputTarget};

/// Writes the events of a profile to a target and returns the written files. A format that holds only one event gets a
/// file for each event; the first event goes into the named file. What is thrown away needs no further files.
///
/// # Errors
/// One sentence with the path and what is wrong; no partial file remains.
pub fn write(
    views: &[ProfileView<'_>],
    target: &OutputTarget,
    picture_options: &PictureOptions,
) -> anyhow::Result<Vec<OutputTarget>> {
    let destination = Destination::find(&target.name)?;
    if let Some(why) = target.lacks_room(&destination, views.len()) {
        bail!(why);
    }
    let each = if target.format.several { views.len().max(1) } else { 1 };
    let files = if destination.is_null() { 1 } else { usize::MAX };
    let mut written = Vec::new();
    for (at, views) in views.chunks(each).enumerate().take(files) {
        let event = views.first().map(ProfileView::event).unwrap_or_default();
        let target = if at == 0 { target.clone() } else { target.beside(&file_word(event)) };
        destination::write(&target.name, |out| encode(views, target.format, picture_options, out))?;
        written.push(target);
    }
    Ok(written)
}

/// The name of an event in the name of a file: names of probes have colons, and those of functions have paths.
fn file_word(event: Event) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    event.name().chars().map(safe).collect::<String>().replace("--", "-")
}

/// Writes events of a profile in a format.
///
/// # Errors
/// The error of the format or of `out`.
pub fn encode(
    views: &[ProfileView<'_>],
    format: &Format,
    picture_options: &PictureOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    (format.write)(views, picture_options, out)
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
