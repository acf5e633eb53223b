//! Runs jbpf-prof as its users run it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::claims::{Tally, prove_tallies};
use crate::folded::Folded;
use crate::spent::{Spent, Watch};
use crate::target::Target;
use crate::wald::Claim;
use crate::{profile_dir, scratch};

/// The binary under test: the shipped one if `test.sh` names it, else the one that cargo built for this test.
pub fn binary() -> PathBuf {
    std::env::var_os("JBPF_PROF_BINARY").map_or_else(|| profile_dir().join("jbpf-prof"), PathBuf::from)
}

/// The time limit of a run, in addition to its own `--duration`.
const EXIT_TIMEOUT: Duration = Duration::from_secs(90);

/// The result of a run.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the profiler and waits for its end; kills it and panics on a timeout.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    finish(Command::new(binary()).args(args))
}

/// Runs a prepared command (a profiler with other rights, in another directory …) to its end.
pub fn finish(command: &mut Command) -> Run {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let output = end_of(child, EXIT_TIMEOUT);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Waits for a profiler's end; kills it and panics on a timeout.
fn end_of(child: Child, timeout: Duration) -> Output {
    let pid = Pid::from_child(&child);
    let (send, ended) = channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    match ended.recv_timeout(timeout) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the profiler does not end");
        }
    }
}

