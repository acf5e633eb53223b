//! Programs that have ended leave nothing behind that blocks others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::home;
use crate::mounted::Mounted;
use crate::run::Daemon;
use testkit::target::Target;
use testkit::{is_root, scratch};

/// Whether a process of this name has the file open.
fn is_open_in(name: &str, file: &Path) -> bool {
    let named = |pid: &PathBuf| fs::read_to_string(pid.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let pids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(named);
    let links = pids.filter_map(|pid| fs::read_dir(pid.join("fd")).ok()).flatten();
    links.filter_map(|link| fs::read_link(link.ok()?.path()).ok()).any(|to| to == file)
}

#[test]
fn a_file_system_can_be_unmounted_when_its_programs_have_ended() {
    if !is_root() {
        return;
    }
    let place = scratch("unmounted");
    let mounted = Mounted::at(&place, "size=8m");
    let program = place.join("busy");
    fs::copy("/bin/sh", &program).unwrap();
    let mut daemon = Daemon::start(&home("unmounts"), "");
    let busy = Target::start(Command::new(&program).args(["-c", "echo ready; while :; do :; done"]));
    daemon.wait("the worker that reads the program", |_| is_open_in("jbpf-worker", &program));
    drop(busy);
    daemon.wait("the end of all that has it open", |_| mounted.unmount());
}
