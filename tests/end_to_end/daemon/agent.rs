//! The JVMs to which the agent is attached, and those to which it is not.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::home;
use super::pauses::{Collected, assert_windows_have_pauses};
use super::pods::{Pod, new_uid};
use super::receiver::{Identity, Receiver, free_port};
use super::run::Daemon;
use testkit::cgroup::{Group, naming};
use testkit::claims::{prove, seen};
use testkit::folded::has;
use testkit::java::{Jdk, Program};
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// The namespace of the pods: no other test has it.
const NAMESPACE: &str = "agents";

/// The number of attach attempts with this result.
pub(crate) fn results(daemon: &Daemon, result: &str) -> u32 {
    sample(daemon, &format!("jbpf_prof_attach_total{{result=\"{result}\"}} "))
}

/// A kubelet, and the settings of a daemon that asks this kubelet for an annotation.
struct Kubelet {
    server: Receiver,
    settings: String,
}

impl Kubelet {
    /// `name` is that of its files.
    fn start(name: &str) -> Kubelet {
        let identity = Identity::new(name, "DNS:node-1");
        let (port, files) = (free_port(), scratch(name));
        fs::write(files.join("token"), "secret\n").unwrap();
        fs::write(files.join("ca.pem"), &identity.certificate).unwrap();
        let settings = format!(
            "agent-annotation = [\"jbpf-prof/agent=true\"]\nkubelet-name = \"node-1\"\n\
             kubelet-url = \"https://127.0.0.1:{port}\"\nkubelet-token-file = \"{at}/token\"\n\
             kubelet-ca-file = \"{at}/ca.pem\"",
            at = files.display()
        );
        Kubelet { server: Receiver::listen_as(&identity, port), settings }
    }

    /// From now on the kubelet knows these pods, by uid; those that opt in have the annotation.
    fn answer(&self, pods: &[(&str, bool)]) {
        let items = pods.iter().map(|(uid, opts_in)| {
            let annotations = if *opts_in { json!({"jbpf-prof/agent": "true"}) } else { Value::Null };
            json!({"metadata": {"uid": uid, "annotations": annotations}, "spec": {"containers": []}})
        });
        let items: Vec<Value> = items.collect();
        self.server.answer(json!({"kind": "PodList", "apiVersion": "v1", "items": items}).to_string());
    }

    /// Asserts that the daemon has asked for the pods, with the token.
    fn assert_was_asked(&self) {
        self.server.with(|taken| {
            assert!(taken.iter().all(|request| request.path == "/pods"));
            taken[0].assert_says("authorization: bearer secret");
        });
    }
}

/// A short start: names are asserted, not shares.
fn program(main: &str) -> Program {
    Program::new(main).args(&["100"])
}

/// JVMs that run before the daemon. Those outside of pods are known by the names of their processes.
struct Jvms {
    wants: (String, Target),
    refuses: (String, Target),
    other: (String, Target),
    of_pod: Target,
    /// The variable by which a JVM wants the agent.
    variable: String,
}

impl Jvms {
    /// Starts all at once and waits until they are ready: each is busy as soon as it is, and would delay the next one.
    fn start(pod: &Pod) -> Jvms {
        let variable = format!("AGENT_OF_{}", std::process::id());
        let spawn = |program: &Program, wants: bool| {
            let line = program.host_command(&Jdk::host());
            let link = native::under_own_name(Path::new(&line[0]), "jvm");
            let name = link.file_name().unwrap().to_str().unwrap().to_owned();
            let mut command = Command::new(link);
            command.args(&line[1..]).envs(wants.then_some((variable.as_str(), "1")));
            let jvm = Target::spawn(&mut command);
            (name, jvm)
        };
        let in_pod = program("Shares").host_command(&Jdk::host());
        let mut jvms = Jvms {
            wants: spawn(&program("Shares"), true),
            refuses: spawn(&program("Lines").flags(&["-XX:+DisableAttachMechanism"]), true),
            other: spawn(&program("Shares"), false),
            of_pod: Target::spawn(pod.group.enter(Path::new(&in_pod[0])).args(&in_pod[1..])),
            variable,
        };
        for jvm in [&mut jvms.wants.1, &mut jvms.refuses.1, &mut jvms.other.1, &mut jvms.of_pod] {
            jvm.wait_for(|line| line == "ready");
        }
        jvms
    }

    fn assert_named(&self, daemon: &mut Daemon) {
        let since = daemon.since_now();
        for ((name, _), methods) in
            [(&self.wants, "Shares."), (&self.refuses, "Lines."), (&self.other, "Shares.")]
        {
            wait_for_names(daemon, &format!("{since}&process={name}"), methods);
        }
        wait_for_names(daemon, &format!("{since}&{}", of_pod("web-0")), "Shares.");
    }
}

/// The query for a pod.
fn of_pod(name: &str) -> String {
    format!("namespace={NAMESPACE}&pod={name}")
}

