//! `top`: the config that is made of its arguments.

use std::io::{IsTerminal, stdin, stdout};

use super::args::TopArgs;
use super::config::{duration, settings};
use crate::failure::Failure;
use crate::session::{Settings, target_text};
use crate::top::{MAX_SECONDS, TopSetup};

/// The arguments of `top`, validated.
#[derive(Clone, Debug)]
pub struct TopConfig {
    /// Settings of the session.
    pub settings: Settings,
    /// What the page shows.
    pub setup: TopSetup,
    /// Warnings to print before the session begins.
    pub warnings: Vec<String>,
}

impl TopConfig {
    pub(super) fn new(args: &TopArgs) -> Result<TopConfig, Failure> {
        let mut warnings = Vec::new();
        let sampled = settings(&args.sampled, &args.host, &[], &mut warnings)?;
        // Each second is a part, so that nothing older than the window is kept.
        let settings = Settings { part: Some(1), ..sampled };
        let setup = TopSetup {
            target: target_text(&settings),
            events: settings.events.iter().map(|sampled| sampled.event).collect(),
            window_s: window(&args.window)?,
            has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        Ok(TopConfig { settings, setup, warnings })
    }
}

fn window(text: &str) -> Result<usize, Failure> {
    let time = duration("--window", text)?;
    let seconds = usize::try_from(time.as_secs()).ok().filter(|s| (1..=MAX_SECONDS).contains(s));
    seconds.filter(|_| time.subsec_nanos() == 0).ok_or_else(|| {
        Failure::usage(format!("--window {text}: use whole seconds, at least 1s and at most {MAX_SECONDS}s"))
    })
}

/// Checks that there is a terminal for the page.
///
/// # Errors
/// Standard input or output is something else.
pub fn check_terminal() -> Result<(), Failure> {
    if stdin().is_terminal() && stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "top needs a terminal as standard input and output; elsewhere, write a profile and print its table: \
         jbpf-prof -d 10 -o cpu.pb.gz && jbpf-prof show cpu.pb.gz",
    ))
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn a_window_has_whole_seconds() {
        assert_eq!(window("1").ok(), Some(1));
        assert_eq!(window("1m").ok(), Some(60));
        for bad in ["0", "61", "1.5s", "999ms", "x", "-1"] {
            let message = window(bad).unwrap_err().message;
            assert!(message.starts_with(&format!("--window {bad}: ")), "{message}");
        }
    }
}
