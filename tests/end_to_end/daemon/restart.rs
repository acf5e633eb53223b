//! What is stored survives the daemon's end, evicted caches and a full disk.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use testkit::is_root;

use super::home;
use super::mounted::Mounted;
use super::run::{self, Daemon, folded, sum_of};

#[test]
fn windows_survive_a_kill_and_a_full_disk_loses_old_ones_and_never_the_daemon() {
    if !is_root() {
        return;
    }
    let home = home("restart");
    let data = home.join("data");
    fs::create_dir_all(&data).unwrap();
    let _mounted = Mounted::at(&data, "size=4m");
    let mut daemon = Daemon::start(&home, "");
    daemon.wait_for_windows(3);
    let (kept, counted) = (daemon.files(), daemon.metric("windows_kept"));
    assert_eq!(daemon.end(Signal::KILL), None);
    drop(daemon);
    let after = run::windows(&home);
    assert_eq!(after[..kept.len()], kept, "what was there stays");
    // Lost are the window in progress, and earlier windows that were still being symbolized.
    assert!(after.len() as f64 >= counted, "{} of {counted} windows", after.len());
    after.iter().for_each(|file| assert!(folded(file).total() > 0, "{}", file.display()));
    // A file that an interrupted write leaves.
    let half = data.join("windows/.1-1.pb.gz.0123456789abcdef.tmp");
    fs::write(&half, "half").unwrap();
    let mut again = Daemon::start(&home, "max-memory = \"16MiB\"");
    again.wait_for_windows(after.len() + 1);
    assert_eq!(again.files()[..after.len()], after);
    assert!(!half.exists());
    assert!(again.listed().len() > after.len());

    assert_names_after_eviction(&mut again);
    assert_outlives_a_full_disk(&mut again, &home);
    assert_eq!(again.end(Signal::TERM), Some(0), "{}", again.said());
}

/// Caches that take too much are evicted, and nothing is missing afterwards.
fn assert_names_after_eviction(daemon: &mut Daemon) {
    daemon.wait("caches that are evicted", |daemon| sum_of(&daemon.metrics(), "evictions_total") > 0.0);
    let query = format!("{}&process={}", daemon.since_now(), daemon.busy().name());
    let is_named = |stack: &[String]| stack.iter().any(|frame| frame.starts_with("burn"));
    daemon.wait("samples with names", |daemon| daemon.stored(&query).count(is_named) > 40);
}

fn assert_outlives_a_full_disk(daemon: &mut Daemon, home: &Path) {
    let data = home.join("data");
    fill(&data);
    daemon.wait("an old window that is removed", |d| d.metric("windows_removed_total") > 0.0);
    // Another program takes all free space, also that of the windows, so that not even one window fits.
    daemon.wait("a window that is lost", |d| {
        run::windows(home).iter().for_each(|window| fs::remove_file(window).unwrap_or_default());
        fill(&data);
        d.metric("windows_lost_total") > 0.0
    });
    assert_eq!(daemon.ask("metrics.sock", "/readyz").unwrap().status, 200, "{}", daemon.said());
    let live = daemon.api("/profile?seconds=1&format=folded").text();
    assert!(!live.is_empty(), "profiles of now need no disk");
    for entry in fs::read_dir(&data).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().starts_with("junk") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let before = daemon.metric("windows_kept");
    daemon.wait("a window that is kept again", |d| d.metric("windows_kept") > before);
}

fn fill(directory: &Path) {
    for n in 0.. {
        let page = directory.join(format!("junk-{n}"));
        if !page.exists() && fs::write(&page, [1u8; 4096]).is_err() {
            // A file that was created without its content does not count.
            let _ = fs::remove_file(&page);
            return;
        }
    }
}
