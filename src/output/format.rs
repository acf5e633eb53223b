//! Formats, by the name of the file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::destination::Destination;

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

/// Where a profile goes, and in which format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name that the user gave: a path, or `-` for standard output.
    pub name: PathBuf,
    /// The format.
    pub format: Format,
}

impl Target {
    /// The meaning of `-o`'s value. `format` overrules the extension of the name, and that of the file that links lead to.
    /// A stream (`-`, a pipe, a device) without an extension gets folded stacks.
    ///
    /// # Errors
    /// When no format is named and the extension is none's, or when links lead nowhere.
    pub fn parse(name: &Path, format: Option<Format>) -> Result<Target, BadOutput> {
        let destination = Destination::find(name).map_err(BadOutput::Name)?;
        let of_name = || match (Format::of(name), destination.file()) {
            (Ok(format), _) => Ok(format),
            (Err(_), None) => Ok(Format::Folded),
            (Err(unknown), Some(path)) => Format::of(path).map_err(|_| unknown),
        };
        let format = format.map_or_else(of_name, Ok)?;
        Ok(Target { name: name.to_owned(), format })
    }
}

/// Why nothing can be written to a name.
#[derive(Debug, thiserror::Error)]
pub enum BadOutput {
    /// In no format.
    #[error(transparent)]
    Format(#[from] UnknownFormat),
    /// Nowhere.
    #[error("{0:#}")]
    Name(anyhow::Error),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.to_str() {
            Some("-" | "/dev/stdout") => f.write_str("standard output"),
            _ => self.name.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
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
    fn a_name_without_extension_is_for_streams() {
        let of = |name: &Path, format| Target::parse(name, format).map_err(|e| e.to_string());
        for (name, forced, format) in [
            ("-", None, Format::Folded),
            ("-", Some(Format::Svg), Format::Svg),
            ("/dev/stdout", None, Format::Folded),
            ("/dev/null", Some(Format::Pprof), Format::Pprof),
            ("x", Some(Format::Svg), Format::Svg),
        ] {
            assert_eq!(of(Path::new(name), forced).unwrap().format, format, "{name}");
        }
        assert!(of(Path::new("x"), None).is_err());
        assert_eq!(of(Path::new("x"), Some(Format::Svg)).unwrap().to_string(), "x");
        assert_eq!(of(Path::new("-"), None).unwrap().to_string(), "standard output");
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("latest");
        symlink("run-17.pb.gz", &link).unwrap();
        assert_eq!(of(&link, None).unwrap().format, Format::Pprof);
    }
}
