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
    let sleeper_dir = scratch("waits-sleeper");
    let sleeper = sleeper_dir.join("sleeper");
    fs::copy("/bin/sleep", &sleeper).unwrap();
    let mut sleeper = Command::new(sleeper).arg("1000").spawn().unwrap();
    // A shell that waits for its children, which wait for the timer.
    let waiter = sleeper_dir.join("waiter");
    fs::copy("/bin/sh", &waiter).unwrap();
    let script = "while :; do /bin/sleep 0.05; done";
    let mut waiter = Command::new(waiter).args(["-c", script]).spawn().unwrap();
    let mut daemon = Daemon::start(&home("waits"), "events = [\"wall\"]\nwakers = true");
    daemon.wait_for_windows(1);
    let waits = Folded::parse(&daemon.api("/profile?seconds=4&event=wait&format=folded").text());
    let of_sleep = waits.count(|stack| stack[0] == "sleeper") as f64;
    // At least the windows that lie within the 4 seconds; at most one more at each end.
    assert!((2.0 * HZ..=9.0 * HZ).contains(&of_sleep), "{of_sleep}\n{}", waits.top(9));
    let leaf = waits.count(|stack| stack[0] == "sleeper" && stack.last().unwrap() == "[wait: timer]") as f64;
    assert_eq!(leaf, of_sleep, "{}", waits.top(9));
    let of_children =
        waits.keep(|stack| stack[0] == "waiter" && stack.iter().any(|f| f == "[wait: child process]"));
    let ended = of_children.keep(|stack| stack.iter().any(|frame| frame == "--"));
    let by_child = ended.share(|stack| stack.last().unwrap() == "sleep_[w]");
    assert!(
        ended.total() > 200 && by_child > 0.95,
        "{by_child} of {}\n{}",
        ended.total(),
        of_children.top(9)
    );
    assert_eq!(waits.count(|stack| stack[0] == "native" && stack.last().unwrap().starts_with("[idle")), 0);
    let sleeping =
        Folded::parse(&daemon.api("/profile?seconds=2&reason=time*&format=folded").text()).without_wakers();
    assert!(sleeping.count(|stack| stack[0] == "sleeper") as f64 > HZ, "{}", sleeping.top(9));
    assert_eq!(sleeping.share(|stack| stack.last().unwrap() == "[wait: timer]"), 1.0, "{}", sleeping.top(9));
    let running = Folded::parse(&daemon.api("/profile?seconds=2&state=running&format=folded").text());
    assert!(running.count(|stack| stack[0] == "native") > 20, "{}", running.top(9));
    assert_eq!(running.count(|stack| stack[0] == "sleeper"), 0, "{}", running.top(9));
    let cpu = Folded::parse(&daemon.api("/profile?seconds=2&event=cpu&format=folded").text());
    assert!(cpu.count(|stack| stack[0] == "native") > 20, "{}", cpu.top(9));
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
    for program in [&mut sleeper, &mut waiter] {
        program.kill().unwrap();
        program.wait().unwrap();
    }
}
