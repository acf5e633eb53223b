//! The list of all formats, and the choice of a format by name or by file extension.

use std::path::Path;

use super::format::Format;
use super::{firefox, folded, jfr, page, pprof, svg};

/// All formats. Input without magic bytes and extension is read as the first format whose files may begin with
/// anything.
pub static FORMATS: [&Format; 6] =
    [&svg::FORMAT, &folded::FORMAT, &pprof::FORMAT, &firefox::FORMAT, &page::FORMAT, &jfr::FORMAT];

/// The error for a name or extension that belongs to no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: unknown {part}; known are {known}")]
pub struct UnknownFormat {
    what: String,
    part: &'static str,
    known: String,
}

impl Format {
    /// The format of a file's extension.
    ///
    /// # Errors
    /// The extension is unknown; the error lists the known ones.
    pub fn of(path: &Path) -> Result<&'static Format, UnknownFormat> {
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        extension(&name).map(|(format, _)| format).ok_or_else(|| UnknownFormat {
            what: path.display().to_string(),
            part: "extension",
            known: names().map(|name| format!(".{name}")).collect::<Vec<_>>().join(" "),
        })
    }

    /// The format for a value of `--format`: an extension without its dot.
    ///
    /// # Errors
    /// The name is unknown; the error lists the known ones.
    pub fn named(name: &str) -> Result<&'static Format, UnknownFormat> {
        let found = FORMATS.into_iter().find(|format| format.names.contains(&name));
        found.ok_or_else(|| UnknownFormat {
            what: name.to_owned(),
            part: "name",
            known: names().collect::<Vec<_>>().join(" "),
        })
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().flat_map(|format| format.names).copied()
}

/// The format for the end of a file name in lower case, and the length of the extension with its dot.
fn extension(name: &str) -> Option<(&'static Format, usize)> {
    let ends = |extension: &&str| {
        let stem = name.strip_suffix(*extension).and_then(|rest| rest.strip_suffix('.'));
        stem.is_some_and(|stem| !stem.is_empty())
    };
    FORMATS
        .into_iter()
        .find_map(|format| Some((format, 1 + format.names.iter().copied().find(|n| ends(n))?.len())))
}

/// Splits a file name before its extension; the extension is empty if it belongs to no format.
pub(super) fn split(name: &str) -> (&str, &str) {
    let lower = name.to_lowercase();
    let length = extension(&lower).filter(|_| lower.len() == name.len()).map_or(0, |(_, length)| length);
    name.split_at(name.len() - length)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Format;
    use crate::output::{folded, pprof, svg};

    #[test]
    fn extensions_and_names() {
        for (name, format) in [
            ("a.svg", &svg::FORMAT),
            ("/x/a.SVG", &svg::FORMAT),
            ("a.b.folded", &folded::FORMAT),
            ("a.collapsed", &folded::FORMAT),
            ("p.pb.gz", &pprof::FORMAT),
            ("p.pprof", &pprof::FORMAT),
        ] {
            assert_eq!(Format::of(Path::new(name)), Ok(format), "{name}");
        }
        for name in ["a.png", "svg", ".svg", "a.gz", ".."] {
            let said = Format::of(Path::new(name)).unwrap_err().to_string();
            assert!(said.contains(".svg .folded .collapsed .pb.gz .pprof"), "{said}");
        }
        assert_eq!(Format::named("pb.gz"), Ok(&pprof::FORMAT));
        assert!(Format::named("png").unwrap_err().to_string().contains("svg folded"));
    }
}
