//! The daemon: windows add up and are kept, served and pushed, even if something ends, fills up or is missing.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod agent;
mod budget;
mod collector;
mod deploy;
mod ended;
mod mounted;
mod page;
mod pauses;
mod push;
mod receiver;
mod run;
mod service;
mod services;
mod throttled;
mod waits;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use testkit::profiler;
use testkit::{is_root, scratch};

use mounted::Mounted;
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

#[test]
fn windows_add_up_and_the_kill_switch_stops_them() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start(&home("sums"), "");
    daemon.wait_for_windows(3);
    let thrown = now_ms();
    daemon.pause();
    let files = assert_adds_up(&daemon);
    let ticks = daemon.metric("ticks_total");
    let own = files.iter().map(|file| folded(file).count(|stack| stack[0] == "native")).sum::<u64>();
    assert!(own > 100, "{own} samples of a program that is busy all the time");
    // Each window follows the one before. The last one ends within a second of the switch, where a busy host lets it.
    let (start, length) = assert_no_gaps(&files);
    assert!(start + length <= thrown + 5000, "sampling went on for {} ms", start + length - thrown);
    assert_eq!(daemon.metric("paused"), 1.0);
    daemon.throw(false);
    daemon.wait_for_windows(files.len() + 1);
    assert!(daemon.ask("metrics.sock", "/readyz").unwrap().status == 200);
    assert!(daemon.metric("ticks_total") > ticks);
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
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

/// Asserts that each window begins when the one before ends; returns start and length of the last, in ms.
#[track_caller]
fn assert_no_gaps(files: &[PathBuf]) -> (u64, u64) {
    let times: Vec<(u64, u64)> = files.iter().map(|file| time_of(file)).collect();
    for pair in times.windows(2) {
        let gap = pair[1].0.abs_diff(pair[0].0 + pair[0].1);
        assert!(gap <= 2, "{gap} ms between windows: {times:?}");
    }
    *times.last().unwrap()
}

#[test]
fn profile_and_window_endpoints_return_profiles() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start(&home("windows-of-now"), "");
    daemon.wait_for_windows(1);
    let windows = daemon.metric("windows_kept");
    let live = testkit::folded::Folded::parse(&daemon.api("/profile?seconds=3&format=folded").text());
    assert!(live.count(|stack| stack[0] == "native") > 20, "{}", live.top(9));
    assert!(daemon.metric("windows_kept") > windows, "windows go on meanwhile");
    let listed: serde_json::Value = serde_json::from_str(&daemon.api("/windows").text()).unwrap();
    let list = listed["windows"].as_array().unwrap();
    assert!(list.len() >= 2, "{listed}");
    // A query over several windows returns the sum of their files.
    let (from, to) = (list[0]["from"].as_f64().unwrap(), list[1]["to"].as_f64().unwrap());
    let found = daemon.api(&format!("/window?from={}&to={}&format=folded", from + 0.001, to - 0.001)).text();
    let found = testkit::folded::Folded::parse(&found);
    let files: u64 = daemon.files()[..2].iter().map(|file| folded(file).total()).sum();
    assert_eq!(found.total(), files);
    let packed = scratch("windows-packed").join("window.pb.gz");
    let window = format!("/window?from={}&to={}&format=pb.gz", from + 0.001, to - 0.001);
    fs::write(&packed, daemon.api(&window).body).unwrap();
    assert_eq!(folded(&packed), found);
    let only = daemon.api(&format!("/window?from={from}&to={to}&format=folded&process=nat*"));
    let only = testkit::folded::Folded::parse(&only.text());
    assert_eq!(only.total(), only.count(|stack| stack[0] == "native" || stack[0] == "[lost]"));
    assert!(only.count(|stack| stack[0] == "native") > 100, "{}", only.top(9));
    let picture = daemon.api(&format!("/window?from={from}&to={to}&format=svg")).text();
    assert!(picture.starts_with("<?xml") && picture.contains("native"), "a flame graph");
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
    assert!(!daemon.metrics().contains("native"), "{}", daemon.metrics());
    assert_exposition(&daemon.metrics());
}

/// Prometheus's text format: each metric is announced once, with its type, before its samples. Names and labels are
/// well-formed, and values are numbers.
fn assert_exposition(text: &str) {
    let mut announced: Vec<&str> = Vec::new();
    let mut samples = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(
                    !announced.contains(&name) && name.starts_with("jbpf_prof_") && !help.is_empty(),
                    "{line}"
                );
                announced.push(name);
            }
            ["#", "TYPE", name, kind] => {
                assert!(announced.last() == Some(&name) && ["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            }
            _ => {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let name = key.split('{').next().unwrap();
                assert_eq!(announced.last(), Some(&name), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                if let Some(labels) = key.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                    assert!(
                        labels.starts_with('{') && labels.ends_with("\"}") && labels.contains("=\""),
                        "{line}"
                    );
                }
                samples += 1;
            }
        }
    }
    assert!(samples > 20, "only {samples} samples");
    assert!(text.ends_with('\n'));
}

