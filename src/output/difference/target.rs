//! The list of all formats of differences, and the name and the format of an output.

use std::path::{Path, PathBuf};

use super::format::DiffFormat;
use super::{folded, html, json, markdown, svg};

/// All formats of differences.
pub static DIFF_FORMATS: [&DiffFormat; 5] =
    [&svg::FORMAT, &html::FORMAT, &folded::FORMAT, &json::FORMAT, &markdown::FORMAT];

/// An output of a difference.
#[derive(Clone, Debug)]
pub struct DiffTarget {
    /// The name that the user gave: a path, or `-` for standard output.
    pub name: PathBuf,
    /// The format to write.
    pub format: &'static DiffFormat,
}

/// A difference has no format of this name or extension.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: a difference is written as {}", known())]
pub struct BadDiffOutput {
    what: String,
}

fn known() -> String {
    DIFF_FORMATS.map(|format| format!(".{}", format.extension)).join(" ")
}

impl DiffFormat {
    /// The format for a value of `--format`.
    ///
    /// # Errors
    /// The name is unknown; the error lists the known ones.
    pub fn named(name: &str) -> Result<&'static DiffFormat, BadDiffOutput> {
        let found = DIFF_FORMATS.into_iter().find(|format| format.extension == name);
        found.ok_or_else(|| BadDiffOutput { what: name.to_owned() })
    }
}

impl DiffTarget {
    /// Parses the value of `-o`. `format` overrides the extension of the name.
    ///
    /// # Errors
    /// No format is given and the extension is unknown.
    pub fn parse(name: &Path, format: Option<&'static DiffFormat>) -> Result<DiffTarget, BadDiffOutput> {
        let of_name = || {
            let extension = name.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            DiffFormat::named(&extension).map_err(|_| BadDiffOutput { what: name.display().to_string() })
        };
        Ok(DiffTarget { name: name.to_owned(), format: format.map_or_else(of_name, Ok)? })
    }
}
