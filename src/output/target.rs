//! The target of an output: its name and its format.

use std::fmt;
use std::path::{Path, PathBuf};

use super::destination::Destination;
use super::folded;
use super::format::Format;
use super::pprof;
use super::registry::{UnknownFormat, split};

/// Why a name cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum BadOutput {
    /// The format is unknown.
    #[error(transparent)]
    Format(#[from] UnknownFormat),
    /// The destination is not usable.
    #[error("{0:#}")]
    Name(anyhow::Error),
}

/// The name and the format of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTarget {
    /// The name that the user gave: a path, or `-` for standard output.
    pub name: PathBuf,
    /// The format to write.
    pub format: &'static Format,
}

impl OutputTarget {
    /// Parses the value of `-o`. `format` overrides the extension of the name and of the file that links lead to. A
    /// stream (`-`, a pipe, a device) without an extension gets folded stacks.
    ///
    /// # Errors
    /// No format is given and the extension is unknown, or a link cannot be followed.
    pub fn parse(name: &Path, format: Option<&'static Format>) -> Result<OutputTarget, BadOutput> {
        let destination = Destination::find(name).map_err(BadOutput::Name)?;
        let of_name = || match (Format::of(name), destination.file()) {
            (Ok(format), _) => Ok(format),
            (Err(_), None) => Ok(&folded::FORMAT),
            (Err(unknown), Some(path)) => Format::of(path).map_err(|_| unknown),
        };
        let format = format.map_or_else(of_name, Ok)?;
        Ok(OutputTarget { name: name.to_owned(), format })
    }

    /// Why so many events cannot be written to this target: a pipe or a device is one file, and some formats hold one event
    /// in a file. `None` if they can.
    #[must_use]
    pub fn lacks_room(&self, destination: &Destination, events: usize) -> Option<String> {
        let is_one = destination.file().is_none() && !destination.is_null();
        (is_one && !self.format.several && events > 1).then(|| {
            format!(
                "{self} takes one event in the format {}, and there are {events}: choose one with --event, or use --format \
                 {}",
                self.format.names[0],
                pprof::FORMAT.names[0]
            )
        })
    }

    /// A target beside this one: `FILE-WORD.EXT`.
    #[must_use]
    pub(super) fn beside(&self, word: &str) -> OutputTarget {
        let name = self.name.file_name().unwrap_or_default().to_string_lossy();
        let (stem, extension) = split(&name);
        OutputTarget {
            name: self.name.with_file_name(format!("{stem}-{word}{extension}")),
            format: self.format,
        }
    }
}

impl fmt::Display for OutputTarget {
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

    use super::OutputTarget;
    use crate::output::{Destination, folded, pprof, svg};

    #[test]
    fn a_stream_is_one_file() {
        let lacks = |name: &str, format, events| {
            let target = OutputTarget::parse(Path::new(name), Some(format)).unwrap();
            target.lacks_room(&Destination::find(Path::new(name)).unwrap(), events)
        };
        let refused = lacks("-", &folded::FORMAT, 2).unwrap();
        assert!(
            refused.starts_with("standard output takes one event in the format folded, and there are 2"),
            "{refused}"
        );
        for (name, format, events) in [
            ("-", &folded::FORMAT, 1),
            ("-", &pprof::FORMAT, 2),
            ("/dev/null", &svg::FORMAT, 2),
            ("x", &svg::FORMAT, 2),
        ] {
            assert_eq!(lacks(name, format, events), None, "{name}");
        }
    }

    #[test]
    fn a_name_without_extension_is_for_streams() {
        let of = |name: &Path, format| OutputTarget::parse(name, format).map_err(|e| e.to_string());
        for (name, forced, format) in [
            ("-", None, &folded::FORMAT),
            ("-", Some(&svg::FORMAT), &svg::FORMAT),
            ("/dev/stdout", None, &folded::FORMAT),
            ("/dev/null", Some(&pprof::FORMAT), &pprof::FORMAT),
            ("x", Some(&svg::FORMAT), &svg::FORMAT),
        ] {
            assert_eq!(of(Path::new(name), forced).unwrap().format, format, "{name}");
        }
        assert!(of(Path::new("x"), None).is_err());
        assert_eq!(of(Path::new("x"), Some(&svg::FORMAT)).unwrap().to_string(), "x");
        assert_eq!(of(Path::new("-"), None).unwrap().to_string(), "standard output");
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("latest");
        symlink("run-17.pb.gz", &link).unwrap();
        assert_eq!(of(&link, None).unwrap().format, &pprof::FORMAT);
    }
}
