//! jbpf-prof, run as its users run it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::folded::Folded;
use super::scratch;
use super::spent::{Spent, Watch};
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

/// A profile: its folded stacks, the report for machines, and what the watched processes did meanwhile.
pub(crate) struct Profile {
    pub(crate) folded: Folded,
    pub(crate) report: serde_json::Value,
    pub(crate) stderr: String,
    spent: Spent,
}

impl Profile {
    /// One of the report's accounts, ticks.
    pub(crate) fn account(&self, name: &str) -> u64 {
        let accounts = &self.report["accounts"];
        accounts[name].as_u64().unwrap_or_else(|| panic!("{name} in {accounts}"))
    }

    /// How many ticks of the clock watched processes and the children that they waited for must have had, at least and
    /// at most, by the CPU time that they used.
    #[track_caller]
    pub(crate) fn ticks_of(&self, pids: &[u32]) -> (f64, f64) {
        let ticking = self.account("expected") * self.account("period_ns");
        let span = Duration::from_nanos(ticking / self.report["cpus"].as_u64().unwrap());
        let ticks = |spent: Duration| spent.as_nanos() as f64 / self.account("period_ns") as f64;
        let each = pids.iter().map(|pid| self.spent.within(*pid, span));
        let (least, most) = each.fold((0.0, 0.0), |sum, one| (sum.0 + ticks(one.0), sum.1 + ticks(one.1)));
        assert!(least > 100.0, "the machine gave the programs so little time that nothing was tested");
        (least, most)
    }

    /// Asserts that there are as many samples of watched processes as they used CPU time, but for the ticks that the
    /// report calls missed, and for chance.
    #[track_caller]
    pub(crate) fn assert_samples_of(&self, pids: &[u32], samples: u64) {
        let (least, most) = self.ticks_of(pids);
        // Each time that a program is put on a CPU, chance decides whether one tick more or less hits it.
        let chance = 20.0 + 4.0 * most.sqrt();
        let right = least - chance - self.account("missed") as f64..=most + chance;
        assert!(
            right.contains(&(samples as f64)),
            "{samples} samples of processes that had {least:.0} to {most:.0} ticks, so {right:.0?} are right:\n{}",
            self.folded.top(10)
        );
    }
}

/// Profiles a program for some seconds at 999 Hz.
pub(crate) fn profile(target: &Target, seconds: u32, more: &[&str]) -> Profile {
    let mut args = vec!["--pid".to_owned(), target.pid().to_string()];
    args.extend(more.iter().map(|a| (*a).to_owned()));
    record_watching(&[target.pid()], seconds, &args)
}

/// Profiles what the arguments say for some seconds at 999 Hz.
pub(crate) fn record(seconds: u32, args: &[String]) -> Profile {
    record_watching(&[], seconds, args)
}

/// The same, and watches what these processes do meanwhile.
pub(crate) fn record_watching(watched: &[u32], seconds: u32, args: &[String]) -> Profile {
    let out = out_file("folded");
    let mut all: Vec<String> = ["-F", "999", "--report", "json", "--duration"].map(str::to_owned).to_vec();
    all.push(seconds.to_string());
    all.extend(["-o".to_owned(), out.to_str().unwrap().to_owned()]);
    all.extend(args.iter().cloned());
    let watch = Watch::keep(watched);
    let run = run(&all).success();
    let spent = watch.end();
    let report = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("report: {e}: {}", run.stdout));
    Profile { stderr: run.stderr, ..read(&out, report, spent) }
}

/// What a run has written to a file that nobody needs any more, with its report and what was seen meanwhile.
pub(crate) fn read(folded: &Path, report: serde_json::Value, spent: Spent) -> Profile {
    let stacks = Folded::parse(&std::fs::read_to_string(folded).unwrap());
    std::fs::remove_file(folded).unwrap();
    Profile { folded: stacks, report, stderr: String::new(), spent }
}

/// The report of a profiler that ends well, after the line `ready` of what it profiles.
pub(crate) fn report_after_ready(profiler: &mut Target) -> serde_json::Value {
    let (status, lines) = profiler.finish();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let text: Vec<&str> = lines.iter().map(String::as_str).filter(|line| *line != "ready").collect();
    serde_json::from_str(&text.join("\n")).unwrap_or_else(|e| panic!("report: {e}: {text:?}"))
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
