//! Output: one file a format, from `profile` only.
//!
//! Every format's ticks sum to the same, [`Accounts::shown`](crate::profile::Accounts::shown): samples and lost ticks.

pub mod convert;
pub mod destination;
pub mod file;
pub mod folded;
pub mod format;
mod look;
pub mod name;
pub mod otlp;
pub mod palette;
mod per_container;
pub mod pprof;
pub mod registry;
pub mod report;
pub mod stream;
pub mod svg;

use std::io::Write;

use crate::profile::View;
pub use convert::{convert, read};
pub use destination::Destination;
pub use format::Format;
pub use look::Look;
pub use per_container::write_each;
pub use registry::{BadOutput, FORMATS, Target, UnknownFormat};

/// Writes a profile where it is to go.
///
/// # Errors
/// One sentence with the path and what is wrong; there is no half file then.
pub fn write(view: &View<'_>, target: &Target, look: &Look) -> anyhow::Result<()> {
    destination::write(&target.name, |out| encode(view, target.format, look, out))
}

/// Writes a profile in a format.
///
/// # Errors
/// What the writer says.
pub fn encode(view: &View<'_>, format: &Format, look: &Look, out: &mut dyn Write) -> anyhow::Result<()> {
    (format.write)(view, look, out)
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