/// Waits for ticks of the query in methods with this prefix.
#[track_caller]
fn wait_for_names(daemon: &mut Daemon, query: &str, methods: &str) {
    daemon.wait(&format!("{methods} of {query}"), |daemon| {
        daemon.stored(query).count(|stack| stack.iter().any(|frame| frame.starts_with(methods))) > 20
    });
}

#[test]
fn the_agent_is_for_those_that_want_it_and_who_refuses_is_read_and_not_asked_again() {
    if !is_root() {
        return;
    }
    let kubelet = Kubelet::start("kubelet");
    kubelet.answer(&[]);
    let pods = Group::own(&naming(), "kubepods");
    let web = Pod::make(&pods, &format!("{NAMESPACE}_web-0"), &new_uid());
    // This one is idle until it is told to collect.
    let mut collected = Collected::start();
    let jvms = Jvms::start(&web);

    let policy = format!(
        "java = \"vm\"\nattach-timeout = \"60s\"\nagent-env = [\"{}=1\"]\nagent-pod = [\"{NAMESPACE}/web-*\"]\n{}",
        jvms.variable, kubelet.settings
    );
    let home = home("agent");
    let mut daemon = Daemon::start_alone(&home, &policy);
    daemon.wait_for_windows(1);
    // The JVM that wants the agent, and the one in the pod. The agent stays in a JVM and is found after a pause.
    daemon.wait("two agents", |d| results(d, "agent") == 2);
    daemon.wait("the memory of the others", |d| results(d, "memory") >= 3);
    assert_eq!(results(&daemon, "attach disabled"), 1, "{}", daemon.metrics());
    kubelet.assert_was_asked();
    jvms.assert_named(&mut daemon);
    // This pauses the daemon.
    assert_windows_have_pauses(&mut daemon, &home, &mut collected);
    assert_eq!(results(&daemon, "agent"), 2, "{}", daemon.metrics());
    daemon.throw(false);
    daemon.wait("two agents again", |d| results(d, "agent") == 4);
    jvms.assert_named(&mut daemon);
    assert_eq!(results(&daemon, "agent"), 4, "{}", daemon.metrics());
    assert_eq!(results(&daemon, "attach disabled"), 1, "asked once: {}", daemon.metrics());
    drop((jvms, collected));
    daemon.wait("a window without the JVMs that have ended", |d| with_agent(d) == 0);
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

#[test]
fn a_pod_opts_in_by_an_annotation_before_it_runs_or_while_it_runs() {
    if !is_root() {
        return;
    }
    let (kubelet, uids) = (Kubelet::start("kubelet-of-annotations"), [new_uid(), new_uid()]);
    kubelet.answer(&[(uids[0].as_str(), false)]);
    let pods = Group::own(&naming(), "kubepods");
    let old = Pod::make(&pods, &format!("{NAMESPACE}_old-0"), &uids[0]);
    let _runs = program("Lines").start_in(&old.group);
    let policy = format!("java = \"vm\"\nattach-timeout = \"60s\"\n{}", kubelet.settings);
    let mut daemon = Daemon::start_alone(&home("annotations"), &policy);
    daemon.wait_for_windows(1);
    wait_for_names(&mut daemon, &of_pod("old-0"), "Lines.");
    assert_eq!(results(&daemon, "agent"), 0, "names of its memory: {}", daemon.metrics());
    kubelet.assert_was_asked();
    // The new pod makes the daemon ask the kubelet again; then sampling begins anew for the pod that already ran.
    kubelet.answer(&[(uids[0].as_str(), true), (uids[1].as_str(), true)]);
    let new = Pod::make(&pods, &format!("{NAMESPACE}_new-0"), &uids[1]);
    let _begins = program("Shares").start_in(&new.group);
    daemon.wait("the agent in the one that begins, then in both", |d| with_agent(d) == 2);
    assert_eq!(daemon.metric("pods_opted_in"), 2.0, "{}", daemon.metrics());
    assert!(daemon.metrics().contains("jbpf_prof_kubelet_requests_total{result=\"failed\"} 0"));
    let path = format!("/profile?seconds=1&format=folded&{}", of_pod("old-0"));
    let in_main = has("Lines.main");
    let of_old = prove(|| daemon.api(&path).stacks(), &[seen(11, "samples of the main method", in_main)]);
    assert_eq!(of_old.within("Shares.main").total(), 0, "{}", of_old.top(9));
    let since = daemon.since_now();
    wait_for_names(&mut daemon, &format!("{since}&{}", of_pod("old-0")), "Lines.");
    wait_for_names(&mut daemon, &format!("{since}&{}", of_pod("new-0")), "Shares.");
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

/// The number of JVMs of the last window that have the agent.
fn with_agent(daemon: &Daemon) -> u32 {
    sample(daemon, "jbpf_prof_jvms{names=\"agent\"} ")
}

/// The value of the metric whose line begins so; 0 if there is none.
fn sample(daemon: &Daemon, start: &str) -> u32 {
    let metrics = daemon.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(start)?.parse().ok()).unwrap_or(0)
}
