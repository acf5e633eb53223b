//! The page on which people explore a profile in a browser: one HTML file that loads nothing. `docs/design/page.md` has
//! the shape of its data.
//!
//! - `stacks`: the stacks of a profile as the page needs them
//! - `document`: the JSON document
//! - `html`: the file around the document, and its content security policy
//! - `read`, `stored`: reading a page back
//! - `web/`: the page itself

mod document;
mod html;
pub mod read;
mod stacks;
mod stored;

use std::io::Write;

use super::format::{Format, FormatReader, FormatRequirements};
use super::picture_options::PictureOptions;
use crate::profile::ProfileView;

/// The page's format.
pub static FORMAT: Format = Format {
    names: &["html"],
    media_type: "text/html; charset=utf-8",
    needs: FormatRequirements { seconds: true, threads: true },
    several: true,
    write: |views, picture_options, out| write(views, picture_options, out),
    read: FormatReader::By { magic: b"<!doctype html>", read: |input| read::read(input) },
};

/// The document of the page alone, for a page that a server serves.
pub static DOCUMENT: Format = Format {
    names: &["document"],
    media_type: "application/json",
    needs: FormatRequirements { seconds: true, threads: true },
    several: true,
    write: |views, picture_options, out| html::pack(&document::Document::of(views, picture_options), out),
    read: FormatReader::Never("the document of a page is only for the page"),
};

/// The document of the page, packed as JSON on one line.
///
/// # Errors
/// The document cannot be encoded.
pub fn packed(views: &[ProfileView<'_>], picture_options: &PictureOptions) -> anyhow::Result<Vec<u8>> {
    let mut packed = Vec::new();
    html::pack(&document::Document::of(views, picture_options), &mut packed)?;
    Ok(packed)
}

/// The content security policy of the page: only its own script and style, and no request.
#[must_use]
pub fn policy() -> &'static str {
    html::policy()
}

/// The page without a document and without a policy, for a server. `settings` is JSON for the page's script and must have
/// no text of profiled programs.
#[must_use]
pub fn shell(settings: &str) -> String {
    html::shell(settings)
}

/// Writes the page of all events.
///
/// # Errors
/// The error of `out`.
pub fn write(
    views: &[ProfileView<'_>],
    picture_options: &PictureOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    html::write(&document::Document::of(views, picture_options), out)
}

#[cfg(test)]
mod tests;
