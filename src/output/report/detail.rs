//! The amount of detail and the width of the report.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The amount of detail and the width of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Characters of a line.
    pub width: usize,
    /// Maximum rows of a table.
    pub rows: usize,
    /// Whether the report has a table of lines.
    pub lines: bool,
}

impl Default for Detail {
    fn default() -> Detail {
        Detail { width: 100, rows: 20, lines: false }
    }
}

/// The width of a terminal in characters; 100 if the stream is not a terminal.
#[must_use]
pub fn width_of(stream: impl AsFd) -> usize {
    match tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => Detail::default().width,
    }
}