#[test]
fn killed_it_loses_the_window_under_way_and_nothing_else() {
    if !is_root() {
        return;
    }
    let home = home("killed");
    let mut daemon = Daemon::start(&home, "");
    daemon.wait_for_windows(3);
    let (kept, counted) = (daemon.files(), daemon.metric("windows_kept"));
    assert_eq!(daemon.end(Signal::KILL), None);
    let after = run::windows(&home);
    assert_eq!(after[..kept.len()], kept, "what was there stays");
    // Lost are the window in progress, and earlier windows that were still being symbolized.
    assert!(after.len() as f64 >= counted, "{} of {counted} windows", after.len());
    after.iter().for_each(|file| assert!(folded(file).total() > 0, "{}", file.display()));
    // A file that an interrupted write leaves.
    fs::write(home.join("data/windows/.1-1.pb.gz.0123456789abcdef.tmp"), "half").unwrap();
    let mut again = Daemon::start(&home, "");
    again.wait_for_windows(after.len() + 1);
    assert_eq!(again.files()[..after.len()], after);
    assert!(!home.join("data/windows/.1-1.pb.gz.0123456789abcdef.tmp").exists());
    let listed: serde_json::Value = serde_json::from_str(&again.api("/windows").text()).unwrap();
    assert!(listed["windows"].as_array().unwrap().len() > after.len());
}

#[test]
fn caches_that_take_too_much_are_given_back_and_nothing_is_missing() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start(&home("little-memory"), "max-memory = \"16MiB\"");
    daemon.wait_for_windows(1);
    daemon.wait("caches given back", |daemon| sum_of(&daemon.metrics(), "evictions_total") > 0.0);
    let before = daemon.files().len();
    daemon.wait_for_windows(before + 2);
    daemon.pause();
    for file in &daemon.files()[before..before + 2] {
        let own =
            folded(file).count(|stack| stack[0] == "native" && stack.iter().any(|f| f.starts_with("burn")));
        assert!(own > 20, "{own} samples with names: {}", folded(file).top(10));
    }
}

#[test]
fn a_full_disk_loses_old_windows_and_never_the_daemon() {
    if !is_root() {
        return;
    }
    let home = home("full");
    let data = home.join("data");
    fs::create_dir_all(&data).unwrap();
    let _mounted = Mounted::at(&data, "size=160k");
    let mut daemon = Daemon::start(&home, "");
    daemon.wait("an old window that is removed", |d| {
        d.ask("metrics.sock", "/metrics").is_ok_and(|a| sum_of(&a.text(), "windows_removed_total") > 0.0)
    });
    // Another program takes all free space, also that of the windows, so that not even one window fits.
    daemon.wait("a window that is lost", |d| {
        run::windows(&home).iter().for_each(|window| fs::remove_file(window).unwrap_or_default());
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
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
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

#[test]
fn others_need_the_token_and_it_may_be_changed() {
    if !is_root() {
        return;
    }
    let home = home("token");
    fs::create_dir_all(&home).unwrap();
    let (token, port) = (home.join("token"), receiver::free_port());
    fs::write(&token, "first\n").unwrap();
    let at = format!("api = \"0.0.0.0:{port}\"\ntoken-file = \"{}\"", token.display());
    let mut daemon = Daemon::start(&home, &at);
    let ask =
        |head: &str| get(TcpStream::connect(("127.0.0.1", port)).unwrap(), "/windows", head).unwrap().status;
    daemon.wait("an open port", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
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
fn health_and_readiness_endpoints_answer() {
    if !is_root() {
        return;
    }
    let home = home("probe");
    let mut daemon = Daemon::start(&home, "");
    let settings = home.join("settings.toml");
    let health = |more: &[&str]| {
        let mut args = vec!["health", "--config", settings.to_str().unwrap()];
        args.extend(more);
        profiler::run(&args)
    };
    daemon.wait_for_windows(1);
    assert_eq!(health(&["--ready"]).success().stdout, "sampling\n");
    daemon.throw(true);
    daemon.wait_unready("paused");
    health(&[]).success();
    health(&["--ready"]).refused(1, "paused by the kill switch");
    daemon.end(Signal::TERM);
    health(&[]).refused(1, "no answer from a daemon at unix:");
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
