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

use super::format::{Format, FormatReader, Needs};
use super::look::Look;
use crate::profile::ProfileView;

/// The page's format.
pub static FORMAT: Format = Format {
    names: &["html"],
    media_type: "text/html; charset=utf-8",
    needs: Needs { seconds: true, threads: true },
    several: true,
    write: |views, look, out| write(views, look, out),
    read: FormatReader::By { magic: b"<!doctype html>", read: |input| read::read(input) },
};

/// Writes the page of all events.
///
/// # Errors
/// The error of `out`.
pub fn write(views: &[ProfileView<'_>], look: &Look, out: &mut dyn Write) -> anyhow::Result<()> {
    html::write(&document::Document::of(views, look), out)
}

#[cfg(test)]
mod tests;
