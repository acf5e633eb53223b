//! The log on standard error.

use std::io::Write;
use std::sync::OnceLock;
use std::time::Instant;

pub use log::Level;
use log::{LevelFilter, Log, Metadata, Record};

use crate::text::clean;

/// The prefix of a line for journald, such as `<4>`; empty unless standard error goes to the journal.
#[must_use]
pub fn journal_priority(level: Level) -> &'static str {
    static TO_JOURNAL: OnceLock<bool> = OnceLock::new();
    let to_journal = TO_JOURNAL.get_or_init(|| {
        // systemd names the device and the inode of the stream, because a service can redirect its standard error.
        let stream =
            rustix::fs::fstat(std::io::stderr()).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        stream.is_ok_and(|stream| std::env::var("JOURNAL_STREAM") == Ok(stream))
    });
    match level {
        _ if !to_journal => "",
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    }
}

/// Characters of a line after the time.
const MAX_LINE: usize = 1000;

static LINES: LineLogger = LineLogger { began: OnceLock::new() };

/// Starts the log. Each line begins with the seconds since this call, and control characters are replaced.
pub fn begin(level: LevelFilter) {
    LINES.began.get_or_init(Instant::now);
    // A logger that was installed before writes the same.
    if log::set_logger(&LINES).is_ok() {
        log::set_max_level(level);
    }
}

/// Sets another level for the rest of the log.
pub fn set_level(level: LevelFilter) {
    log::set_max_level(level);
}

struct LineLogger {
    began: OnceLock<Instant>,
}

impl Log for LineLogger {
    /// Only lines of jbpf-prof itself: users cannot act on those of libraries.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("jbpf_prof")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let seconds = self.began.get().map_or(0.0, |began| began.elapsed().as_secs_f64());
            let line = journal_priority(record.level()).to_owned()
                + &line(seconds, record.level(), &record.args().to_string());
            // One write for each line, because several threads write. Standard error may be closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

fn line(seconds: f64, level: Level, message: &str) -> String {
    let mark = if level == Level::Warn { "warning: " } else { "" };
    format!("[{seconds:8.3}] {mark}{}\n", clean(message.as_bytes(), MAX_LINE))
}

#[cfg(test)]
mod tests {
    use super::{Level, line};

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(line(1.5, Level::Info, "JVM 7: a\nb\x1b[2J"), "[   1.500] JVM 7: a?b?[2J\n");
        assert_eq!(line(10.0, Level::Warn, "lost"), "[  10.000] warning: lost\n");
    }
}
