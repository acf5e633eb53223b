//! Output: one file a format, from `profile` only.
//!
//! Every format's ticks sum to the same, [`Accounts::shown`](crate::profile::Accounts::shown): samples and lost ticks.

pub mod convert;
pub mod destination;
pub mod file;
pub mod folded;
pub mod format;
pub mod name;
pub mod otlp;
pub mod palette;
mod per_container;
pub mod pprof;
pub mod report;
pub mod stream;
pub mod svg;

use std::io::Write;

use crate::profile::Profile;
pub use convert::{convert, read};
pub use destination::Destination;
pub use format::{BadOutput, Format, Target, UnknownFormat};
pub use per_container::write_each;
pub use svg::Look;

/// Writes a profile where it is to go.
///
/// # Errors
/// One sentence with the path and what is wrong; there is no half file then.
pub fn write(profile: &Profile, target: &Target, look: &Look) -> anyhow::Result<()> {
    destination::write(&target.name, |out| encode(profile, target.format, look, out))
}

/// Writes a profile in a format.
///
/// # Errors
/// What the writer says.
pub fn encode(profile: &Profile, format: Format, look: &Look, mut out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Svg => svg::write(profile, look, &mut out),
        Format::Folded => Ok(folded::write(profile, &mut out)?),
        Format::Pprof => pprof::write(profile, &mut out),
    }
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
