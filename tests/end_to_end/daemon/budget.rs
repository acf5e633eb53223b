//! A daemon that exceeds its budget samples less often, logs that, and loses nothing.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::thread;

use flate2::read::GzDecoder;
use prost::Message;

use super::run::{Daemon, folded};
use super::{assert_adds_up, assert_no_gaps, home};
use testkit::is_root;
use testkit::native;
use testkit::target::Target;

/// Two fields of profile.proto of google/pprof.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    #[prost(int64, tag = "10")]
    duration_ns: i64,
    #[prost(int64, tag = "12")]
    period_ns: i64,
}

fn kept(file: &PathBuf) -> Kept {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(file).unwrap()).read_to_end(&mut bytes).unwrap();
    Kept::decode(bytes.as_slice()).unwrap()
}

#[test]
#[ignore = "two and a half minutes, as the budget judges by minutes: --test end_to_end -- --ignored an_expensive_rate"]
fn an_expensive_rate_is_lowered_and_reported_without_losses() {
    if !is_root() {
        return;
    }
    let cpus = thread::available_parallelism().unwrap().get();
    let load: Vec<Target> = (0..cpus).map(|_| native::start("native")).collect();
    let mut daemon = Daemon::start(&home("budget"), "max-cpu = 0.01\nwindow = \"2s\"");
    // The first minute is not judged, and the second one only when it is over.
    daemon.wait_for_windows(35);
    assert_eq!((daemon.metric("frequency_hertz"), daemon.metric("rate_lowered_total")), (99.0, 0.0));
    daemon.wait("a lower rate", |daemon| daemon.metric("rate_lowered_total") > 0.0);
    let hz = daemon.metric("frequency_hertz");
    assert!((99.0 * 0.5..=99.0 * 0.9).contains(&hz), "{hz} Hz");
    assert!(daemon.metric("cpu_share") > 0.0001, "{}", daemon.metrics());
    let said = format!("the sampling rate is now {hz:.1} Hz, to stay within max-cpu");
    assert!(daemon.said().contains(&said), "{}", daemon.said());
    // The new rate holds from the next window on.
    let before = daemon.files().len();
    daemon.wait_for_windows(before + 5);
    daemon.pause();
    drop(load);

    let files = assert_adds_up(&daemon);
    assert_no_gaps(&files);
    let windows: Vec<Kept> = files.iter().map(kept).collect();
    let mut periods: Vec<i64> = windows.iter().map(|window| window.period_ns).collect();
    periods.dedup();
    assert_eq!(periods, [99.0, hz].map(|hz| (1e9 / hz).round() as i64));
    // All CPUs were always busy, at either rate.
    let [much, little] = [0, 1].map(|n| {
        let of_rate = || windows.iter().zip(&files).filter(|(window, _)| window.period_ns == periods[n]);
        let ticks: u64 = of_rate().map(|(_, file)| folded(file).total()).sum();
        let span: i64 = of_rate().map(|(window, _)| window.duration_ns).sum();
        ticks as f64 * periods[n] as f64 / span as f64
    });
    assert!((0.8..1.25).contains(&(little / much)), "{much:.2} CPUs at 99 Hz, {little:.2} at {hz} Hz");
}
