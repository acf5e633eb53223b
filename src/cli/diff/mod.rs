//! `diff`: the config that is made of its arguments.

pub(super) mod options;

use std::path::PathBuf;

use options::DiffArgs;

use super::config;
use crate::compare::{CompareOptions, Work};
use crate::failure::{Exit, Failure};
use crate::output::difference::{DiffFormat, DiffTarget};
use crate::output::report::width_of;
use crate::output::{Destination, PictureOptions};

/// The arguments of `diff`, validated.
#[derive(Clone, Debug)]
pub struct DiffConfig {
    /// Files of the base, one a run.
    pub before: Vec<PathBuf>,
    /// Files of the change, one a run.
    pub after: Vec<PathBuf>,
    /// The event that is compared; `None`: the first one that all profiles have.
    pub event: Option<String>,
    /// What is compared, and what counts as a change.
    pub options: CompareOptions,
    /// Files to write, with their formats.
    pub outputs: Vec<DiffTarget>,
    /// Whether the text is printed: no output is standard output.
    pub prints_text: bool,
    /// Title, narrowest frame and direction of pictures.
    pub picture_options: PictureOptions,
    /// Characters of a line of text.
    pub width: usize,
}

impl DiffConfig {
    pub(super) fn new(args: &DiffArgs) -> Result<DiffConfig, Failure> {
        let (before, after) = match (args.files.as_slice(), args.after.as_slice()) {
            ([before, after], []) => (vec![before.clone()], vec![after.clone()]),
            (_, []) => {
                return Err(Failure::usage(format!(
                    "diff compares two profiles, but {} are given; to compare several runs, write '--' between those \
                     before and those after",
                    args.files.len()
                )));
            }
            (before, after) => (before.to_vec(), after.to_vec()),
        };
        let is_option = |name: &&PathBuf| name.to_string_lossy().starts_with('-') && !name.exists();
        if let Some(option) = after.iter().find(is_option) {
            return Err(Failure::usage(format!(
                "{} stands behind '--', so it is read as a file: put options before the files",
                option.display()
            )));
        }
        let format = args.format.as_deref().map(DiffFormat::named).transpose();
        let format = format.map_err(|e| Failure::usage(format!("--format {e}")))?;
        let mut outputs = Vec::new();
        let mut prints_text = true;
        for name in &args.output {
            let target = DiffTarget::parse(name, format);
            let target =
                target.map_err(|e| Failure::usage(format!("--output {e} (or name it with --format)")))?;
            let failed = |e: anyhow::Error| Failure { exit: Exit::Failed, message: format!("{e:#}") };
            let destination = Destination::find(name).map_err(failed)?;
            destination.check_writable().map_err(failed)?;
            prints_text &= !destination.is_stdout();
            outputs.push(target);
        }
        let options = CompareOptions {
            threshold: threshold(&args.fail_above)?,
            per: args.per.as_deref().map(work).transpose()?,
        };
        let (picture_options, width) = (config::picture_options(&args.picture)?, width_of(std::io::stdout()));
        let event = args.event.clone();
        Ok(DiffConfig { before, after, event, options, outputs, prints_text, picture_options, width })
    }
}

/// Reads `2%` or `2`.
fn threshold(text: &str) -> Result<f64, Failure> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or_else(|| {
        Failure::usage(format!("--fail-above {text}: expected a percentage from 0 to 100, such as 2%"))
    })
}

/// Reads `NAME=BEFORE,AFTER`.
fn work(text: &str) -> Result<Work, Failure> {
    let amount = |text: &str| text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount > 0.0);
    let parse = || {
        let (name, amounts) = text.rsplit_once('=')?;
        let (before, after) = amounts.split_once(',')?;
        let name = crate::text::clean(name.as_bytes(), 100);
        let work = Work { name, before: amount(before)?, after: amount(after)? };
        (!work.name.is_empty()).then_some(work)
    };
    parse().ok_or_else(|| {
        Failure::usage(format!(
            "--per {text}: expected a name and two numbers above 0, such as request=10000,12500"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::{Work, threshold, work};

    #[test]
    fn numbers_are_read() {
        assert_eq!(threshold("2%").ok(), Some(2.0));
        assert_eq!(threshold("0.5").ok(), Some(0.5));
        for bad in ["", "%", "-1", "101", "two", "nan"] {
            assert!(threshold(bad).unwrap_err().message.starts_with("--fail-above "), "{bad}");
        }
        let read = Work { name: "request".to_owned(), before: 1000.0, after: 1200.5 };
        assert_eq!(work("request=1000,1200.5").ok(), Some(read));
        for bad in ["", "x", "x=1", "x=1,", "x=0,1", "x=1,-1", "=1,1", "x=inf,1"] {
            assert!(work(bad).unwrap_err().message.starts_with("--per "), "{bad}");
        }
    }
}
