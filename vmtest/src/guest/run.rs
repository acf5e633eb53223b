//! The runner: executes the cases of the plan in turn, each in a process group with a deadline, and reports each
//! result.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process_group, setsid};
use rustix::termios::tcdrain;

use super::CASE;
use super::kmsg::KernelLog;
use crate::arch::Arch;
use crate::plan::{Found, Line, Outcome, PAYLOAD, PLAN, PORT, Plan, Run};

/// How often the runner checks whether a case has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many seconds a command may be silent.
const COMMAND_PATIENCE: u64 = 24 * 3_600;
/// How many characters of a failed case's standard error are reported.
const TAIL: usize = 4_000;

/// Executes the plan in the payload.
pub(crate) fn main() -> anyhow::Result<()> {
    match serde_json::from_slice(&fs::read(Path::new(PAYLOAD).join(PLAN))?)? {
        Plan::Cases(runs) => cases(runs, Port::open()?),
        Plan::Command(command) => one_command(&command, Port::open()?),
        Plan::Shell => shell(),
    }
}

/// The port for results.
struct Port(File);

impl Port {
    fn open() -> anyhow::Result<Port> {
        let ports = fs::read_dir("/sys/class/virtio-ports").context("this guest has no ports")?;
        let named =
            |dir: &PathBuf| fs::read_to_string(dir.join("name")).is_ok_and(|name| name.trim() == PORT);
        let dir = ports.flatten().map(|entry| entry.path()).find(named).context("the port is missing")?;
        let device = Path::new("/dev").join(dir.file_name().context("the port's name")?);
        Ok(Port(File::options().write(true).open(device).context("the port cannot be opened")?))
    }

    fn say(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.0.write_all(text.as_bytes()).context("writing a result")
    }
}

fn cases(runs: Vec<Run>, mut port: Port) -> anyhow::Result<()> {
    let mut log = KernelLog::open()?;
    for run in runs {
        port.say(&Line::Begin(run.clone()))?;
        if run.case == "broken-silent" {
            continue;
        }
        if run.case == "broken-guest" {
            loop {
                std::thread::park();
            }
        }
        port.say(&Line::Result(outcome(run, &mut log)))?;
    }
    port.say(&Line::Done)
}

fn one_command(command: &str, mut port: Port) -> anyhow::Result<()> {
    port.say(&Line::Begin(Run { case: command.to_owned(), jdk: None, patience: COMMAND_PATIENCE }))?;
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; cd {PAYLOAD}; {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("the command's output")?;
    for line in BufReader::new(output).split(b'\n') {
        port.say(&Line::Output(String::from_utf8_lossy(&line?).into_owned()))?;
    }
    port.say(&Line::Exit(child.wait()?.code().unwrap_or(1)))?;
    port.say(&Line::Done)
}

/// Runs a shell on the serial console, which is the terminal of this process. When the process that owns a terminal
/// ends, the kernel discards output that is still in transit. So this process outlives the shell and waits for the
/// output.
fn shell() -> anyhow::Result<()> {
    setsid()?;
    let device = format!("/dev/{}", Arch::OWN.console());
    let console = File::options().read(true).write(true).open(device).context("the console")?;
    ioctl_tiocsctty(&console).context("the console as a terminal")?;
    let mut shell = Command::new("sh");
    shell.arg("-i").current_dir(PAYLOAD);
    shell.stdin(console.try_clone()?).stdout(console.try_clone()?).stderr(console.try_clone()?);
    shell.status().context("the shell")?;
    tcdrain(console).context("the console's last words")
}

/// Runs one case, and checks the kernel's log afterwards.
fn outcome(run: Run, log: &mut KernelLog) -> Outcome {
    let begin = Instant::now();
    let result = case(&run).and_then(|found| {
        let complaints = log.complaints()?;
        anyhow::ensure!(complaints.is_empty(), "the kernel complained: {}", complaints.join(" | "));
        Ok(found)
    });
    // Log entries of a failed case must not fail the next one.
    let _ = log.complaints();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let seconds = begin.elapsed().as_secs_f64();
    match result {
        Ok(Found { samples, figures }) => Outcome { run, kernel, samples, figures, seconds, error: None },
        Err(error) => {
            let error = Some(format!("{error:#}"));
            Outcome { run, kernel, samples: 0, figures: std::collections::BTreeMap::new(), seconds, error }
        }
    }
}

fn case(run: &Run) -> anyhow::Result<Found> {
    let child = Command::new(Path::new(PAYLOAD).join("vmtest"))
        .args([CASE, &run.case])
        .args(run.jdk.map(|jdk| jdk.to_string()))
        .current_dir("/tmp")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting the case")?;
    let mut group = Group(child);
    let stdout = read_all(group.0.stdout.take());
    let stderr = read_all(group.0.stderr.take());
    let status = group.wait(Duration::from_secs(run.patience))?;
    // Processes that the case left running hold the pipes open.
    drop(group);
    let text = |reader: JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    let tail: String = stderr.chars().skip(stderr.chars().count().saturating_sub(TAIL)).collect();
    match status {
        None => bail!("it did not end within {} s; it said: {tail}", run.patience),
        Some(status) if !status.success() => bail!("{tail}"),
        Some(_) => serde_json::from_str(&stdout).context("it passed and did not say what it found"),
    }
}

/// The process group of a case, killed on drop.
struct Group(Child);

impl Group {
    /// The status, or `None` after the deadline.
    fn wait(&mut self, patience: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn read_all(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}
