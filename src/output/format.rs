//! Formats, by the name of the file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A format of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Flame graph.
    Svg,
    /// Folded stacks.
    Folded,
    /// pprof's gzipped protocol buffer.
    Pprof,
}

/// No format has this name or extension.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: no format has this {part}; known are {known}")]
pub struct UnknownFormat {
    what: String,
    part: &'static str,
    known: String,
}

/// Extensions and whose they are.
const EXTENSIONS: [(&str, Format); 5] = [
    (".svg", Format::Svg),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
];

impl Format {
    /// The format that a file's extension names.
    ///
    /// # Errors
    /// When none does; the error lists those that do.
    pub fn of(path: &Path) -> Result<Format, UnknownFormat> {
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let found = EXTENSIONS.iter().find(|(ext, _)| name.len() > ext.len() && name.ends_with(ext));
        found.map(|&(_, format)| format).ok_or_else(|| UnknownFormat {
            what: path.display().to_string(),
            part: "extension",
            known: EXTENSIONS.map(|(ext, _)| ext).join(" "),
        })
    }
}

/// A file's name before its extension, and the extension if it is one that names a format.
pub(super) fn split(name: &str) -> (&str, &str) {
    let lower = name.to_lowercase();
    let long = |ext: &str| lower.len() == name.len() && lower.len() > ext.len() && lower.ends_with(ext);
    let extension = EXTENSIONS.iter().find(|(ext, _)| long(ext)).map_or(0, |(ext, _)| ext.len());
    name.split_at(name.len() - extension)
}

impl FromStr for Format {
    type Err = UnknownFormat;

    /// A format by the name that `--format` takes: an extension without its dot.
    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        let found = EXTENSIONS.iter().find(|(ext, _)| ext.strip_prefix('.') == Some(name));
        found.map(|&(_, format)| format).ok_or_else(|| UnknownFormat {
            what: name.to_owned(),
            part: "name",
            known: EXTENSIONS.map(|(ext, _)| &ext[1..]).join(" "),
        })
    }
}

/// Where a profile goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file.
    File(PathBuf, Format),
    /// Standard output.
    Stdout(Format),
}

impl Target {
    /// The meaning of `-o`'s value: `-` is folded stacks on standard output, else the extension says the format;
    /// `format` overrules both.
    ///
    /// # Errors
    /// When no format is named and the extension is none's.
    pub fn parse(name: &Path, format: Option<Format>) -> Result<Target, UnknownFormat> {
        if name == Path::new("-") {
            return Ok(Target::Stdout(format.unwrap_or(Format::Folded)));
        }
        let format = format.map_or_else(|| Format::of(name), Ok)?;
        Ok(Target::File(name.to_owned(), format))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File(path, _) => path.display().fmt(f),
            Target::Stdout(_) => f.write_str("standard output"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Format, Target};

    #[test]
    fn extensions_and_names() {
        for (name, format) in [
            ("a.svg", Format::Svg),
            ("/x/a.SVG", Format::Svg),
            ("a.b.folded", Format::Folded),
            ("a.collapsed", Format::Folded),
            ("p.pb.gz", Format::Pprof),
            ("p.pprof", Format::Pprof),
        ] {
            assert_eq!(Format::of(Path::new(name)), Ok(format), "{name}");
        }
        for name in ["a.png", "svg", ".svg", "a.gz", ".."] {
            let said = Format::of(Path::new(name)).unwrap_err().to_string();
            assert!(said.contains(".svg .folded .collapsed .pb.gz .pprof"), "{said}");
        }
        assert_eq!("pb.gz".parse(), Ok(Format::Pprof));
        assert!("png".parse::<Format>().unwrap_err().to_string().contains("svg folded"));
    }

    #[test]
    fn a_dash_is_standard_output() {
        assert_eq!(Target::parse(Path::new("-"), None), Ok(Target::Stdout(Format::Folded)));
        assert_eq!(Target::parse(Path::new("-"), Some(Format::Svg)), Ok(Target::Stdout(Format::Svg)));
        assert!(Target::parse(Path::new("x"), None).is_err());
        let forced = Target::parse(Path::new("x"), Some(Format::Svg)).unwrap();
        assert_eq!(forced.to_string(), "x");
    }
}
