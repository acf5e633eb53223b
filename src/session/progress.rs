//! Progress of sampling: a bar on a terminal, nothing in a pipe.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Characters of the bar.
const WIDTH: usize = 30;

/// A line on standard error that each update overwrites.
pub(super) struct Progress {
    shown: bool,
    begin: Instant,
    duration: Option<Duration>,
}

impl Progress {
    pub(super) fn new(wanted: bool, duration: Option<Duration>) -> Progress {
        Progress { shown: wanted && std::io::stderr().is_terminal(), begin: Instant::now(), duration }
    }

    pub(super) fn draw(&self, samples: u64) {
        if self.shown {
            let line = line(self.begin.elapsed(), self.duration, samples);
            // Sampling goes on if the terminal is gone.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        }
    }

    pub(super) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(elapsed: Duration, duration: Option<Duration>, samples: u64) -> String {
    let seconds = elapsed.as_secs();
    let Some(duration) = duration else {
        return format!("sampling … {seconds} s, {samples} samples (stop with Ctrl-C)");
    };
    let share = (elapsed.as_secs_f64() / duration.as_secs_f64().max(0.001)).min(1.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "0 to the width of the bar"
    )]
    let full = (share * WIDTH as f64) as usize;
    let bar = "█".repeat(full) + &"░".repeat(WIDTH - full);
    format!("{bar} {seconds}/{} s, {samples} samples", duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{Duration, line};

    #[test]
    fn the_bar_fills() {
        let at = |s| line(Duration::from_secs(s), Some(Duration::from_secs(30)), 7);
        assert!(
            at(0).starts_with("░")
                && at(15).starts_with(&("█".repeat(15) + "░"))
                && at(90).contains("█ 90/30 s")
        );
        assert_eq!(line(Duration::from_secs(3), None, 7), "sampling … 3 s, 7 samples (stop with Ctrl-C)");
    }
}
