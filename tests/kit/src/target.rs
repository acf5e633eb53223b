//! A profiled program: started, ready when it prints `ready`, killed at the end of the test.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, getpriority_process, kill_process, setpriority_process};

/// The timeout for all waits: on a busy machine too, everything that makes progress at all is faster.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The nice value of programs. Most of them burn CPU time until they are killed: what starts, compiles and evaluates comes
/// first.
const NICE: i32 = 5;

/// Starts a program that has this priority from its first instruction, as all its threads and children have. Only root gets
/// its own priority back.
fn at_low_priority<T>(start: impl FnOnce() -> T) -> T {
    if !geteuid().is_root() {
        return start();
    }
    // Of this thread, which the child inherits.
    let own = getpriority_process(None).unwrap();
    setpriority_process(None, NICE).unwrap();
    let started = start();
    setpriority_process(None, own).unwrap();
    started
}

/// A running program. Dropping it kills it.
pub struct Target {
    child: Child,
    pid: u32,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Target {
    /// Starts a program and waits until it prints `ready`.
    pub fn start(command: &mut Command) -> Target {
        let mut target = Target::spawn(command);
        target.wait_for(|line| line == "ready");
        target
    }

    /// Starts a program in a container. The runtime writes its pid in this pid namespace to a file, after the program
    /// has begun, and as a whole (`createPidFile` of runc renames it to its place).
    pub fn start_contained(command: &mut Command, pid_file: &Path) -> Target {
        let mut target = Target::start(command);
        let end = Instant::now() + TIMEOUT;
        while !pid_file.exists() {
            assert!(Instant::now() < end, "the runtime writes no {}", pid_file.display());
            std::thread::yield_now();
        }
        target.pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
        target
    }

    /// Starts a program that starts the one to profile and prints its pid (`pid N`), and waits until that one prints
    /// `ready`. Dropping the target kills the started program, and with it the other one.
    pub fn start_by(command: &mut Command) -> (Target, u32) {
        let mut target = Target::start(command);
        let pid = target.lines().iter().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        (target, pid.expect("it says the pid"))
    }

    /// Starts a program without waiting.
    pub fn spawn(command: &mut Command) -> Target {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = at_low_priority(|| command.spawn()).unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Target { pid: child.id(), child, lines, seen: Vec::new() }
    }

    /// Waits until the program prints a line for which `wanted` holds, and returns the line.
    pub fn wait_for(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("pid {} is not ready; it {}, and said {:?}", self.pid, self.doing(), self.seen)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the program ended with {:?}; it said {:?}", self.child.wait(), self.seen)
                }
            }
        }
    }

    /// The program's state, for the message of a failed test.
    fn doing(&self) -> String {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return "is gone".to_owned();
        };
        let after_name: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // Fields 3, 14 and 15 of proc(5).
        format!(
            "is in state {} after {} user and {} system ticks",
            after_name[0], after_name[11], after_name[12]
        )
    }

    /// Writes to the program's standard input.
    pub fn write(&mut self, bytes: &[u8]) {
        let mut stdin = self.child.stdin.as_ref().expect("standard input is a pipe");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).unwrap();
    }

    /// All lines that the program has printed so far.
    pub fn lines(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// The program's pid in this pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid(self.pid), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for the program's end; returns all lines that it, and those that inherited its output, have printed.
    pub fn finish(&mut self) -> (ExitStatus, &[String]) {
        let status = self.wait();
        self.seen.extend(self.lines.iter());
        (status, &self.seen)
    }

    /// Whether this is the program's pid, in this pid namespace or in its own.
    pub fn has_pid(&self, pid: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        pids.split_whitespace().any(|own| own == pid.to_string())
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A reaped process has given up its pid; a container's runtime ends with its container.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(pid(self.pid), Signal::KILL);
            let _ = self.child.wait();
            // A killed JVM leaves the socket of its attach listener. Another user's JVM with the same pid may not
            // replace the socket, so nothing can attach to that JVM.
            let _ = std::fs::remove_file(format!("/tmp/.java_pid{}", self.pid));
        }
    }
}

fn pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}
