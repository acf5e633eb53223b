//! Runs jbpf-prof as users do.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
pub(super) use testkit::profiler::lost;

use super::folded::Folded;
use crate::plan::PAYLOAD;

/// Samples a second on each CPU.
pub(super) const RATE: &str = "499";
/// Seconds of a run that ends earlier: with its command, or by [`Running::stop`].
pub(super) const UNTIL_STOPPED: &str = "600";
/// How long the profiler may say nothing while a case waits for a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(200);

/// The outputs of a profile with a JSON report.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) folded: Folded,
    pub(super) report: Value,
    /// Standard output before the report: that of the profiled command.
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The binary under test.
pub(super) fn binary() -> Command {
    Command::new(Path::new(PAYLOAD).join("jbpf-prof"))
}

/// Runs the binary with these arguments and reads its outputs; its accounts must add up.
pub(super) fn record(args: &[&str]) -> anyhow::Result<Profile> {
    recorded_by(binary(), args)
}

/// Samples these targets for some seconds, at [`RATE`].
pub(super) fn sample(seconds: u64, targets: &[&str]) -> anyhow::Result<Profile> {
    let seconds = seconds.to_string();
    record(&[&["-F", RATE, "-d", &seconds][..], targets].concat())
}

/// Like [`record`], by a command that ends with the binary (`setpriv … jbpf-prof`).
pub(super) fn recorded_by(command: Command, args: &[&str]) -> anyhow::Result<Profile> {
    start(command, args)?.finish()
}

#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// A profiled command ends when its standard input does.
    stdin: Option<ChildStdin>,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    /// The lines of standard error, as they come.
    said: Receiver<String>,
    file: String,
}

/// Starts a run. The arguments of the output and the report are added to `args`.
pub(super) fn start(mut command: Command, args: &[&str]) -> anyhow::Result<Running> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nr = NEXT.fetch_add(1, Ordering::Relaxed);
    let file = format!("/tmp/{}-{nr}.folded", std::process::id());
    // An emulated JVM takes long to answer.
    command.args(["-v", "--report", "json", "--attach-timeout", "120s", "-o", &file]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("jbpf-prof does not start")?;
    let (stdin, stdout) = (child.stdin.take(), text(child.stdout.take()));
    let (stderr, said) = lines(child.stderr.take().context("standard error of jbpf-prof")?);
    Ok(Running { child, stdin, stdout, stderr, said, file })
}

fn text(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // Text before an error is worth showing.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Reads a text to its end. The receiver gets each line as it comes.
fn lines(from: impl Read + Send + 'static) -> (JoinHandle<String>, Receiver<String>) {
    let (send, said) = channel();
    let reader = std::thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            all.push_str(&line);
            all.push('\n');
            // Once nobody waits for a line, the text is still read.
            let _ = send.send(line);
        }
        all
    });
    (reader, said)
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until sampling has begun.
    pub(super) fn wait_until_it_samples(&self) -> anyhow::Result<()> {
        self.wait_for("sampling: begun")
    }

    /// Waits until the profiler says a line with this text.
    pub(super) fn wait_for(&self, text: &str) -> anyhow::Result<()> {
        loop {
            let line = self.said.recv_timeout(MESSAGE_TIMEOUT);
            if line.with_context(|| format!("jbpf-prof did not say {text:?}"))?.contains(text) {
                return Ok(());
            }
        }
    }

    /// Ends the run as Ctrl-C does.
    pub(super) fn stop(self) -> anyhow::Result<Profile> {
        kill_process(Pid::from_child(&self.child), Signal::INT).context("ending jbpf-prof")?;
        self.finish()
    }

    /// Waits for the end, and fails unless the run succeeded.
    pub(super) fn finish(mut self) -> anyhow::Result<Profile> {
        let status = self.child.wait()?;
        drop(self.stdin);
        let said = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
        let (stdout, stderr) = (said(self.stdout), said(self.stderr));
        // Shown if the case fails.
        let _ = std::io::stderr().write_all(stderr.as_bytes());
        ensure!(status.success(), "jbpf-prof ended with {status}");
        ensure!(!stderr.contains("panicked"), "jbpf-prof panicked");
        // A profiled command may have written text before the report.
        let (stdout, json) = stdout.split_at(stdout.find("{\n").unwrap_or(0));
        let report =
            serde_json::from_str(json).with_context(|| format!("the report is no JSON: {stdout}"))?;
        let folded = Folded::parse(&std::fs::read_to_string(&self.file).context(self.file)?);
        accounts_add_up(&report, folded.total())?;
        Ok(Profile { folded, report, stdout: stdout.to_owned(), stderr })
    }
}

/// Taken samples are kept, filtered or lost, and the output has the kept and lost ones.
fn accounts_add_up(report: &Value, shown: u64) -> anyhow::Result<()> {
    let accounts = &report["accounts"];
    let n = |name: &str| accounts[name].as_u64().with_context(|| format!("the accounts have no {name}"));
    let lost = lost(report);
    ensure!(n("ticks")? > 0, "no tick was taken: {accounts}");
    ensure!(n("ticks")? == n("filtered")? + n("kept")? + lost, "ticks do not add up: {accounts}");
    ensure!(n("expected")? == n("ticks")? + n("missed")?, "expected ticks do not add up: {accounts}");
    ensure!(shown == n("kept")? + lost, "the file has {shown} samples: {accounts}");
    Ok(())
}

/// Runs a command that must fail with this exit code and a message with these words.
pub(super) fn refused(command: &mut Command, code: i32, words: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().context("jbpf-prof does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code) && said.contains(words) && !said.contains("panicked"),
        "exit code {code} and {words:?} were expected, not {}: {said}",
        output.status
    );
    Ok(())
}
