//! Settings are read again while the daemon runs: invalid ones change nothing, and no window is lost.

use rustix::process::Signal;
use testkit::is_root;

use super::home;
use super::push::{exported, kept, pause_and_drain_spools, samples};
use super::receiver::{Receiver, free_port};
use super::run::Daemon;
use super::service::Manager;

/// The time in microseconds by the clock of notifications.
fn monotonic_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

/// Makes the daemon read its settings again, and waits for the notifications of that, from RELOADING to READY.
#[track_caller]
fn reload(daemon: &mut Daemon, manager: &Manager) {
    let before = monotonic_us();
    daemon.signal(Signal::HUP);
    let messages = manager.wait_for(daemon, "READY=1");
    let at = messages.iter().find_map(|message| message.strip_prefix("RELOADING=1\nMONOTONIC_USEC="));
    let at: i64 = at.unwrap_or_else(|| panic!("{messages:?}")).parse().unwrap();
    assert!((before..=monotonic_us()).contains(&at), "{at}");
}

fn url_setting(port: u16) -> String {
    format!("otlp-url = \"http://127.0.0.1:{port}\"")
}

#[test]
fn a_reload_changes_settings_and_sinks_and_loses_no_window() {
    if !is_root() {
        return;
    }
    let (manager, ports) = (Manager::new(), [free_port(), free_port()]);
    let sinks = ports.map(Receiver::listen);
    let more = format!("log-level = \"info\"\n{}", url_setting(ports[0]));
    let mut daemon =
        Daemon::start_with(&home("reload"), &more, &[("NOTIFY_SOCKET", manager.path().as_str())]);
    daemon.wait_for_windows(1);
    manager.received();
    assert_invalid_settings_change_nothing(&mut daemon, &manager);
    assert_rate_changes(&mut daemon, &manager);
    assert_sink_changes(&mut daemon, &manager, ports, &sinks);
    assert_eq!(daemon.metric("session_failures_total"), 0.0, "{}", daemon.said());
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

fn assert_invalid_settings_change_nothing(daemon: &mut Daemon, manager: &Manager) {
    daemon.edit_settings("frequency = 99", "frequency = \"x\"");
    reload(daemon, manager);
    let said = daemon.said();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("reload: ")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("stay as they are: ") && lines[0].contains("frequency"),
        "{said}"
    );
    assert_eq!(daemon.metric("frequency_hertz"), 99.0);
}

fn assert_rate_changes(daemon: &mut Daemon, manager: &Manager) {
    daemon.edit_settings("frequency = \"x\"", "frequency = 49");
    daemon.edit_settings("window = \"1s\"", "window = \"3s\"");
    reload(daemon, manager);
    assert!(daemon.said().contains("change only when the daemon restarts: window"), "{}", daemon.said());
    daemon.wait("the new rate", |daemon| daemon.metric("frequency_hertz") == 49.0);
    let windows = daemon.files().len();
    daemon.wait_for_windows(windows + 1);
}

/// A reload changes the sink's address: each window is at one of both servers.
fn assert_sink_changes(daemon: &mut Daemon, manager: &Manager, ports: [u16; 2], sinks: &[Receiver; 2]) {
    let [before, after] = sinks;
    pause_and_drain_spools(daemon, &["otlp"]);
    let sent = before.with(<[_]>::len);
    daemon.edit_settings(&url_setting(ports[0]), &url_setting(ports[1]));
    reload(daemon, manager);
    assert!(daemon.said().contains("reload: the settings were read"), "{}", daemon.said());
    let windows = daemon.files().len();
    daemon.throw(false);
    daemon.wait_for_windows(windows + 1);
    pause_and_drain_spools(daemon, &["otlp"]);
    let total = |receiver: &Receiver| -> u64 {
        receiver.with(|taken| taken.iter().map(|request| samples(&exported(&request.body))).sum())
    };
    assert_eq!(before.with(<[_]>::len), sent, "the old address gets no more");
    assert!(total(before) > 0 && total(after) > 0);
    assert_eq!(total(before) + total(after), kept(daemon), "what was pushed is what was kept");
    let requests = sent + after.with(<[_]>::len);
    assert_eq!(daemon.metric("push_total{sink=\"otlp\",result=\"sent\"}"), requests as f64, "counters go on");
}
