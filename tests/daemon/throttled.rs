//! How long JVMs were kept from running, over all windows.

use std::thread;
use std::time::Duration;

use crate::common::cgroup::Group;
use crate::common::java::Program;
use crate::common::{is_root, skip};
use crate::home;
use crate::run::Daemon;

#[test]
fn what_a_window_was_throttled_is_told_although_it_is_handed_over_later() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::limitable("throttled-window") else {
        return skip("no hierarchy here has the cpu controller");
    };
    // More than it can use.
    let enough = 1000 * thread::available_parallelism().unwrap().get();
    group.limit(enough);
    let _java = Program::new("Shares").start_in(&group);
    let before = group.throttled();
    // The JVM's stacks wait for the next window, and with them the window that has them.
    let mut daemon =
        Daemon::start(&home("throttled"), "window = \"1s\"\njava = \"agent\"\nlog-level = \"info\"");
    daemon.wait("the first window", |daemon| daemon.said().contains("sampling: begun"));
    let begun = group.throttled();
    group.limit(100);
    daemon.wait("a limit that is felt", |_| {
        thread::sleep(Duration::from_millis(10));
        group.throttled() > begun + 0.1
    });
    group.limit(enough);
    let within = group.throttled() - begun;
    daemon.wait_for_windows(1);
    daemon.pause();
    let (told, at_most) = (daemon.metric("jvms_throttled_seconds_total"), group.throttled() - before);
    assert!(
        (within - 0.001..=at_most + 0.001).contains(&told),
        "{told} s, but it is between {within} and {at_most}: {}",
        daemon.said()
    );
}
