//! jbpf-prof, run as its users run it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::folded::Folded;
use super::scratch;
use super::target::Target;

/// The binary under test: the one that is shipped if `test.sh` names it, else the one that cargo built for this test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("JBPF_PROF_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_jbpf-prof").into(), PathBuf::from)
}

/// How long a run may take beside its own `--duration`.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a run left behind.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the profiler and waits for its end; kills it and fails if that does not come.
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    finish(Command::new(binary()).args(args))
}

/// Runs a prepared command line (a profiler under other rights, in another directory …) to its end.
pub(crate) fn finish(command: &mut Command) -> Run {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = Pid::from_child(&child);
    let (send, ended) = channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output: Output = match ended.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            let _ = kill_process(pid, Signal::KILL);
            panic!("{command:?} does not end");
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Run {
    /// Fails unless the run ended well.
    #[track_caller]
    pub(crate) fn success(self) -> Run {
        assert_eq!(self.code, Some(0), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        self
    }

    /// Fails unless the run was refused with this exit code, in one clear sentence that has these words.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &str) -> Run {
        assert_eq!(self.code, Some(code), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        assert!(self.stderr.contains(words), "stderr does not say {words:?}: {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// A profile of one program: its folded stacks and the report for machines.
pub(crate) struct Profile {
    pub(crate) folded: Folded,
    pub(crate) report: serde_json::Value,
    pub(crate) run: Run,
}

/// Profiles a program for some seconds at 999 Hz.
pub(crate) fn profile(target: &Target, seconds: u32, more: &[&str]) -> Profile {
    let mut args = vec!["--pid".to_owned(), target.pid().to_string()];
    args.extend(more.iter().map(|a| (*a).to_owned()));
    record(seconds, &args)
}

/// Profiles what the arguments say for some seconds at 999 Hz.
pub(crate) fn record(seconds: u32, args: &[String]) -> Profile {
    let out = out_file("folded");
    let mut all: Vec<String> = ["-F", "999", "--report", "json", "--duration"].map(str::to_owned).to_vec();
    all.push(seconds.to_string());
    all.extend(["-o".to_owned(), out.to_str().unwrap().to_owned()]);
    all.extend(args.iter().cloned());
    let run = run(&all).success();
    let folded = Folded::parse(&std::fs::read_to_string(&out).unwrap());
    std::fs::remove_file(&out).unwrap();
    let report = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("report: {e}: {}", run.stdout));
    Profile { folded, report, run }
}

/// Profiles a program again and again until `wanted` of it has samples enough to tell shares: once or
/// twice, more often on a machine that is busy with other things.
pub(crate) fn profile_enough(target: &Target, more: &[&str], wanted: impl Fn(Folded) -> Folded) -> Folded {
    let mut all = Folded::default();
    for _ in 0..20 {
        let got = profile(target, 6, more).folded;
        assert!(got.total() > 0, "an empty profile of a busy program");
        all.add(wanted(got));
        if all.total() >= 5_000 {
            break;
        }
    }
    assert!(all.total() >= 5_000, "only {} samples:\n{}", all.total(), all.top(10));
    all
}

/// Samples enough of a Java program's main thread: its name is the launcher's. The outermost methods may well be
/// interpreted, so a method's name does not tell the thread.
pub(crate) fn main_thread(target: &Target) -> Folded {
    profile_enough(target, &["--per-thread"], |all| {
        all.keep(|stack| stack.get(1).is_some_and(|t| t.starts_with("[java tid=")))
    })
}

/// A name for an output that no other test uses.
pub(crate) fn out_file(extension: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}.{extension}", NEXT.fetch_add(1, Ordering::Relaxed));
    scratch(&format!("out-{}", std::process::id())).join(name)
}
