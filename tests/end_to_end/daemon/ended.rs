//! Programs that have ended leave nothing behind that blocks others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::target::Target;
use testkit::{native, scratch};

use super::mounted::Mounted;
use super::run::Daemon;

/// A program that has ended, on a file system of its own.
pub(crate) struct Ended {
    mounted: Mounted,
}

impl Ended {
    /// Starts the program, and ends it when a worker of the daemon reads its file.
    pub(crate) fn seen_by(daemon: &mut Daemon) -> Ended {
        let place = scratch("unmounted");
        let mounted = Mounted::at(&place, "size=8m");
        let program = place.join("busy");
        native::copy(Path::new("/bin/sh"), &program);
        let busy = Target::start(Command::new(&program).args(["-c", "echo ready; while :; do :; done"]));
        daemon.wait("the worker that reads the program", |daemon| is_open_in_worker(daemon.pid(), &program));
        drop(busy);
        Ended { mounted }
    }

    /// The file system can be unmounted: nothing has the program's file open any more.
    #[track_caller]
    pub(crate) fn wait_until_unmounted(&self, daemon: &mut Daemon) {
        daemon.wait("the end of all that has it open", |_| self.mounted.unmount());
    }
}

/// Whether a symbol worker of this daemon has the file open.
fn is_open_in_worker(daemon: u32, file: &Path) -> bool {
    let is_worker = |pid: &PathBuf| {
        fs::read_to_string(pid.join("comm")).is_ok_and(|comm| comm.trim() == "jbpf-worker")
            && descends_from(pid, daemon)
    };
    let pids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_worker);
    let links = pids.filter_map(|pid| fs::read_dir(pid.join("fd")).ok()).flatten();
    links.filter_map(|link| fs::read_link(link.ok()?.path()).ok()).any(|to| to == file)
}

/// Whether the process with this directory is a child of another one, a child of a child, and so on.
fn descends_from(process: &Path, ancestor: u32) -> bool {
    let parent = |process: &Path| -> Option<u32> {
        let stat = fs::read_to_string(process.join("stat")).ok()?;
        // The state and the parent are the first fields after the name, which may have any characters.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let next = |pid: &u32| parent(&PathBuf::from(format!("/proc/{pid}")));
    std::iter::successors(parent(process), next).any(|pid| pid == ancestor)
}
