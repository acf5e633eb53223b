//! Stored windows have the pauses of JVMs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jbpf_prof::output;
use jbpf_prof::output::page::read;
use jbpf_prof::profile::pauses::{JvmPauses, PauseTotals};
use serde_json::Value;
use testkit::java::{Jdk, Program};
use testkit::profiler::run;
use testkit::scratch;
use testkit::target::Target;

use super::run::{Daemon, time_of};

/// Collections that the program asks for.
const TIMES: u64 = 20;

/// A JVM that collects garbage when it is told to.
pub(crate) struct Collected {
    java: Target,
    go: PathBuf,
}

impl Collected {
    pub(crate) fn start() -> Collected {
        let go = scratch("stored-pauses").join("go");
        let _ = fs::remove_file(&go);
        let args = [go.to_str().unwrap(), &TIMES.to_string()];
        let program = Program::new("Collected").flags(&["-XX:+UseSerialGC"]).args(&args);
        Collected { java: program.start(&Jdk::host()), go }
    }

    fn collect(&mut self) {
        fs::write(&self.go, "").unwrap();
        self.java.wait_for(|line| line.starts_with("collected "));
    }
}

fn sum(pauses: &JvmPauses) -> PauseTotals {
    pauses.by_process().into_values().fold(PauseTotals::default(), PauseTotals::plus)
}

/// Collects garbage, pauses the daemon, and asserts that the stored windows have the pauses that the daemon counts.
pub(crate) fn assert_windows_have_pauses(daemon: &mut Daemon, home: &Path, collected: &mut Collected) {
    collected.collect();
    daemon.wait_for_windows(daemon.files().len() + 1);
    daemon.pause();

    let (files, pid) = (daemon.files(), collected.java.pid());
    let mut all = JvmPauses::default();
    let mut most = None;
    for (at, file) in files.iter().enumerate() {
        let pauses = output::read(file).unwrap().pauses;
        most = most.max(pauses.by_process().get(&pid).map(|totals| (totals.safepoints, at)));
        all.add_later(&pauses, u16::try_from(at).unwrap());
    }
    let counted = daemon.metric("jvms_paused_seconds_total");
    assert_eq!((counted * 1e6).round() as u64, sum(&all).safepoint_usec, "{all:?}");
    let own = all.by_process()[&pid];
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
    let (rows, pid) = (json["threads"].as_array().unwrap(), pid.to_string());
    let own = |row: &&Value| row["name"] == "Pauses of the JVM" && row["pid"] == *pid;
    let markers = &rows.iter().find(own).expect("the JVM has a row")["markers"];
    assert_eq!(markers["data"].as_array().unwrap().len(), 1);
    assert_eq!(markers["data"][0]["safepoints"].as_f64().unwrap() as u64, safepoints);
}
