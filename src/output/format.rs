//! The description of a format.

use std::io::{BufRead, Write};

use super::picture_options::PictureOptions;
use crate::profile::{Profile, ProfileView};

/// A format of profiles. Each has a module in `output` and an entry in [`FORMATS`](super::FORMATS), from which errors,
/// help and HTTP take their lists.
#[derive(Debug)]
pub struct Format {
    /// File extensions without the first dot, and the values of `--format`; the first is the usual one.
    pub names: &'static [&'static str],
    /// Media type of an HTTP response.
    pub media_type: &'static str,
    /// The properties of samples that a profile must distinguish for this format.
    pub needs: FormatRequirements,
    /// Whether a file can hold several events; otherwise each event gets its own file.
    pub several: bool,
    /// Writes the events of a profile; one event, unless `several`. Only pictures use the look.
    pub(super) write: fn(&[ProfileView<'_>], &PictureOptions, &mut dyn Write) -> anyhow::Result<()>,
    pub(super) read: FormatReader,
}

/// The properties of samples that a profile must distinguish for a format. A run distinguishes every property
/// that one of its outputs needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatRequirements {
    /// The second of each sample.
    pub seconds: bool,
    /// The thread of each sample.
    pub threads: bool,
}

impl FormatRequirements {
    /// The format needs neither seconds nor threads.
    pub(super) const NONE: FormatRequirements = FormatRequirements { seconds: false, threads: false };
}

#[derive(Debug)]
pub(super) enum FormatReader {
    /// The format cannot be read; the sentence explains why.
    Never(&'static str),
    By {
        /// The first bytes of every file of the format; empty if files may begin with anything.
        magic: &'static [u8],
        read: fn(&mut dyn BufRead) -> anyhow::Result<Profile>,
    },
}

impl Format {
    /// Whether files of this format can be read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self.read, FormatReader::By { .. })
    }

    /// The usual extension, without its first dot.
    #[must_use]
    pub fn extension(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.names == other.names
    }
}

impl Eq for Format {}
