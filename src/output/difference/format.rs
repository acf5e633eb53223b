//! The description of a format of differences.

use std::io::Write;

use super::model::Difference;
use crate::output::look::Look;

/// A format of differences.
#[derive(Debug)]
pub struct DiffFormat {
    /// The file extension without its dot, and the value of `--format`.
    pub extension: &'static str,
    pub(super) write: fn(&Difference<'_>, &Look, &mut dyn Write) -> anyhow::Result<()>,
}
