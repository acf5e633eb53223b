//! The daemon: windows add up and are kept, served and pushed, even if something ends, fills up or is missing.
//!
//! A daemon sees all processes and JVMs of the machine, also those of other tests. So what a test looks at has names
//! of its own, and no daemon asks or reads the JVMs of others, unless JVMs are its test's subject. What needs no
//! samples (sinks, access) runs on a daemon that is paused from the start.

mod agent;
mod budget;
mod busy;
mod collector;
mod deploy;
mod ended;
mod exposition;
mod life;
mod mounted;
mod page;
mod pauses;
mod pods;
mod push;
mod receiver;
mod reload;
mod restart;
mod retries;
mod run;
mod service;
mod services;
mod throttled;
mod waits;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{is_root, profiler, scratch};

use receiver::free_port;
use run::{Daemon, folded, get, sum_of, time_of};

/// A home without files of earlier runs.
fn home(name: &str) -> PathBuf {
    let home = scratch(name);
    fs::remove_dir_all(&home).unwrap();
    home
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// Asserts that each window of a paused daemon is kept, and that windows and counters agree; returns the files.
#[track_caller]
fn assert_adds_up(daemon: &Daemon) -> Vec<PathBuf> {
    let metrics = daemon.metrics();
    let files = daemon.files();
    assert_eq!(
        files.len() as f64,
        sum_of(&metrics, "windows_total"),
        "each window is kept: {}",
        daemon.said()
    );
    let shown: u64 = files.iter().map(|file| folded(file).total()).sum();
    let counted = sum_of(&metrics, "samples_total") + sum_of(&metrics, "samples_lost_total");
    assert_eq!(shown as f64, counted, "{metrics}");
    let ticks = sum_of(&metrics, "ticks_total");
    assert_eq!(ticks, counted + sum_of(&metrics, "ticks_filtered_total"), "{metrics}");
    files
}

/// Asserts that each window begins when the one before ends.
#[track_caller]
fn assert_no_gaps(files: &[PathBuf]) {
    let times: Vec<(u64, u64)> = files.iter().map(|file| time_of(file)).collect();
    for pair in times.windows(2) {
        let gap = pair[1].0.abs_diff(pair[0].0 + pair[0].1);
        assert!(gap <= 2, "{gap} ms between windows: {times:?}");
    }
}

#[test]
fn others_need_the_token_and_it_may_be_changed() {
    if !is_root() {
        return;
    }
    let home = home("token");
    fs::create_dir_all(&home).unwrap();
    let (token, port) = (home.join("token"), free_port());
    fs::write(&token, "first\n").unwrap();
    let at = format!("api = \"0.0.0.0:{port}\"\ntoken-file = \"{}\"", token.display());
    let _daemon = Daemon::start_paused(&home, &at);
    let ask =
        |head: &str| get(TcpStream::connect(("127.0.0.1", port)).unwrap(), "/windows", head).unwrap().status;
    assert_eq!(ask(""), 401);
    assert_eq!(ask("Authorization: Bearer second\r\n"), 401);
    assert_eq!(ask("Authorization: Bearer first\r\n"), 200);
    fs::write(&token, "second\n").unwrap();
    assert_eq!(ask("Authorization: Bearer first\r\n"), 401);
    assert_eq!(ask("Authorization: Bearer second\r\n"), 200);
    fs::remove_file(&token).unwrap();
    assert_eq!(ask("Authorization: Bearer second\r\n"), 403);
    let health = get(TcpStream::connect(("127.0.0.1", port)).unwrap(), "/healthz", "").unwrap();
    assert_eq!(health.status, 200, "probes have no token");
}

#[test]
fn settings_are_checked_and_mistakes_have_one_sentence() {
    let home = home("settings");
    fs::create_dir_all(&home).unwrap();
    let file = home.join("a.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        profiler::run(["daemon", "--check", "--config", file.to_str().unwrap()])
    };
    assert_eq!(check("frequency = 19\nkeep-age = \"6h\"\n").success().stdout, "the settings are valid\n");
    check("keep-days = 3\n").refused(2, "unknown setting keep-days; did you mean keep-age?");
    check("api = \"0.0.0.0:9\"\n").refused(2, "set token-file");
    profiler::run(["daemon", "--check", "--config", "/nowhere.toml"])
        .refused(2, "/nowhere.toml: No such file");
}

/// A directory that cannot be written is reported before sampling begins.
#[test]
fn a_directory_that_cannot_be_is_said_at_once() {
    if !is_root() {
        return;
    }
    let home = home("nowhere");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("data"), "a file").unwrap();
    let at = home.join("data").display().to_string();
    profiler::run(["daemon", "--directory", &at, "--metrics", "off", "--api", "off"])
        .refused(1, "cannot create the directory");
    assert!(Path::new(&at).is_file());
}
