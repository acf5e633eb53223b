//! The forms of a difference between two sets of profiles: text for the terminal, and one module for each format of a
//! file.

mod folded;
mod format;
mod html;
mod json;
mod markdown;
mod model;
mod stacks;
mod svg;
mod target;
mod text;
mod words;

pub use format::DiffFormat;
pub use model::Difference;
pub use target::{BadDiffOutput, DIFF_FORMATS, DiffTarget};
pub use text::text;
pub use words::verdict;

use super::picture_options::PictureOptions;

/// Writes a difference to a file or to standard output.
///
/// # Errors
/// One sentence with the path and what is wrong; no partial file remains.
pub fn write(
    difference: &Difference<'_>,
    target: &DiffTarget,
    picture_options: &PictureOptions,
) -> anyhow::Result<()> {
    super::destination::write(&target.name, |out| (target.format.write)(difference, picture_options, out))
}

#[cfg(test)]
mod tests;