impl Run {
    /// Panics unless the exit code is 0.
    #[track_caller]
    pub fn success(self) -> Run {
        assert_eq!(self.code, Some(0), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        self
    }

    /// Panics unless the run was refused with this exit code and with a message that has these words.
    #[track_caller]
    pub fn refused(self, code: i32, words: &str) -> Run {
        assert_eq!(self.code, Some(code), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        assert!(self.stderr.contains(words), "stderr does not say {words:?}: {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// A profile: its folded stacks, the JSON report, and the CPU time of the watched processes.
pub struct Profile {
    pub folded: Folded,
    pub report: serde_json::Value,
    pub stderr: String,
    spent: Spent,
}

/// More ticks than these are enough for a test of how many samples a program has.
const ENOUGH_TICKS: f64 = 100.0;

impl Profile {
    /// One of the report's accounts, in ticks.
    pub fn account(&self, name: &str) -> u64 {
        let accounts = &self.report["accounts"];
        accounts[name].as_u64().unwrap_or_else(|| panic!("{name} in {accounts}"))
    }

    /// The least and the most ticks that watched processes, with the children that they waited for, must have had by
    /// their CPU time.
    #[track_caller]
    pub fn ticks_of(&self, pids: &[u32]) -> (f64, f64) {
        let ticking = self.account("expected") * self.account("period_ns");
        let span = Duration::from_nanos(ticking / self.report["cpus"].as_u64().unwrap());
        let lasted = self.report["duration_s"].as_f64().unwrap();
        assert!(span.as_secs_f64() > 0.5 * lasted, "the clock ran for {span:?} of {lasted} s");
        let each = pids.iter().map(|pid| self.spent.within(*pid, span));
        let (least, most) =
            each.fold((0.0, 0.0), |sum, one| (sum.0 + self.ticks(one.0), sum.1 + self.ticks(one.1)));
        (least, most + self.stolen_ticks())
    }

    /// Whether the machine gave each of these processes enough time for a test of its ticks.
    pub fn has_time_of(&self, pids: &[u32]) -> bool {
        let least = |pid: &u32| self.ticks_of(&[*pid]).0;
        let poor = pids.iter().find(|pid| least(pid) <= ENOUGH_TICKS);
        if let Some(pid) = poor {
            eprintln!("pid {pid} had {:.0} ticks: another profile is taken", least(pid));
        }
        poor.is_none()
    }

    /// By how many samples the CPU time may be exceeded because of steal time.
    fn stolen_ticks(&self) -> f64 {
        self.ticks(self.spent.stolen())
    }

    fn ticks(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / self.account("period_ns") as f64
    }

    /// The range of samples of a program whose CPU time is worth this many ticks, without missed ones. Each time the
    /// program gets a CPU and leaves it, chance decides on about one tick. The variance of that is a sixth. On a busy
    /// machine this happens as often as the clock ticks.
    pub fn by_chance(&self, ticks: u64) -> std::ops::RangeInclusive<u64> {
        let chance = 5.0 * (ticks as f64 / 6.0).sqrt();
        let least = ticks as f64 - chance - self.account("missed") as f64;
        least as u64..=(ticks as f64 + chance + self.stolen_ticks()) as u64
    }

    /// Asserts that watched processes have as many samples as their CPU time says, except for missed ticks and for
    /// chance.
    #[track_caller]
    pub fn assert_samples_of(&self, pids: &[u32], samples: u64) {
        let (least, most) = self.ticks_of(pids);
        assert!(least > ENOUGH_TICKS, "{least:.0} ticks test nothing: see with_time");
        // The kernel cuts the CPU time in user mode and that in kernel mode to hundredths of a second. Each time a program gets
        // a CPU, chance decides whether one tick more or less hits it.
        let cut = self.ticks(Duration::from_millis(20)) * pids.len() as f64;
        let chance = cut + 5.0 * most.sqrt();
        let right = least - chance - self.account("missed") as f64..=most + chance;
        assert!(
            right.contains(&(samples as f64)),
            "{samples} samples of processes that had {least:.0} to {most:.0} ticks, so {right:.0?} are right:\n{}",
            self.folded.top(10)
        );
    }
}

/// All processes. Tests run beside others: no agent is attached to the JVMs of these, and threads tell programs of
/// one name apart ([`Folded::of_thread`]).
pub const ALL: [&str; 4] = ["--all", "--java", "off", "--per-thread"];

/// The frequency of most tests, and of tests of shares, which take thousands of samples.
const RATE_HZ: u32 = 999;
const SHARES_RATE_HZ: u32 = 7_999;

/// Profiles a program for some seconds at 999 Hz.
pub fn profile(target: &Target, seconds: u32, more: &[&str]) -> Profile {
    profile_at(RATE_HZ, target, f64::from(seconds), more)
}

fn profile_at(rate: u32, target: &Target, seconds: f64, more: &[&str]) -> Profile {
    let mut args = vec!["--pid".to_owned(), target.pid().to_string()];
    args.extend(more.iter().map(|a| (*a).to_owned()));
    record_at(rate, &[target.pid()], seconds, &args)
}

/// Profiles a program for some seconds, with the clock that the arguments ask for.
pub fn profile_by(clock: &[&str], target: &Target, seconds: u32) -> Profile {
    let args = ["--pid".to_owned(), target.pid().to_string()];
    record_by(clock, &[target.pid()], f64::from(seconds), &args)
}

/// Profiles the targets in the arguments for some seconds at 999 Hz.
pub fn record(seconds: u32, args: &[String]) -> Profile {
    record_once(&[], seconds, args)
}

/// The same, and watches the CPU time of these processes, each of which is busy.
pub fn record_watching(watched: &[u32], seconds: u32, args: &[String]) -> Profile {
    with_time(watched, || record_once(watched, seconds, args))
}

/// The same, however much time the machine gives them.
pub fn record_once(watched: &[u32], seconds: u32, args: &[String]) -> Profile {
    record_at(RATE_HZ, watched, f64::from(seconds), args)
}

/// Takes profiles of busy processes until one is of a time in which the machine gave each of them enough for a test.
#[track_caller]
pub fn with_time(watched: &[u32], take: impl FnMut() -> Profile) -> Profile {
    let found = std::iter::repeat_with(take).take(20).find(|profile| profile.has_time_of(watched));
    found.unwrap_or_else(|| panic!("the machine gave {watched:?} no time in 20 profiles"))
}

fn record_at(rate: u32, watched: &[u32], seconds: f64, args: &[String]) -> Profile {
    record_by(&["-F", &rate.to_string()], watched, seconds, args)
}

/// The same for parts of seconds too, with the clock that the first arguments ask for.
pub fn record_by(clock: &[&str], watched: &[u32], seconds: f64, args: &[String]) -> Profile {
    let out = out_file("folded");
    let mut all: Vec<String> = clock.iter().map(|a| (*a).to_owned()).collect();
    let rest = ["--duration", &seconds.to_string(), "--report", "json", "-o", out.to_str().unwrap()];
    all.extend(rest.map(str::to_owned));
    all.extend(args.iter().cloned());
    let watch = Watch::keep(watched);
    let run = run(&all).success();
    let spent = watch.end();
    let report = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("report: {e}: {}", run.stdout));
    Profile { stderr: run.stderr, ..read(&out, report, spent) }
}

/// Reads and removes the folded file of a run; adds its report and the watched CPU time.
pub fn read(folded: &Path, report: serde_json::Value, spent: Spent) -> Profile {
    let stacks = Folded::parse(&std::fs::read_to_string(folded).unwrap());
    std::fs::remove_file(folded).unwrap();
    Profile { folded: stacks, report, stderr: String::new(), spent }
}

/// The lost samples of a report or of one of its events, of all reasons.
pub fn lost(report: &serde_json::Value) -> u64 {
    report["accounts"]["lost"].as_array().unwrap().iter().map(|row| row[1].as_u64().unwrap()).sum()
}

/// Profiles at 999 Hz while `happens` runs. Sampling begins before it. After it a terminal's Ctrl-C ends the run; this
/// signal goes to the profiler's children too.
pub fn while_sampling(watched: &[u32], args: &[&str], happens: impl FnOnce()) -> Profile {
    let sampling = Sampling::begin(args);
    let watch = Watch::keep(watched);
    happens();
    sampling.signal(Signal::INT);
    sampling.end(watch)
}

/// The same, but the run ends by itself because of what happened.
pub fn until_it_ends(args: &[&str], happens: impl FnOnce()) -> Profile {
    let sampling = Sampling::begin(args);
    let watch = Watch::keep(&[]);
    happens();
    sampling.end(watch)
}

/// A profiler that has begun to sample.
pub struct Sampling {
    profiler: Option<Child>,
    out: PathBuf,
    /// What it says on standard error after it has begun.
    said: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Sampling {
    pub fn begin(args: &[&str]) -> Sampling {
        let out = out_file("folded");
        let mut command = Command::new(binary());
        command.process_group(0);
        command.args(["-F", "999", "-v", "--report", "json", "-o"]).arg(&out).args(args);
        let mut profiler = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(profiler.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("sampling: begun")), "it has ended");
        let (send, receive) = channel();
        let reader = std::thread::spawn(move || {
            for line in said.map_while(Result::ok) {
                // A test that does not wait for lines still has the reader, so that the profiler never blocks.
                let _ = send.send(line);
            }
        });
        Sampling { profiler: Some(profiler), out, said: receive, reader: Some(reader) }
    }

    /// Waits until the profiler says a line with this text.
    pub fn wait_for(&self, text: &str) {
        while !self
            .said
            .recv_timeout(EXIT_TIMEOUT)
            .unwrap_or_else(|_| panic!("no line has {text}"))
            .contains(text)
        {}
    }

    pub fn pid(&self) -> u32 {
        self.profiler.as_ref().unwrap().id()
    }

    /// Sends a signal to the profiler's whole process group, as a terminal does.
    pub fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(self.profiler.as_ref().unwrap()), signal).unwrap();
    }

    /// Waits for the profiler's end; panics unless the exit code is 0.
    pub fn end(mut self, watch: Watch) -> Profile {
        let output = end_of(self.profiler.take().unwrap(), EXIT_TIMEOUT);
        self.reader.take().unwrap().join().unwrap();
        assert_eq!(output.status.code(), Some(0));
        read(&self.out, serde_json::from_slice(&output.stdout).unwrap(), watch.end())
    }
}

/// A test that fails leaves no profiler behind: it has its own process group and may have no time limit.
impl Drop for Sampling {
    fn drop(&mut self) {
        if let Some(mut profiler) = self.profiler.take() {
            let _ = profiler.kill();
            let _ = profiler.wait();
        }
    }
}

/// The report of a profiler that ends with exit code 0, without the line `ready` of the profiled command.
pub fn report_after_ready(profiler: &mut Target) -> serde_json::Value {
    let (status, lines) = profiler.finish();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let text: Vec<&str> = lines.iter().map(String::as_str).filter(|line| *line != "ready").collect();
    serde_json::from_str(&text.join("\n")).unwrap_or_else(|e| panic!("report: {e}: {text:?}"))
}

/// Profiles a program for some seconds at 7,999 Hz.
pub fn profile_at_high_rate(target: &Target, seconds: f64, more: &[&str]) -> Profile {
    profile_at(SHARES_RATE_HZ, target, seconds, more)
}

/// A slice of a program for tests that take slices until they have decided: a second at 7,999 Hz.
pub fn slice(target: &Target, more: &[&str]) -> Folded {
    slice_of(target, 1.0, more)
}

fn slice_of(target: &Target, seconds: f64, more: &[&str]) -> Folded {
    let got = profile_at_high_rate(target, seconds, more).folded;
    assert!(got.total() > 0, "an empty profile of a busy program");
    got
}

/// A slice of 0.4 s at 7,999 Hz, for claims that a thousand samples decide.
pub fn short_slice(target: &Target, more: &[&str]) -> Profile {
    profile_at_high_rate(target, 0.4, more)
}

/// A slice of a Java program's main thread alone, which has the launcher's name. The outermost methods may be interpreted, so
/// a method's name does not identify the thread.
pub fn main_slice(target: &Target, more: &[&str]) -> Folded {
    main_slice_of(target, 1.0, more)
}

/// The same of this many seconds.
pub fn main_slice_of(target: &Target, seconds: f64, more: &[&str]) -> Folded {
    slice_of(target, seconds, &[&["--per-thread"], more].concat()).keep(is_main_thread)
}

/// The same for claims that a thousand samples decide.
pub fn main_short_slice(target: &Target, more: &[&str]) -> Folded {
    short_slice(target, &[&["--per-thread"], more].concat()).folded.keep(is_main_thread)
}

/// Asserts the truth of the program `Lines`: the share of time on the lines of its first loop and of its second.
#[track_caller]
pub fn assert_loops_have_their_time(target: &mut Target, truth: f64) {
    let said = target.lines().iter().find_map(|l| l.strip_prefix("lines ").map(str::to_owned)).unwrap();
    let marks: Vec<u64> = said.split(' ').map(|n| n.parse().unwrap()).collect();
    let claims = [
        ("the first loop".to_owned(), share_of_loop(truth)),
        ("the second loop".to_owned(), share_of_loop(1.0 - truth)),
        ("elsewhere in the method".to_owned(), Claim::AtMost(0.005)),
    ];
    prove_tallies(&claims, || {
        let loops = ticks_of_loops(target, &marks);
        let samples = loops.iter().sum();
        loops.map(|hits| Tally { hits, samples }).to_vec()
    });
}

/// The claim of a loop's share, which may be nothing or everything.
fn share_of_loop(truth: f64) -> Claim {
    match truth {
        ..=0.0 => Claim::AtMost(0.005),
        1.0.. => Claim::AtLeast(0.995),
        _ => Claim::Is(truth),
    }
}

/// Ticks in the program `Lines`: in its first loop, in its second, elsewhere in the method.
fn ticks_of_loops(target: &Target, marks: &[u64]) -> [u64; 3] {
    let mut loops = [0; 3];
    let report = profile_at_high_rate(target, 1.0, &["--lines"]).report;
    for row in report["lines"].as_array().expect("--lines gives lines") {
        if row["function"] != "Lines.loops" {
            continue;
        }
        let (line, ticks) = (row["line"].as_u64().unwrap(), row["self"].as_u64().unwrap());
        match line {
            line if line > marks[0] && line < marks[1] => loops[0] += ticks,
            line if line > marks[1] && line < marks[2] => loops[1] += ticks,
            _ => loops[2] += ticks,
        }
    }
    loops
}

/// Whether a stack is of a JVM's main thread; the profile needs `--per-thread`.
pub fn is_main_thread(stack: &[String]) -> bool {
    stack.get(1).is_some_and(|thread| thread.starts_with("[java tid="))
}

/// A path for an output that no other test uses.
pub fn out_file(extension: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}.{extension}", NEXT.fetch_add(1, Ordering::Relaxed));
    scratch(&format!("out-{}", std::process::id())).join(name)
}

/// Whether a profiler has a helper process that asks a JVM.
pub fn has_helper(profiler: u32) -> bool {
    !children_as(profiler, "__jvm-helper").is_empty()
}

/// Child processes of a profiler that have this word among their arguments.
pub fn children_as(profiler: u32, work: &str) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{profiler}/task")).unwrap();
    let children =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).ok());
    let is_one = |pid: &&str| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&b| b == 0).any(|word| word == work.as_bytes())
    };
    let all: Vec<String> = children.collect();
    let all = all.iter().flat_map(|children| children.split_whitespace());
    all.filter(is_one).map(|pid| pid.parse().unwrap()).collect()
}
