//! The daemon as a service of systemd: notifications, priorities in the journal, settings from variables, the unit.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use crate::home;
use crate::run::Daemon;
use testkit::profiler::binary;
use testkit::{is_root, scratch};

/// The notifications that wait in a socket.
fn received(socket: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 512];
    let next = || {
        socket.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    std::iter::from_fn(next).collect()
}

/// The socket of a service manager. The path of a socket must be short.
fn manager() -> (tempfile::TempDir, UnixDatagram) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    socket.set_nonblocking(true).unwrap();
    (directory, socket)
}

/// Waits for a notification; all that came until then.
fn wait_for(daemon: &mut Daemon, socket: &UnixDatagram, wanted: &str) -> Vec<String> {
    let messages = RefCell::new(Vec::new());
    daemon.wait(wanted, |_| {
        messages.borrow_mut().extend(received(socket));
        messages.borrow().iter().any(|message| message == wanted)
    });
    messages.into_inner()
}

#[test]
fn a_service_manager_is_notified() {
    if !is_root() {
        return;
    }
    let (directory, socket) = manager();
    let path = directory.path().join("notify");
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "4000000")];
    let mut daemon = Daemon::start_with(&home("service"), "", &variables);
    let messages = wait_for(&mut daemon, &socket, "STATUS=sampling");
    assert_eq!(messages[0], "READY=1", "{messages:?}");
    assert!(messages.iter().any(|message| message == "WATCHDOG=1"), "{messages:?}");
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
    assert!(received(&socket).iter().any(|message| message == "STOPPING=1"));
}

#[test]
fn settings_are_read_again_and_invalid_ones_change_nothing() {
    if !is_root() {
        return;
    }
    let (directory, socket) = manager();
    let path = directory.path().join("notify");
    let mut daemon =
        Daemon::start_with(&home("reload"), "window = \"1s\"", &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    daemon.wait_for_windows(1);
    received(&socket);
    let monotonic = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1000
    };
    // Returns the notifications of a reload, from RELOADING to READY.
    let reload = |daemon: &mut Daemon| {
        let before = monotonic();
        daemon.signal(Signal::HUP);
        let messages = wait_for(daemon, &socket, "READY=1");
        let at = messages.iter().find_map(|message| message.strip_prefix("RELOADING=1\nMONOTONIC_USEC="));
        let at: i64 = at.unwrap_or_else(|| panic!("{messages:?}")).parse().unwrap();
        assert!((before..=monotonic()).contains(&at), "{at}");
    };
    daemon.edit_settings("frequency = 99", "frequency = \"x\"");
    reload(&mut daemon);
    let said = daemon.said();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("reload: ")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("stay as they are: ") && lines[0].contains("frequency"),
        "{said}"
    );
    assert_eq!(daemon.metric("frequency_hertz"), 99.0);
    daemon.edit_settings("frequency = \"x\"", "frequency = 49");
    daemon.edit_settings("window = \"1s\"", "window = \"3s\"");
    reload(&mut daemon);
    assert!(daemon.said().contains("change only when the daemon restarts: window"), "{}", daemon.said());
    daemon.wait("the new rate", |daemon| daemon.metric("frequency_hertz") == 49.0);
    let windows = daemon.files().len();
    daemon.wait_for_windows(windows + 1);
    assert_eq!(daemon.metric("session_failures_total"), 0.0, "{}", daemon.said());
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

#[test]
fn lines_for_the_journal_have_a_priority() {
    let file = scratch("journal").join("stderr");
    let said = |variable: &str| {
        let stderr = fs::File::create(&file).unwrap();
        let mut command = Command::new(binary());
        command.args(["daemon", "--check", "--config", "/nowhere"]).stderr(stderr);
        assert_eq!(command.env("JOURNAL_STREAM", variable).status().unwrap().code(), Some(2));
        fs::read_to_string(&file).unwrap()
    };
    assert!(said("").starts_with("jbpf-prof: /nowhere: "));
    // systemd names the device and the inode of the stream.
    let stream = fs::metadata(&file).unwrap();
    let said = said(&format!("{}:{}", stream.dev(), stream.ino()));
    assert!(said.starts_with("<3>jbpf-prof: /nowhere: "), "{said}");
}

#[test]
fn the_source_of_each_setting_is_printed() {
    let file = scratch("sources").join("settings.toml");
    fs::write(&file, "keep-age = \"6h\"\nmax-cpu = 1.5\n").unwrap();
    let mut command = Command::new(binary());
    command.args(["daemon", "--print-config", "--window", "20s"]);
    command.env("JBPF_PROF_CONFIG", &file).env("JBPF_PROF_MAX_CPU", "2.5");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for (setting, source) in [
        ("window = \"20s\"", "flag"),
        ("max-cpu = 2.5", "JBPF_PROF_MAX_CPU"),
        ("keep-age = \"6h\"", file.to_str().unwrap()),
        ("frequency = 19.0", "default"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{setting} "))).unwrap_or_default();
        assert!(line.ends_with(&format!("# {source}")), "{setting}: {text}");
    }
    // A wrong variable is refused as a wrong flag is.
    let output = command.env("JBPF_PROF_MAX_CPU", "much").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("JBPF_PROF_MAX_CPU: invalid value"), "{said}");
}

/// systemd itself judges the unit: no unknown line, and no more exposure than documented.
#[test]
fn the_unit_is_valid_and_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("LEFT OUT: this distribution has no systemd-analyze");
        return;
    }
    let unit =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/systemd/jbpf-prof.service")).unwrap();
    let file = scratch("unit").join("jbpf-prof.service");
    let unit: Vec<&str> = unit.lines().filter(|line| !line.starts_with("Documentation=")).collect();
    fs::write(&file, unit.join("\n").replace("/usr/bin/jbpf-prof", "/bin/true")).unwrap();
    for arguments in [&["verify"][..], &["security", "--offline=yes", "--threshold=40"]] {
        let output = Command::new("systemd-analyze").args(arguments).arg(&file).output().unwrap();
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && !said.contains("Unknown key"), "{arguments:?}: {said}");
        assert!(arguments[0] == "verify" || said.contains("Overall exposure level"), "{said}");
    }
}
