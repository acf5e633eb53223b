//! Waiting time in the daemon: in each window, also of threads whose wait does not end.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use testkit::folded::Folded;
use testkit::{is_root, scratch};

use super::home;
use super::run::Daemon;

/// The daemon's rate, samples a second.
const HZ: f64 = 99.0;

#[test]
fn a_thread_that_waits_for_ever_is_in_each_window() {
    if !is_root() {
        return;
    }
    // By a name of its own: other processes sleep, too.
    let sleeper = scratch("waits-sleeper").join("sleeper");
    fs::copy("/bin/sleep", &sleeper).unwrap();
    let mut sleeper = Command::new(sleeper).arg("1000").spawn().unwrap();
    let mut daemon = Daemon::start(&home("waits"), "events = [\"wall\"]");
    daemon.wait_for_windows(1);
    let waits = Folded::parse(&daemon.api("/profile?seconds=4&event=wait&format=folded").text());
    let of_sleep = waits.count(|stack| stack[0] == "sleeper") as f64;
    // At least the windows that lie within the 4 seconds; at most one more at each end.
    assert!((2.0 * HZ..=9.0 * HZ).contains(&of_sleep), "{of_sleep}\n{}", waits.top(9));
    let leaf = waits.count(|stack| stack[0] == "sleeper" && stack.last().unwrap() == "[wait: timer]") as f64;
    assert_eq!(leaf, of_sleep, "{}", waits.top(9));
    assert_eq!(waits.count(|stack| stack[0] == "native" && stack.last().unwrap().starts_with("[idle")), 0);
    let sleeping = Folded::parse(&daemon.api("/profile?seconds=2&reason=time*&format=folded").text());
    assert!(sleeping.count(|stack| stack[0] == "sleeper") as f64 > HZ, "{}", sleeping.top(9));
    assert_eq!(sleeping.share(|stack| stack.last().unwrap() == "[wait: timer]"), 1.0, "{}", sleeping.top(9));
    let running = Folded::parse(&daemon.api("/profile?seconds=2&state=running&format=folded").text());
    assert!(running.count(|stack| stack[0] == "native") > 100, "{}", running.top(9));
    assert_eq!(running.count(|stack| stack[0] == "sleeper"), 0, "{}", running.top(9));
    let cpu = Folded::parse(&daemon.api("/profile?seconds=2&event=cpu&format=folded").text());
    assert!(cpu.count(|stack| stack[0] == "native") > 100, "{}", cpu.top(9));
    for (path, status) in [
        ("/profile?seconds=1&event=x", 400),
        ("/profile?seconds=1&state=x", 400),
        ("/profile?seconds=1&reason=x", 400),
        ("/profile?seconds=1&event=page-faults", 404),
    ] {
        assert_eq!(daemon.api(path).status, status, "{path}");
    }
    assert!(daemon.metrics().contains("event_samples_total{event=\"wait\",result=\"kept\"}"));
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}
