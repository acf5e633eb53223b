//! How much the report tells, and how wide it is.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

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
