//! The report says how long a JVM stood still: as often and as long as the JVM itself says.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs::{self, File};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;
use testkit::java::{Jdk, Program, on_host};
use testkit::profiler::{out_file, while_sampling};
use testkit::scratch;

/// Collections that the program asks for.
const TIMES: u64 = 20;

/// The pauses of the JVM in the report, and what the program says: collections, and their milliseconds.
fn pauses(jdk: &Jdk, flags: &[&str], more: &[&str]) -> (Value, u64, u64) {
    let go = scratch("pauses").join("go");
    let _ = fs::remove_file(&go);
    let program = Program::new("Collected").flags(flags).args(&[go.to_str().unwrap(), &TIMES.to_string()]);
    let mut target = program.start(jdk);
    let pid = target.pid().to_string();
    let mut said = String::new();
    let profile = while_sampling(&[], &[&["-p", &pid], more].concat(), || {
        fs::write(&go, "").unwrap();
        said = target.wait_for(|line| line.starts_with("collected "));
    });
    let mut numbers = said.split(' ').skip(1).map(|number| number.parse().unwrap());
    let jvms = profile.report["jvms"].as_array().unwrap();
    assert_eq!(jvms.len(), 1, "{}", profile.report);
    (jvms[0]["pauses"].clone(), numbers.next().unwrap(), numbers.next().unwrap())
}

/// The sums of the markers of pauses in a Firefox profile: safepoints, collections.
fn marked(path: &Path) -> [u64; 2] {
    let json = GzDecoder::new(File::open(path).unwrap());
    let json: Value = serde_json::from_reader(json).unwrap();
    let rows = json["threads"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "Pauses of the JVM").expect("the JVM has a row");
    let data = row["markers"]["data"].as_array().unwrap();
    ["safepoints", "collections"]
        .map(|name| data.iter().map(|marker| marker[name].as_f64().unwrap() as u64).sum::<u64>())
}

/// The markers of each second add up to the numbers of the report.
#[test]
fn pauses_are_marks_in_time() {
    on_host(25, |jdk| {
        let out = out_file("json.gz");
        let (pauses, times, _) = pauses(jdk, &["-XX:+UseSerialGC"], &["-o", out.to_str().unwrap()]);
        let [safepoints, collections] = marked(&out);
        assert!(collections >= times, "{collections} marked, {times} in the program");
        let of = |name: &str| pauses[name].as_u64().unwrap();
        assert_eq!(collections, of("collections"), "{pauses}");
        // The report's last look is a moment later.
        assert!((of("safepoints") - 2..=of("safepoints")).contains(&safepoints), "{safepoints}: {pauses}");
        fs::remove_file(out).unwrap();
    });
}

fn are_those_that_the_jvm_counts(jdk: &Jdk, flags: &[&str]) {
    let (pauses, times, ms) = pauses(jdk, flags, &[]);
    let of = |name: &str| pauses[name].as_u64().unwrap_or_else(|| panic!("{flags:?}: no pauses: {pauses}"));
    assert!(times >= TIMES, "{flags:?}: the program had {times} collections");
    // Between the program's two looks and those of the profiler there may be others.
    assert!((times..times + 10).contains(&of("collections")), "{flags:?}: {pauses}, not {times}");
    assert!(of("safepoints") >= TIMES, "{flags:?}: {pauses}");
    // The JVM rounds each collector's sum down to milliseconds.
    let (least, most) = (ms.saturating_sub(10) * 1000, (ms + 10) * 1000 + of("collection_usec") / 4);
    assert!((least..most).contains(&of("collection_usec")), "{flags:?}: {pauses}, not {ms} ms");
    assert!(of("safepoint_usec") > 0, "{flags:?}: {pauses}");
}

#[test]
fn pauses_are_those_that_jdk_17_counts() {
    on_host(17, |jdk| {
        for collector in ["-XX:+UseSerialGC", "-XX:+UseG1GC"] {
            are_those_that_the_jvm_counts(jdk, &[collector]);
        }
    });
}

#[test]
fn pauses_are_those_that_jdk_25_counts() {
    on_host(25, |jdk| are_those_that_the_jvm_counts(jdk, &["-XX:+UseParallelGC"]));
}

/// ZGC counts each pause of a collection by itself, and not the collection.
#[test]
fn each_pause_of_zgc_is_counted() {
    on_host(25, |jdk| {
        let (pauses, _, _) = pauses(jdk, &["-XX:+UseZGC"], &[]);
        let of = |name: &str| pauses[name].as_u64().unwrap();
        assert!(of("collections") >= 3 * TIMES && of("safepoints") >= of("collections"), "{pauses}");
        assert!(of("collection_usec") <= of("safepoint_usec"), "{pauses}");
    });
}

#[test]
fn a_jvm_without_counters_has_none() {
    on_host(17, |jdk| {
        let (pauses, times, _) = pauses(jdk, &["-XX:-UsePerfData"], &[]);
        assert_eq!((pauses, times >= TIMES), (Value::Null, true));
    });
}
