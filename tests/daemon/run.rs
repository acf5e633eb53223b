//! Runs the daemon as its users run it: settings in a file, HTTP over a socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use testkit::folded::Folded;
use testkit::native;
use testkit::profiler::{binary, has_helper, run};
use testkit::target::Target;

/// The timeout for everything that the daemon does by itself.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running daemon, and a busy program: on an idle machine windows have no samples. Dropping it kills both.
pub(crate) struct Daemon {
    child: Child,
    home: PathBuf,
    /// The daemon's sockets: a socket's path has room for about a hundred bytes, which `home` may need for itself.
    sockets: TempDir,
    _busy: Target,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body; panics unless the status is 200.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        let text = String::from_utf8(self.body).expect("the answer is text");
        assert_eq!(self.status, 200, "{text}");
        text
    }
}

impl Daemon {
    /// Starts a daemon with its files below `home`: 99 Hz, windows of 2 s, a budget that it cannot exceed, and `more`.
    pub(crate) fn start(home: &Path, more: &str) -> Daemon {
        Daemon::start_with(home, more, &[])
    }

    /// The same, with these variables.
    pub(crate) fn start_with(home: &Path, more: &str, variables: &[(&str, &str)]) -> Daemon {
        let _busy = native::start("native");
        fs::create_dir_all(home).unwrap();
        let sockets = tempfile::tempdir_in("/tmp").unwrap();
        let (at, sockets_at) = (home.display(), sockets.path().display());
        let cpu = if more.contains("max-cpu") { "" } else { "max-cpu = 100\n" };
        let memory = if more.contains("max-memory") { "" } else { "max-memory = \"1GiB\"\n" };
        let window = if more.contains("window =") { "" } else { "window = \"2s\"\n" };
        let settings = format!(
            "frequency = 99\n{window}{cpu}{memory}directory = \"{at}/data\"\n\
             kill-switch = \"{at}/stop\"\nmetrics = \"unix:{sockets_at}/metrics.sock\"\n{more}\n"
        );
        let api = if more.contains("api =") {
            String::new()
        } else {
            format!("api = \"unix:{sockets_at}/api.sock\"\n")
        };
        fs::write(home.join("settings.toml"), settings + &api).unwrap();
        let child = Command::new(binary())
            .args(["daemon", "--config"])
            .arg(home.join("settings.toml"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(fs::File::create(home.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Daemon { child, home: home.to_owned(), sockets, _busy }
    }

    /// Sends a request to the socket of metrics or of profiles.
    pub(crate) fn ask(&self, socket: &str, path: &str) -> std::io::Result<Answer> {
        get(UnixStream::connect(self.sockets.path().join(socket))?, path, "")
    }

    /// The response of the socket of profiles; panics without a response.
    #[track_caller]
    pub(crate) fn api(&self, path: &str) -> Answer {
        self.ask("api.sock", path).unwrap_or_else(|e| panic!("{path}: {e}: {}", self.said()))
    }

    /// Whether the daemon has a helper process that asks a JVM.
    pub(crate) fn has_helper(&self) -> bool {
        has_helper(self.child.id())
    }

    /// All metrics, as text.
    pub(crate) fn metrics(&self) -> String {
        self.ask("metrics.sock", "/metrics").unwrap().text()
    }

    /// The sum of a metric's samples.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        sum_of(&self.metrics(), name)
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, so: impl Fn(&Daemon) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !so(self) {
            assert!(Instant::now() < end, "{what} does not come: {}", self.said());
            assert!(self.child.try_wait().unwrap().is_none(), "the daemon has ended: {}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until `n` windows are on disk. (A window is counted as sampled before it is written.)
    #[track_caller]
    pub(crate) fn wait_for_windows(&mut self, n: usize) {
        self.wait("a window", |daemon| {
            let metrics = daemon.ask("metrics.sock", "/metrics");
            metrics.is_ok_and(|a| sum_of(&a.text(), "windows_kept") >= n as f64)
        });
    }

    /// Waits until the daemon reports that it is not ready, for a reason with these words.
    #[track_caller]
    pub(crate) fn wait_unready(&mut self, words: &str) {
        self.wait(words, |daemon| {
            let answer = daemon.ask("metrics.sock", "/readyz").unwrap();
            answer.status == 503 && String::from_utf8_lossy(&answer.body).contains(words)
        });
    }

    /// Turns the kill switch on and waits until the last window is processed: nothing is counted or written any more.
    #[track_caller]
    pub(crate) fn pause(&mut self) {
        self.throw(true);
        self.wait_unready("paused");
        // This metric of the session is zero then.
        self.wait("the keeper's end", |daemon| daemon.metric("resident_bytes") == 0.0);
    }

    pub(crate) fn throw(&self, switch: bool) {
        let file = self.home.join("stop");
        if switch { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
    }

    /// The files of the stored windows, the oldest first.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        windows(&self.home)
    }

    /// Ends the daemon by a signal; returns its exit code.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Replaces a text of the settings file, which the daemon reads again after SIGHUP.
    #[track_caller]
    pub(crate) fn edit_settings(&self, from: &str, to: &str) {
        let file = self.home.join("settings.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }

    /// The daemon's log so far, its standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.home.join("stderr")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The files of windows below a home, the oldest first.
pub(crate) fn windows(home: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(home.join("data/windows")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = all.filter(|path| path.to_str().unwrap().ends_with(".pb.gz")).collect();
    files.sort();
    files
}

/// Start and length of a window in milliseconds, from the name of its file.
pub(crate) fn time_of(file: &Path) -> (u64, u64) {
    let name = file.file_name().unwrap().to_str().unwrap().strip_suffix(".pb.gz").unwrap();
    let (start, length) = name.split_once('-').unwrap();
    (start.parse().unwrap(), length.parse().unwrap())
}

/// A kept or received profile as folded stacks.
pub(crate) fn folded(file: &Path) -> Folded {
    Folded::parse(&run(["convert", file.to_str().unwrap(), "-"]).success().stdout)
}

/// The sum of a metric's samples in Prometheus's text format.
pub(crate) fn sum_of(exposition: &str, name: &str) -> f64 {
    let name = format!("jbpf_prof_{name}");
    let samples = exposition.lines().filter(|line| {
        line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
    });
    samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// Sends a request over any connection, with more header lines in `head`.
pub(crate) fn get(mut stream: impl Read + Write, path: &str, head: &str) -> std::io::Result<Answer> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    let status = String::from_utf8_lossy(&bytes[..at]).split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Answer { status, body: bytes.split_off(at + 4) })
}
