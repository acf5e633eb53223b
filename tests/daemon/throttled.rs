//! The throttled time of JVMs over all windows.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::home;
use crate::run::Daemon;
use testkit::cgroup::Group;
use testkit::java::{Jdk, Program};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// More CPU time than a group can use.
fn enough() -> usize {
    1000 * thread::available_parallelism().unwrap().get()
}

/// A group whose limit has no effect yet; `None`, with a message, where no limit is possible.
fn group(name: &str) -> Option<Group> {
    let group = is_root().then(|| Group::limitable(name))?;
    match &group {
        Some(group) => group.limit(enough()),
        None => skip("no hierarchy here has the cpu controller"),
    }
    group
}

#[test]
fn late_windows_report_their_own_throttling() {
    let Some(group) = group("throttled-window") else { return };
    let _java = Program::new("Shares").start_in(&group);
    let before = group.throttled();
    // The JVM's stacks wait for the next window, and so does the window that contains them.
    let mut daemon =
        Daemon::start(&home("throttled"), "window = \"1s\"\njava = \"agent\"\nlog-level = \"info\"");
    daemon.wait("the first window", |daemon| daemon.said().contains("sampling: begun"));
    let begun = group.throttled();
    group.limit(100);
    daemon.wait("a limit that is felt", |_| {
        thread::sleep(Duration::from_millis(10));
        group.throttled() > begun + 0.1
    });
    group.limit(enough());
    let within = group.throttled() - begun;
    daemon.wait_for_windows(1);
    daemon.pause();
    let (shown, at_most) = (daemon.metric("jvms_throttled_seconds_total"), group.throttled() - before);
    assert!(
        (within - 0.001..=at_most + 0.001).contains(&shown),
        "{shown} s, but it is between {within} and {at_most}: {}",
        daemon.said()
    );
}

/// Windows are not reported while a JVM that ran in the first of them has not said whether it has names.
#[test]
fn an_exited_jvm_is_reported_in_its_own_window() {
    let Some(group) = group("throttled-ended") else { return };
    let throttled = Program::new("Shares").start_in(&group);
    let mut daemon = Daemon::start(&home("held"), "window = \"1s\"\njava = \"agent\"\nlog-level = \"info\"");
    daemon.wait_for_windows(1);
    // The JVM runs while it is linked, and then does nothing.
    let slow = native::library(&scratch("slow-link"), "slow_link", &[]);
    let line = Program::new("Shares").paused().host_command(&Jdk::host());
    let held = Target::spawn(Command::new(&line[0]).args(&line[1..]).env("LD_AUDIT", slow));
    daemon.wait("a JVM that does not answer", Daemon::has_helper);
    let begun = group.throttled();
    group.limit(100);
    daemon.wait("a limit that is felt", |_| group.throttled() > begun + 1.0);
    let within = group.throttled() - begun;
    // The throttled time of a JVM's last window cannot be known.
    thread::sleep(Duration::from_millis(2500));
    drop(throttled);
    thread::sleep(Duration::from_millis(2500));
    drop(held);
    daemon.pause();
    let shown = daemon.metric("jvms_throttled_seconds_total");
    assert!(shown >= within - 0.001, "{shown} s, but it was {within}: {}", daemon.said());
}
