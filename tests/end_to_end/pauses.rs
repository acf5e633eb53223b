//! The report says how long a JVM stood still: as often and as long as the JVM itself says.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use flate2::read::GzDecoder;
use jbpf_prof::output;
use jbpf_prof::profile::pauses::PauseTotals;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::browser::{self, Browser};
use testkit::java::{Jdk, Program, on_host};
use testkit::profiler::{out_file, while_sampling};
use testkit::scratch;
use testkit::target::Target;

/// Collections that the program asks for.
const TIMES: u64 = 20;
/// The fields of pauses in the report.
const FIELDS: [&str; 4] = ["safepoints", "safepoint_usec", "collections", "collection_usec"];

/// The pauses of the JVM in the report, and what the program says: collections, and their milliseconds.
fn pauses(jdk: &Jdk, flags: &[&str], more: &[&str]) -> (Value, u64, u64) {
    pauses_while(jdk, flags, more, |_, _| {})
}

/// The same; `meanwhile` runs after the collections, while sampling goes on, and gets the number that the program says.
fn pauses_while(
    jdk: &Jdk,
    flags: &[&str],
    more: &[&str],
    meanwhile: impl FnOnce(&Target, u64),
) -> (Value, u64, u64) {
    let go = out_file("go");
    let program = Program::new("Collected").flags(flags).args(&[go.to_str().unwrap(), &TIMES.to_string()]);
    let mut target = program.start(jdk);
    let pid = target.pid().to_string();
    let (mut times, mut ms) = (0, 0);
    let profile = while_sampling(&[], &[&["-p", &pid], more].concat(), || {
        fs::write(&go, "").unwrap();
        let said = target.wait_for(|line| line.starts_with("collected "));
        let numbers: Vec<u64> = said.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
        (times, ms) = (numbers[0], numbers[1]);
        meanwhile(&target, times);
    });
    fs::remove_file(&go).unwrap();
    let jvms = profile.report["jvms"].as_array().unwrap();
    assert_eq!(jvms.len(), 1, "{}", profile.report);
    (jvms[0]["pauses"].clone(), times, ms)
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

/// The marks of each second add up to the numbers of the report: in a Firefox profile, and on the page, which a browser
/// shows. pprof has the sums.
#[test]
fn pauses_are_marks_in_time() {
    on_host(25, |jdk| {
        let files = ["json.gz", "html", "pb.gz"].map(out_file);
        let paths = [0, 1, 2].map(|at| files[at].to_str().unwrap());
        let outputs = ["-o", paths[0], "-o", paths[1], "-o", paths[2]];
        let (pauses, times, _) = pauses(jdk, &["-XX:+UseSerialGC"], &outputs);
        let all = FIELDS.map(|name| pauses[name].as_u64().unwrap());
        assert!(all[2] >= times && all[1] > 0, "{pauses}, {times} in the program");
        let [safepoints, collections] = marked(&files[0]);
        assert_eq!([safepoints, collections], [all[0], all[2]], "{pauses}");
        let summed = output::read(&files[2]).unwrap().pauses.by_process().into_values().next().unwrap();
        assert_eq!(serde_json::to_value(summed).unwrap(), pauses);
        assert_eq!(shown(&files[1]), all);
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
    });
}

/// Pages that are open get the pauses of each second. A JVM that has ended has them in the report.
#[test]
fn pauses_are_shown_while_the_run_goes_on() {
    on_host(17, |jdk| {
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let socket = home.path().join("page.sock");
        let file = out_file("html");
        let serve = format!("unix:{}", socket.display());
        let mut shown = 0;
        let watch = |jvm: &Target, times: u64| {
            shown = collections_of_page(&socket, times);
            jvm.signal(Signal::KILL);
        };
        let options = ["--java", "vm", "--serve", &serve, "-o", file.to_str().unwrap()];
        let (pauses, times, _) = pauses_while(jdk, &["-XX:+UseSerialGC"], &options, watch);
        let all = pauses["collections"].as_u64().unwrap();
        assert!((times..=all).contains(&shown), "{shown} shown, {times} in the program, {all} in the report");
        fs::remove_file(file).unwrap();
    });
}

/// The collections of all seconds, once the page of a run has those of the program.
fn collections_of_page(socket: &Path, times: u64) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /live HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut collections = 0;
    let mut seconds =
        BufReader::new(stream).lines().map(Result::unwrap).filter(|line| line.starts_with("data: "));
    while collections < times {
        let second = seconds.next().expect("the run goes on");
        let read = output::page::read::read(&mut second.as_bytes()).unwrap();
        collections += read.pauses.by_process().into_values().map(|totals| totals.collections).sum::<u64>();
    }
    collections
}

/// The pauses that a page shows in a browser: the sum of all seconds, which is that of ranges and of the words. What the
/// report says, without a browser.
fn shown(page: &Path) -> [u64; 4] {
    let read = output::read(page).unwrap();
    let sums: Vec<PauseTotals> = read.pauses.by_process().into_values().collect();
    let PauseTotals { safepoints, safepoint_usec, collections, collection_usec } = sums[0];
    let all = [safepoints, safepoint_usec, collections, collection_usec];
    assert_eq!(sums.len(), 1);
    if browser::is_missing() {
        return all;
    }
    let mut browser = Browser::start(&scratch("pauses-page"), 1000, 700);
    browser.open(page, "", "window.jbpfProf !== undefined");
    let sum = "(({ pauses, profile }) => [...Array(profile.columns).keys()].map((at) => \
               Object.values(pauses.total([at, at + 1]))).reduce((a, b) => a.map((one, at) => one + b[at])))(jbpfProf)";
    assert_eq!(browser.value(sum), json!(all), "the seconds add up to the whole");
    let words = browser.text("#pauses");
    let [begin, safepoints] = ["JVM pauses: ".to_owned(), format!(" ms in {safepoints} safepoints, ")];
    assert!(words.starts_with(&begin) && words.contains(&safepoints), "{words}: {all:?}");
    assert_eq!(browser.complaints, [""; 0]);
    all
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
