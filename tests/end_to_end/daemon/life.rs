//! A daemon from its start to its end: what it tells its service manager and its probes, its profiles over HTTP, and
//! the kill switch.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use testkit::claims::{prove, seen};
use testkit::folded::Folded;
use testkit::profiler::{self, Run};
use testkit::spent::spend;
use testkit::{is_root, scratch};

use super::ended::Ended;
use super::exposition::assert_well_formed;
use super::run::{Daemon, folded};
use super::service::Manager;
use super::{assert_adds_up, assert_no_gaps, home};

/// The answer of `jbpf-prof health`.
fn health(home: &Path, more: &[&str]) -> Run {
    let settings = home.join("settings.toml");
    let mut args = vec!["health", "--config", settings.to_str().unwrap()];
    args.extend(more);
    profiler::run(&args)
}

#[test]
fn windows_are_served_and_add_up_and_the_kill_switch_stops_them() {
    if !is_root() {
        return;
    }
    let (home, manager) = (home("life"), Manager::new());
    let variables = [("NOTIFY_SOCKET", manager.path()), ("WATCHDOG_USEC", "4000000".to_owned())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut daemon = Daemon::start_with(&home, "", &variables);
    let messages = manager.wait_for(&mut daemon, "STATUS=sampling");
    assert_eq!(messages[0], "READY=1", "{messages:?}");
    assert!(messages.iter().any(|message| message == "WATCHDOG=1"), "{messages:?}");
    daemon.wait_for_windows(1);
    assert_eq!(health(&home, &["--ready"]).success().stdout, "sampling\n");

    let ended = Ended::seen_by(&mut daemon);
    assert_serves_profiles(&mut daemon);
    assert_refuses_requests(&daemon);
    assert_well_formed(&daemon.metrics());
    ended.wait_until_unmounted(&mut daemon);
    assert_stops_while_the_switch_is_there(&mut daemon, &home);

    // The socket's queue holds ten messages, and a further one is dropped.
    manager.received();
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
    assert!(manager.received().iter().any(|message| message == "STOPPING=1"));
    health(&home, &[]).refused(1, "no answer from a daemon at unix:");
}

fn assert_serves_profiles(daemon: &mut Daemon) {
    daemon.wait_for_windows(2);
    daemon.wait_for_busy(120);
    let busy = daemon.busy();
    let kept = daemon.metric("windows_kept");
    let now = || daemon.api("/profile?seconds=1&format=folded").stacks();
    prove(now, &[seen(21, "samples of the busy program in profiles of now", |stack| busy.has(stack))]);
    assert!(daemon.metric("windows_kept") > kept, "windows go on meanwhile");
    let list = daemon.listed();
    assert!(list.len() >= 2, "{list:?}");
    // A query over several windows returns the sum of their files.
    let (from, to) = (list[0]["from"].as_f64().unwrap(), list[1]["to"].as_f64().unwrap());
    let both = format!("/window?from={}&to={}", from + 0.001, to - 0.001);
    let found = Folded::parse(&daemon.api(&format!("{both}&format=folded")).text());
    let files: u64 = daemon.files()[..2].iter().map(|file| folded(file).total()).sum();
    assert_eq!(found.total(), files);
    let packed = scratch("windows-packed").join("window.pb.gz");
    fs::write(&packed, daemon.api(&format!("{both}&format=pb.gz")).body).unwrap();
    assert_eq!(folded(&packed), found);
    // The star stands for the first letter.
    let only = format!("/window?from={from}&format=folded&process=*{}", &busy.name()[1..]);
    let only = Folded::parse(&daemon.api(&only).text());
    assert_eq!(only.total(), only.count(|stack| busy.has(stack) || stack[0] == "[lost]"));
    assert!(only.count(|stack| busy.has(stack)) > 100, "{}", only.top(9));
    let picture = daemon.api(&format!("/window?from={from}&format=svg")).text();
    assert!(picture.starts_with("<?xml") && picture.contains(busy.name()), "a flame graph");
}

fn assert_refuses_requests(daemon: &Daemon) {
    for (path, status) in [
        ("/window?from=5&to=4", 400),
        ("/window?form=5", 400),
        ("/window?from=5&to=6", 404),
        ("/profile?seconds=0", 400),
        ("/profile?format=png", 400),
        ("/nothing", 404),
    ] {
        assert_eq!(daemon.api(path).status, status, "{path}");
    }
    // The metrics socket serves no data of tenants.
    for path in ["/windows", "/window", "/profile"] {
        assert_eq!(daemon.ask("metrics.sock", path).unwrap().status, 404, "{path}");
    }
    assert!(!daemon.metrics().contains(daemon.busy().name()), "{}", daemon.metrics());
}

fn assert_stops_while_the_switch_is_there(daemon: &mut Daemon, home: &Path) {
    daemon.wait_for_windows(3);
    daemon.pause();
    let files = assert_adds_up(daemon);
    let ticks = daemon.metric("ticks_total");
    let own: u64 = files.iter().map(|file| folded(file).count(|stack| daemon.busy().has(stack))).sum();
    assert!(own > 100, "{own} samples of a program that is busy all the time");
    assert_no_gaps(&files);
    assert_eq!(daemon.metric("paused"), 1.0);
    health(home, &[]).success();
    health(home, &["--ready"]).refused(1, "paused by the kill switch");
    // A program that uses the CPU has no more samples.
    spend(daemon.busy().pid(), Duration::from_millis(300));
    assert_eq!((daemon.metric("ticks_total"), daemon.files()), (ticks, files.clone()));
    daemon.throw(false);
    daemon.wait_for_windows(files.len() + 1);
    assert_eq!(daemon.ask("metrics.sock", "/readyz").unwrap().status, 200);
    assert!(daemon.metric("ticks_total") > ticks);
}
