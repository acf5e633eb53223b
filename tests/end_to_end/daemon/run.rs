//! Runs the daemon as its users run it: settings in a file, HTTP over a socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::busy::Busy;
use testkit::folded::Folded;
use testkit::profiler::{binary, has_helper, run};

/// The timeout for everything that the daemon does by itself: on a busy machine too, everything that makes progress
/// is faster.
const TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running daemon. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    home: PathBuf,
    /// The daemon's sockets: a socket's path has room for about a hundred bytes, which `home` may need for itself.
    sockets: TempDir,
    /// On an idle machine windows have no samples. A daemon needs none that is paused from the start, or beside which
    /// the test has busy programs.
    busy: Option<Busy>,
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

    /// The stacks of an answer in folded form without lost samples, which match each query. Status 404: no stack does.
    #[track_caller]
    pub(crate) fn stacks(self) -> Folded {
        if self.status == 404 {
            return Folded::default();
        }
        Folded::parse(&self.text()).keep(|stack| stack[0] != "[lost]")
    }
}

/// The settings of a daemon below `home`: 99 Hz, windows of a second, a budget that it cannot exceed, no names of
/// Java code, since JVMs of other tests run on this machine. `more` has other settings, and comes last, as it may end
/// with tables.
fn settings(home: &Path, sockets: &Path, more: &str) -> String {
    let (at, sockets) = (home.display(), sockets.display());
    let usual = [
        ("frequency", "99".to_owned()),
        ("window", "\"1s\"".to_owned()),
        ("max-cpu", "100".to_owned()),
        ("max-memory", "\"1GiB\"".to_owned()),
        ("java", "\"off\"".to_owned()),
        ("directory", format!("\"{at}/data\"")),
        ("kill-switch", format!("\"{at}/stop\"")),
        ("metrics", format!("\"unix:{sockets}/metrics.sock\"")),
        ("api", format!("\"unix:{sockets}/api.sock\"")),
    ];
    let is_given = |name: &str| more.lines().any(|line| line.split(" =").next() == Some(name));
    let usual = usual.iter().filter(|(name, _)| !is_given(name));
    usual.map(|(name, value)| format!("{name} = {value}\n")).collect::<String>() + more + "\n"
}

impl Daemon {
    /// Starts a daemon with its files below `home`, with [`settings`] and `more`, and beside it a busy program.
    pub(crate) fn start(home: &Path, more: &str) -> Daemon {
        Daemon::start_with(home, more, &[])
    }

    /// The same, with these variables.
    pub(crate) fn start_with(home: &Path, more: &str, variables: &[(&str, &str)]) -> Daemon {
        Daemon::launch(home, more, variables, Some(Busy::start("native")))
    }

    /// Starts a daemon without a busy program: the test has some, and another one would only take CPU time from them.
    pub(crate) fn start_alone(home: &Path, more: &str) -> Daemon {
        Daemon::launch(home, more, &[], None)
    }

    /// Starts a daemon whose kill switch is there already: it serves HTTP and pushes what is in the spools, and it
    /// does not load any BPF program.
    pub(crate) fn start_paused(home: &Path, more: &str) -> Daemon {
        fs::create_dir_all(home).unwrap();
        fs::write(home.join("stop"), "").unwrap();
        let mut daemon = Daemon::launch(home, more, &[], None);
        daemon.wait("a metrics socket", |d| d.ask("metrics.sock", "/metrics").is_ok());
        daemon.wait_unready("paused");
        daemon
    }

    fn launch(home: &Path, more: &str, variables: &[(&str, &str)], busy: Option<Busy>) -> Daemon {
        fs::create_dir_all(home).unwrap();
        let sockets = tempfile::tempdir_in("/tmp").unwrap();
        fs::write(home.join("settings.toml"), settings(home, sockets.path(), more)).unwrap();
        let child = Command::new(binary())
            .args(["daemon", "--config"])
            .arg(home.join("settings.toml"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(fs::File::create(home.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Daemon { child, home: home.to_owned(), sockets, busy }
    }

    /// The busy program that was started beside the daemon.
    pub(crate) fn busy(&self) -> &Busy {
        self.busy.as_ref().expect("the daemon has a busy program")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request to the socket of metrics or of profiles.
    pub(crate) fn ask(&self, socket: &str, path: &str) -> std::io::Result<Answer> {
        get(UnixStream::connect(self.sockets.path().join(socket))?, path, "")
    }

    /// The socket of profiles.
    pub(crate) fn api_socket(&self) -> PathBuf {
        self.sockets.path().join("api.sock")
    }

    /// The response of the socket of profiles; panics without a response.
    #[track_caller]
    pub(crate) fn api(&self, path: &str) -> Answer {
        self.ask("api.sock", path).unwrap_or_else(|e| panic!("{path}: {e}: {}", self.said()))
    }

    /// The stacks of the windows of the last minute that match a query, such as `process=java`.
    #[track_caller]
    pub(crate) fn stored(&self, query: &str) -> Folded {
        self.api(&format!("/window?format=folded&{query}")).stacks()
    }

    /// The list of the stored windows.
    #[track_caller]
    pub(crate) fn listed(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_str(&self.api("/windows").text()).unwrap();
        listed["windows"].as_array().unwrap().clone()
    }

    /// The query for the windows after those that are stored now, of which there is at least one.
    #[track_caller]
    pub(crate) fn since_now(&self) -> String {
        format!("from={}", self.listed().last().unwrap()["to"].as_f64().unwrap() + 0.001)
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
            std::thread::sleep(POLL_INTERVAL);
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

    /// Waits until the busy program has this many samples in stored windows.
    #[track_caller]
    pub(crate) fn wait_for_busy(&mut self, samples: u64) {
        self.wait("samples of the busy program", |daemon| {
            let of_busy = format!("/window?format=folded&process={}", daemon.busy().name());
            let answer = daemon.ask("api.sock", &of_busy);
            answer.is_ok_and(|answer| answer.stacks().total() >= samples)
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

/// The answer of a socket of profiles to a request.
pub(crate) fn ask_api(socket: &Path, path: &str) -> Answer {
    let stream = UnixStream::connect(socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
    get(stream, path, "").unwrap_or_else(|e| panic!("{path}: {e}"))
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
