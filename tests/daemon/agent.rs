//! Whom the agent is attached to, and whom it is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::common::cgroup::{Group, naming};
use crate::common::folded::Folded;
use crate::common::is_root;
use crate::common::java::{Jdk, Program};
use crate::common::target::Target;
use crate::home;
use crate::run::{Daemon, folded};

const UID: &str = "0a1b2c3d-0000-1111-2222-333344447777";

/// What the kubelet leaves of a pod while it runs.
struct Logs {
    pod: PathBuf,
    /// There were none of others.
    alone: bool,
}

impl Logs {
    fn of(pod: &str) -> Logs {
        let all = Path::new("/var/log/pods");
        let logs = Logs { pod: all.join(format!("{pod}_{UID}")), alone: !all.exists() };
        fs::create_dir_all(&logs.pod).unwrap();
        logs
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.pod);
        if self.alone {
            let _ = fs::remove_dir("/var/log/pods");
        }
    }
}

fn command(program: &Program) -> Command {
    let line = program.host_command(&Jdk::host());
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    command
}

/// How many inquiries had this result.
pub(crate) fn results(daemon: &Daemon, result: &str) -> u32 {
    let start = format!("jbpf_prof_attach_total{{result=\"{result}\"}} ");
    let metrics = daemon.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
}

#[test]
fn the_agent_is_for_those_that_want_it_and_who_refuses_is_read_and_not_asked_again() {
    if !is_root() {
        return;
    }
    let wants = ("JBPF_PROF_AGENT", "1");
    let _wants = Target::start(command(&Program::new("InlinedShares")).env(wants.0, wants.1));
    let refuses = Program::new("Lines").flags(&["-XX:+DisableAttachMechanism"]);
    let _refuses = Target::start(command(&refuses).env(wants.0, wants.1));
    let _other = Program::new("Shares").start(&Jdk::host());
    let _logs = Logs::of("shop_web-0");
    let pods = Group::own(&naming(), "kubepods");
    let pod = Group::make(pods.path(), &format!("pod{UID}"));
    let line = Program::new("InlinedShares").host_command(&Jdk::host());
    let _of_pod = Target::start(pod.enter(Path::new(&line[0])).args(&line[1..]));

    let policy = "java = \"vm\"\nattach-timeout = \"60s\"\nagent-env = [\"JBPF_PROF_AGENT=1\"]\nagent-pod = [\"shop/web-*\"]";
    let mut daemon = Daemon::start(&home("agent"), policy);
    daemon.wait_for_windows(1);
    for _ in 0..2 {
        let before = daemon.files().len();
        daemon.wait_for_windows(before + 3);
        // The one that wants it and the one in the pod; the agent stays in a JVM, and is met again after a pause.
        assert_eq!(results(&daemon, "agent") % 2, 0, "{}", daemon.metrics());
        assert!(results(&daemon, "agent") >= 2 && results(&daemon, "memory") >= 2, "{}", daemon.metrics());
        assert_eq!(results(&daemon, "attach disabled"), 1, "asked once: {}", daemon.metrics());
        daemon.pause();
        let windows: Vec<Folded> = daemon.files()[before..].iter().map(|file| folded(file)).collect();
        for method in ["Lines.", "Shares.", "InlinedShares."] {
            let named = |stack: &[String]| stack.iter().any(|frame| frame.starts_with(method));
            let ticks: u64 = windows.iter().map(|window| window.count(named)).sum();
            assert!(ticks > 20, "{ticks} ticks in {method}: {}", daemon.said());
        }
        daemon.throw(false);
    }
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}
