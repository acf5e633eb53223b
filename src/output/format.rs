//! What a format is.

use std::io::{BufRead, Write};

use super::look::Look;
use crate::profile::{Profile, ProfileView};

/// A format of profiles. Each has a file of this room, and a line in [`FORMATS`](super::FORMATS); whoever lists formats (errors, help,
/// HTTP) lists those.
#[derive(Debug)]
pub struct Format {
    /// Extensions of its files without their first dot, and what `--format` takes; the first is the usual one.
    pub names: &'static [&'static str],
    /// Of an answer by HTTP.
    pub media_type: &'static str,
    /// What a profile must tell apart for it.
    pub needs: Needs,
    /// Whether a file of it can hold several events; of one that cannot there is a file each.
    pub several: bool,
    /// Writes the events of a profile, which are one if it holds no more; formats that are no pictures have no use for the
    /// look.
    pub(super) write: fn(&[ProfileView<'_>], &Look, &mut dyn Write) -> anyhow::Result<()>,
    /// How it is read.
    pub(super) read: FormatReader,
}

/// What a profile must tell apart for a format; a run does what one of its outputs needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The second of each sample.
    pub seconds: bool,
    /// Threads.
    pub threads: bool,
}

impl Needs {
    /// Nothing but stacks.
    pub(super) const NONE: Needs = Needs { seconds: false, threads: false };
}

/// How a format is read.
#[derive(Debug)]
pub(super) enum FormatReader {
    /// It is not: a sentence says why.
    Never(&'static str),
    By {
        /// The first bytes of every such file; empty if any may be.
        magic: &'static [u8],
        read: fn(&mut dyn BufRead) -> anyhow::Result<Profile>,
    },
}

impl Format {
    /// Whether files of it can be read.
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
