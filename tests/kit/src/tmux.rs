//! A terminal without a window: tmux, driven by its commands. Each has a server of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The timeout for what must appear on the screen: a busy machine takes long, but not that long.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A terminal. Dropping it ends its server, and what runs in it.
pub struct Tmux {
    socket: PathBuf,
}

/// Whether this machine lacks tmux; if so, prints that.
pub fn is_missing() -> bool {
    // tmux knows no `--version`, but starts.
    crate::lacks("tmux")
}

impl Tmux {
    /// Starts a shell script in a terminal of this size.
    pub fn start(home: &Path, (columns, lines): (u16, u16), script: &str) -> Tmux {
        let tmux = Tmux { socket: home.join("tmux") };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        // A configuration of the user could bind keys or add lines.
        let size = ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines];
        tmux.run(&[&size[..], &["-s", "test", script]].concat());
        tmux
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output =
            Command::new("tmux").env("TERM", "screen").arg("-S").arg(&self.socket).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        output
    }

    /// Presses keys, by tmux's names.
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "-t", "test"], keys].concat());
    }

    pub fn type_text(&self, text: &str) {
        self.run(&["send-keys", "-t", "test", "-l", text]);
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        self.run(&["resize-window", "-t", "test", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// The lines on the screen.
    pub fn screen(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p", "-t", "test"]).stdout).unwrap()
    }

    /// The value of one of tmux's formats, such as `#{pane_pid}`.
    pub fn value(&self, format: &str) -> String {
        let output = self.run(&["display-message", "-p", "-t", "test", format]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Waits until the screen is as wanted, and returns its lines.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + SCREEN_TIMEOUT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "the screen never had {what}:\n{screen}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
