//! The daemon as a service of systemd: notifications, priorities in the journal, settings from variables, the unit.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use tempfile::TempDir;
use testkit::profiler::binary;
use testkit::{repository, scratch};

use super::run::Daemon;

/// A service manager, which receives the daemon's notifications.
pub(crate) struct Manager {
    /// The path of a socket must be short.
    directory: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    pub(crate) fn new() -> Manager {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Manager { directory, socket }
    }

    /// The value of the daemon's variable `NOTIFY_SOCKET`.
    pub(crate) fn path(&self) -> String {
        self.directory.path().join("notify").to_str().unwrap().to_owned()
    }

    /// The notifications that wait in the socket.
    pub(crate) fn received(&self) -> Vec<String> {
        let mut buffer = [0; 512];
        let next = || {
            let length = self.socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        std::iter::from_fn(next).collect()
    }

    /// Waits for a notification; all that came until then.
    #[track_caller]
    pub(crate) fn wait_for(&self, daemon: &mut Daemon, wanted: &str) -> Vec<String> {
        let messages = RefCell::new(Vec::new());
        daemon.wait(wanted, |_| {
            messages.borrow_mut().extend(self.received());
            messages.borrow().iter().any(|message| message == wanted)
        });
        messages.into_inner()
    }
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
    let unit = fs::read_to_string(repository().join("deploy/systemd/jbpf-prof.service")).unwrap();
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
