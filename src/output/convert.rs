//! Reading of a profile for its conversion to another format.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, bail};

use super::format::FormatReader;
use super::{FORMATS, Format};
use crate::profile::Profile;

/// Reads folded stacks or pprof and detects the format. `-` reads standard input.
///
/// # Errors
/// One sentence with the path and what is wrong.
pub fn read(input: &Path) -> anyhow::Result<Profile> {
    let said = || format!("cannot read {}", input.display());
    if input == Path::new("-") {
        return read_from(&mut io::stdin().lock(), None).context("cannot read standard input");
    }
    let format = Format::of(input).ok();
    if let Some(Format { read: FormatReader::Never(why), .. }) = format {
        return Err(anyhow::anyhow!(*why)).with_context(said);
    }
    let file = File::open(input).with_context(said)?;
    if file.metadata().with_context(said)?.is_dir() {
        return Err(anyhow::anyhow!("it is a directory")).with_context(said);
    }
    read_from(&mut BufReader::new(file), format).with_context(said)
}

/// Detects the format by magic bytes, else by the file's name. Other input is read in the first format whose files may
/// begin with anything.
fn read_from(input: &mut impl BufRead, format: Option<&Format>) -> anyhow::Result<Profile> {
    let start = input.fill_buf()?;
    if start.is_empty() {
        bail!("it is empty");
    }
    let by_magic = |format: &&&Format| match format.read {
        FormatReader::By { magic, .. } => !magic.is_empty() && start.starts_with(magic),
        FormatReader::Never(_) => false,
    };
    let of_any = |format: &&&Format| matches!(format.read, FormatReader::By { magic: b"", .. });
    let format = FORMATS.iter().find(by_magic).copied().or(format);
    let format = format.or_else(|| FORMATS.iter().find(of_any).copied());
    let Some(Format { read: FormatReader::By { read, .. }, .. }) = format else {
        bail!("no format is known")
    };
    read(input)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::read;
    use crate::output::{OutputTarget, PictureOptions, write};

    #[test]
    fn every_way_there_and_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let text = "java;start_thread;a.B.run_[j];a.B.get_[i];ep_poll_[k] 41\n[lost];[ring full] 2\n";
        fs::write(path("a.folded"), text).unwrap();
        let to = |from: &str, to: &str| {
            let target = OutputTarget::parse(&path(to), None).unwrap();
            read(&path(from)).and_then(|profile| write(&profile.views(), &target, &PictureOptions::default()))
        };
        to("a.folded", "b.pb.gz").unwrap();
        to("b.pb.gz", "c.pprof").unwrap();
        to("c.pprof", "d.collapsed").unwrap();
        assert_eq!(fs::read_to_string(path("d.collapsed")).unwrap(), text);
        to("c.pprof", "e.svg").unwrap();
        assert!(fs::read_to_string(path("e.svg")).unwrap().contains("a.B.get (41 samples"));
        for (from, sentence) in [
            ("e.svg", "a flame graph is a picture"),
            ("none.folded", "No such file"),
            ("empty.pb.gz", "it is empty"),
            ("junk.pb.gz", "not a pprof profile"),
            ("junk.folded", "line 2: the count at the end is not a whole number"),
            (".", "it is a directory"),
        ] {
            fs::write(path("empty.pb.gz"), "").unwrap();
            fs::write(path("junk.pb.gz"), "junk").unwrap();
            fs::write(path("junk.folded"), "a;b 1\njunk here\n").unwrap();
            let said = format!("{:#}", to(from, "x.folded").unwrap_err());
            assert!(said.starts_with("cannot read ") && said.contains(sentence), "{said}");
            assert!(!Path::new(&path("x.folded")).exists());
        }
    }
}
