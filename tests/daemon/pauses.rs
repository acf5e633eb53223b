//! Stored windows have the pauses of JVMs.

use std::fs::{self, File};

use flate2::read::GzDecoder;
use jbpf_prof::output;
use jbpf_prof::output::page::read;
use jbpf_prof::profile::pauses::{JvmPauses, PauseTotals};
use serde_json::Value;
use testkit::java::{Jdk, Program};
use testkit::profiler::run;
use testkit::{is_root, scratch};

use crate::home;
use crate::run::{Daemon, time_of};

/// Collections that the program asks for.
const TIMES: u64 = 20;

fn sum(pauses: &JvmPauses) -> PauseTotals {
    pauses.by_process().into_values().fold(PauseTotals::default(), PauseTotals::plus)
}

#[test]
fn stored_windows_have_the_pauses_that_the_daemon_counts() {
    if !is_root() {
        return;
    }
    let go = scratch("stored-pauses").join("go");
    let _ = fs::remove_file(&go);
    let args = [go.to_str().unwrap(), &TIMES.to_string()];
    let mut java = Program::new("Collected").flags(&["-XX:+UseSerialGC"]).args(&args).start(&Jdk::host());
    let home = home("stored-pauses-daemon");
    let mut daemon = Daemon::start(&home, "window = \"1s\"\njava = \"vm\"");
    daemon.wait_for_windows(1);
    fs::write(&go, "").unwrap();
    java.wait_for(|line| line.starts_with("collected "));
    daemon.wait_for_windows(daemon.files().len() + 1);
    daemon.pause();

    let files = daemon.files();
    let mut all = JvmPauses::default();
    let mut most = None;
    for (at, file) in files.iter().enumerate() {
        let pauses = output::read(file).unwrap().pauses;
        most = most.max(pauses.by_process().get(&java.pid()).map(|totals| (totals.safepoints, at)));
        all.add_later(&pauses, u16::try_from(at).unwrap());
    }
    let counted = daemon.metric("jvms_paused_seconds_total");
    assert_eq!((counted * 1e6).round() as u64, sum(&all).safepoint_usec, "{all:?}");
    let own = all.by_process()[&java.pid()];
    assert!(own.collections >= TIMES && own.safepoints >= TIMES && own.safepoint_usec > 0, "{own:?}");

    // The page of all windows has the same sums, in the columns of the windows.
    let (start_ms, _) = time_of(&files[0]);
    let answer = daemon.api(&format!("/window?from={}&format=html", start_ms as f64 / 1000.0));
    assert_eq!(answer.status, 200);
    let page = read::read(&mut answer.body.as_slice()).unwrap().pauses;
    assert_eq!(page.by_process(), all.by_process());
    assert!(page.marks().any(|mark| mark.second > 0), "{page:?}");

    // A stored window as a Firefox profile: one marker covers the window.
    let Some((safepoints, at)) = most else { panic!("{all:?}") };
    let converted = home.join("window.json.gz");
    run(["convert", files[at].to_str().unwrap(), converted.to_str().unwrap()]).success();
    let json: Value = serde_json::from_reader(GzDecoder::new(File::open(&converted).unwrap())).unwrap();
    let rows = json["threads"].as_array().unwrap();
    let pid = java.pid().to_string();
    let own = |row: &&Value| row["name"] == "Pauses of the JVM" && row["pid"] == *pid;
    let markers = &rows.iter().find(own).expect("the JVM has a row")["markers"];
    assert_eq!(markers["data"].as_array().unwrap().len(), 1);
    assert_eq!(markers["data"][0]["safepoints"].as_f64().unwrap() as u64, safepoints);
}
