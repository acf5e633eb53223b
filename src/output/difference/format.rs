//! The description of a format of differences.

use std::io::Write;

use super::model::Difference;
use crate::output::picture_options::PictureOptions;

/// A format of differences.
#[derive(Debug)]
pub struct DiffFormat {
    /// The file extension without its dot, and the value of `--format`.
    pub extension: &'static str,
    pub(super) write: fn(&Difference<'_>, &PictureOptions, &mut dyn Write) -> anyhow::Result<()>,
}
