//! The JVMs to which the agent is attached, and those to which it is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::home;
use crate::receiver::{Identity, Receiver, free_port};
use crate::run::{Daemon, folded};
use testkit::cgroup::{Group, naming};
use testkit::folded::Folded;
use testkit::java::{Jdk, Program};
use testkit::target::Target;
use testkit::{is_root, scratch};

/// The log directory of a pod, which the kubelet keeps while the pod runs.
struct Logs {
    pod: PathBuf,
    /// Whether there was no directory of other pods before.
    alone: bool,
}

/// A pod: its cgroup, and its log directory on the node.
pub(crate) struct Pod {
    pub(crate) group: Group,
    _logs: Logs,
}

impl Pod {
    /// `name` has the form `NAMESPACE_NAME`.
    pub(crate) fn make(pods: &Group, name: &str, uid: &str) -> Pod {
        let all = Path::new("/var/log/pods");
        let logs = Logs { pod: all.join(format!("{name}_{uid}")), alone: !all.exists() };
        fs::create_dir_all(&logs.pod).unwrap();
        Pod { group: Group::make(pods.path(), &format!("pod{uid}")), _logs: logs }
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

/// The number of attach attempts with this result.
pub(crate) fn results(daemon: &Daemon, result: &str) -> u32 {
    let start = format!("jbpf_prof_attach_total{{result=\"{result}\"}} ");
    let metrics = daemon.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
}

/// Asserts that methods with these prefixes have ticks in the windows from `first` on.
#[track_caller]
fn assert_named(daemon: &Daemon, first: usize, methods: &[&str]) {
    let mut windows = Folded::default();
    daemon.files()[first..].iter().for_each(|file| windows.add(folded(file)));
    for method in methods {
        let ticks = windows.count(|stack| stack.iter().any(|frame| frame.starts_with(method)));
        assert!(ticks > 20, "{ticks} ticks in {method}: {}", daemon.said());
    }
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
    let pods = Group::own(&naming(), "kubepods");
    let pod = Pod::make(&pods, "shop_web-0", "0a1b2c3d-0000-1111-2222-333344447777");
    let _of_pod = Program::new("InlinedShares").start_in(&pod.group);

    let policy = "java = \"vm\"\nattach-timeout = \"60s\"\nagent-env = [\"JBPF_PROF_AGENT=1\"]\nagent-pod = [\"shop/web-*\"]";
    let mut daemon = Daemon::start(&home("agent"), policy);
    daemon.wait_for_windows(1);
    for _ in 0..2 {
        let before = daemon.files().len();
        daemon.wait_for_windows(before + 3);
        // The JVM that wants the agent, and the one in the pod. The agent stays in a JVM and is found after a pause.
        assert_eq!(results(&daemon, "agent") % 2, 0, "{}", daemon.metrics());
        assert!(results(&daemon, "agent") >= 2 && results(&daemon, "memory") >= 2, "{}", daemon.metrics());
        assert_eq!(results(&daemon, "attach disabled"), 1, "asked once: {}", daemon.metrics());
        daemon.pause();
        assert_named(&daemon, before, &["Lines.", "Shares.", "InlinedShares."]);
        daemon.throw(false);
    }
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

/// The answer of a kubelet with these pods; those that opt in have the annotation.
fn list(pods: &[(&str, bool)]) -> String {
    let items = pods.iter().map(|(uid, opts_in)| {
        let annotations = if *opts_in { json!({"jbpf-prof/agent": "true"}) } else { Value::Null };
        json!({"metadata": {"uid": uid, "annotations": annotations}, "spec": {"containers": []}})
    });
    json!({"kind": "PodList", "apiVersion": "v1", "items": items.collect::<Vec<_>>()}).to_string()
}

#[test]
fn a_pod_opts_in_by_an_annotation_before_it_runs_or_while_it_runs() {
    if !is_root() {
        return;
    }
    let (first, second) = ("0a1b2c3d-0000-1111-2222-333344448888", "0a1b2c3d-0000-1111-2222-333344449999");
    let identity = Identity::new("kubelet-identity", "DNS:node-1");
    let (port, files) = (free_port(), scratch("kubelet-files"));
    let kubelet = Receiver::listen_as(&identity, port);
    kubelet.answer(list(&[(first, false)]));
    fs::write(files.join("token"), "secret\n").unwrap();
    fs::write(files.join("ca.pem"), &identity.certificate).unwrap();
    let pods = Group::own(&naming(), "kubepods");
    let pod = Pod::make(&pods, "shop_old-0", first);
    let _runs = Program::new("Lines").start_in(&pod.group);
    let policy = format!(
        "attach-timeout = \"60s\"\nagent-annotation = [\"jbpf-prof/agent=true\"]\nkubelet-name = \"node-1\"\n\
         kubelet-url = \"https://127.0.0.1:{port}\"\nkubelet-token-file = \"{at}/token\"\n\
         kubelet-ca-file = \"{at}/ca.pem\"",
        at = files.display()
    );
    let mut daemon = Daemon::start(&home("annotation"), &policy);
    daemon.wait_for_windows(1);
    assert_eq!(results(&daemon, "agent"), 0, "{}", daemon.metrics());
    assert!(results(&daemon, "memory") >= 1, "{}", daemon.metrics());
    kubelet.with(|taken| {
        assert!(taken.iter().all(|request| request.path == "/pods"));
        taken[0].assert_says("authorization: bearer secret");
    });
    // The new pod makes the daemon ask the kubelet again; then sampling begins anew for the pod that already ran.
    kubelet.answer(list(&[(first, true), (second, true)]));
    let other = Pod::make(&pods, "shop_new-0", second);
    let _begins = Program::new("InlinedShares").start_in(&other.group);
    let both = "jbpf_prof_jvms{names=\"agent\"} 2\n";
    daemon.wait("the agent in the one that begins, then in both", |d| d.metrics().contains(both));
    let before = daemon.files().len();
    daemon.wait_for_windows(before + 2);
    assert_eq!(daemon.metric("pods_opted_in"), 2.0, "{}", daemon.metrics());
    assert!(daemon.metrics().contains("jbpf_prof_kubelet_requests_total{result=\"failed\"} 0"));
    let asked = daemon.api("/profile?seconds=1&format=folded&namespace=shop&pod=old-0").text();
    let of_pod = Folded::parse(&asked).keep(|stack| stack[0] != "[lost]");
    let own = of_pod.within("Lines.main").total();
    assert!(own > 10 && of_pod.within("InlinedShares.main").total() == 0, "{}", of_pod.top(9));
    daemon.pause();
    assert_named(&daemon, before, &["Lines.", "InlinedShares."]);
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}
