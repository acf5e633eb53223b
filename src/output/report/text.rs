//! The report as text: what an engineer reads first.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use super::sections;
use crate::profile::{Profile, RunReport};

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Characters of a line.
    pub width: usize,
    /// Rows of the tables of processes and functions.
    pub rows: usize,
    /// Whether there is a table of lines.
    pub lines: bool,
}

impl Default for Detail {
    fn default() -> Detail {
        Detail { width: 100, rows: 20, lines: false }
    }
}

/// The width to fit the report to: the terminal's, 100 where there is none.
#[must_use]
pub fn width_of(stream: impl AsFd) -> usize {
    match tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => Detail::default().width,
    }
}

/// The report as lines of text, plain, each no longer than asked for (but for the narrowest of terminals), with a newline
/// after each.
#[must_use]
pub fn text(report: &RunReport, profile: &Profile, detail: Detail) -> String {
    let width = detail.width.clamp(60, 400);
    let detail = Detail { width, ..detail };
    let parts = [
        sections::head(report, width),
        sections::warnings(report, width),
        sections::ticks(report),
        sections::stacks(report),
        sections::jvms(report, width),
        sections::processes(profile, detail),
        sections::functions(profile, detail),
        if detail.lines { sections::lines(profile, detail) } else { Vec::new() },
        sections::stripped(profile, Detail { rows: detail.rows / 2, ..detail }),
        sections::cost(report, width),
        sections::outputs(report),
    ];
    let mut text = String::new();
    for part in parts.iter().filter(|p| !p.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        for line in part {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
