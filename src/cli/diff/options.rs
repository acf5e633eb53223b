//! The arguments of `diff`, as clap reads them.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use crate::cli::picture::Picture;
use crate::output::difference::DIFF_FORMATS;

/// The end of the long help.
const EXAMPLES: &str = "\
Examples:
  Compare two profiles:
    jbpf-prof diff before.html after.html
  Compare five runs with five runs, and write a page and a comment for a pull request:
    jbpf-prof diff -o diff.html -o diff.md before-*.html -- after-*.html
  Compare the CPU time of a request:
    jbpf-prof diff before.html after.html --per request=10000,12500

Exit code 5 means that something changed.";

/// The arguments of `diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct DiffArgs {
    /// Compare these profiles: BEFORE AFTER, or all runs before if `--` and all runs after follow.
    #[arg(required = true, value_name = "BEFORE")]
    pub(in crate::cli) files: Vec<PathBuf>,
    /// Compare with these profiles, if there are several runs. Options stand before the first file.
    #[arg(last = true, value_name = "AFTER")]
    pub(in crate::cli) after: Vec<PathBuf>,
    /// Compare this event of the profiles [default: the first one that all have].
    #[arg(short, long, value_name = "NAME")]
    pub(in crate::cli) event: Option<String>,
    /// Report only changes of at least this many percentage points, and exit with code 5 if there are any.
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub(in crate::cli) fail_above: String,
    /// Compare by work done instead of by share: request=10000,12500.
    #[arg(long, value_name = "NAME=BEFORE,AFTER")]
    pub(in crate::cli) per: Option<String>,
    /// Write the difference to this file (repeatable): .svg, .html, .folded, .json or .md by its extension.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) output: Vec<PathBuf>,
    /// Write this format, regardless of the file's extension.
    #[arg(
        long,
        value_name = "FORMAT",
        help_heading = "Output",
        value_parser = PossibleValuesParser::new(DIFF_FORMATS.map(|format| format.extension))
    )]
    pub(in crate::cli) format: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) picture: Picture,
}
