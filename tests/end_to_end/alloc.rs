//! Java allocations by bytes: on each JDK and each collector the samples are those of the bytes that the JVM counts, in
//! the methods that allocate, with the classes of the objects. The number of objects of each class is right.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::cgroup::{Group, naming};
use testkit::is_root;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{Profile, run, while_sampling};
use testkit::target::Target;

const INTERVAL: u64 = 512 << 10;
/// The methods of `Allocates`, in the order in which it prints their bytes, and the class that each allocates.
const METHODS: [(&str, &str); 4] = [
    ("Allocates.ints", "int[]"),
    ("Allocates.bytes", "byte[]"),
    ("Allocates.nodes", "Allocates$Node"),
    ("Allocates.longs", "long[]"),
];
/// The class whose objects other code of the JVM has too: one sample of a short string stands for hundreds of them.
const OF_STRINGS: &str = "byte[]";
/// The largest part by which samples and bytes differ, with many samples.
const PART: f64 = 0.03;
/// How many samples the result of a method may differ more: it allocates in rounds, and in each round a TLAB is its
/// predecessor's or its successor's. Both bounds together are five standard deviations or more for TLABs of a megabyte,
/// also if the bytes of another JVM on the same CPU come between those of this one in each of its turns.
const SAMPLES: f64 = 12.0;

/// The rounds of `Allocates`, and the bytes of a large TLAB.
const ROUNDS: f64 = 8.0;
const MAX_TLAB: f64 = (2 << 20) as f64;

const SERIAL: &[&str] = &["-XX:+UseSerialGC"];
const PARALLEL: &[&str] = &["-XX:+UseParallelGC"];
const G1: &[&str] = &["-XX:+UseG1GC"];
const Z: &[&str] = &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseZGC"];
const SHENANDOAH: &[&str] = &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseShenandoahGC"];
const GENERATIONAL_Z: &[&str] = &["-XX:+UseZGC"];
const COMPACT: &[&str] = &["-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"];

#[test]
fn jdk_11_in_a_container() {
    in_container(11, |jdk| are_true(jdk, &[PARALLEL, G1]));
}

#[test]
fn jdk_17() {
    on_host(17, |jdk| are_true(jdk, &[SERIAL, G1, Z, SHENANDOAH]));
}

#[test]
fn jdk_21_in_a_container() {
    in_container(21, |jdk| are_true(jdk, &[G1]));
}

#[test]
fn jdk_25() {
    on_host(25, |jdk| are_true(jdk, &[G1, COMPACT]));
}

/// What each method allocated.
#[derive(Clone, Copy, Default)]
struct Truth {
    bytes: [u64; 4],
    objects: [u64; 4],
}

/// Ends with what the methods allocated.
fn allocate(target: &mut Target) -> Truth {
    target.write(b"\n");
    let line = target.wait_for(|line| line.starts_with("allocated "));
    let numbers: Vec<u64> = line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
    let (bytes, objects) = numbers.split_at(4);
    Truth { bytes: bytes.try_into().unwrap(), objects: objects.try_into().unwrap() }
}

fn program(flags: &[&str]) -> Program {
    Program::new("Allocates").dont_inline("Allocates.*").flags(flags)
}

fn start(jdk: &Jdk, flags: &[&str]) -> Target {
    program(flags).start(jdk)
}

fn are_true(jdk: &Jdk, collectors: &[&[&str]]) {
    for flags in collectors {
        let mut target = start(jdk, flags);
        let mut truth = Truth::default();
        let pid = target.pid().to_string();
        let profile = while_sampling(&[], &["-p", &pid, "-e", "alloc,cpu"], || truth = allocate(&mut target));
        is_true(&profile, truth, &format!("JDK {} {flags:?}", jdk.version));
    }
}

#[track_caller]
fn is_near(what: &str, samples: u64, bytes: u64) {
    let truth = bytes as f64 / INTERVAL as f64;
    let difference = (samples as f64 - truth).abs();
    assert!(difference <= PART * truth + SAMPLES, "{what}: {samples} samples instead of {truth:.0}");
}

#[track_caller]
fn is_true(profile: &Profile, truth: Truth, what: &str) {
    let Profile { folded, report, .. } = profile;
    let all: u64 = truth.bytes.iter().sum();
    for ((method, class), bytes) in METHODS.into_iter().zip(truth.bytes) {
        let within = folded.within(method);
        is_near(&format!("{what}: {method}\n{}", folded.top(8)), within.total(), bytes);
        let leaf = format!("[new: {class}]");
        let named = within.count(|stack| stack.last() == Some(&leaf));
        assert_eq!(named, within.total(), "{what}: {method} allocates {class}\n{}", within.top(8));
        // The JVM's own frames are left out: the method is the caller of its object.
        let called = within.count(|stack| stack[stack.len() - 2].starts_with(method));
        assert_eq!(called, within.total(), "{what}\n{}", within.top(8));
    }
    objects_are_true(report, truth, what);
    assert_eq!(report["event"], "alloc");
    assert_eq!(report["accounts"]["one_in"], INTERVAL);
    assert_eq!(profile.account("kept"), folded.total());
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert_eq!(profile.account("missed"), 0);
    assert_eq!(report["accounts"]["lost"], serde_json::json!([]));
    assert_eq!(report["warnings"], serde_json::json!([]), "{what}");
    // Other JVMs of this machine have the same library, and are not asked for.
    let allocated = report["allocated"]["profiled"].as_u64().unwrap();
    let of_samples = profile.account("kept") * INTERVAL;
    for (name, counted) in [("counted", allocated), ("sampled", of_samples)] {
        let part = counted as f64 / all as f64;
        assert!((1.0 - PART..1.0 + PART).contains(&part), "{what}: {counted} bytes {name} of {all}");
    }
}

/// The report has the number of objects of each class, as far as the samples of its bytes can know.
#[track_caller]
fn objects_are_true(report: &Value, truth: Truth, what: &str) {
    let classes = report["classes"].as_array().unwrap();
    for (at, (_, class)) in METHODS.into_iter().enumerate() {
        let (bytes, objects) = (truth.bytes[at], truth.objects[at]);
        let row = classes.iter().find(|row| row["name"] == class).unwrap_or_else(|| panic!("{classes:?}"));
        let estimate = row["objects"].as_u64().unwrap();
        // Each of these objects has samples. The first one of a round may begin a TLAB, which has room for more.
        if class == "long[]" {
            assert!((objects..=objects + objects / 16).contains(&estimate), "{what}: {row}, not {objects}");
            continue;
        }
        let part = estimate as f64 / objects as f64 - 1.0;
        // A TLAB counts as a whole for the object that begins it: in each round one is the predecessor's or the successor's.
        let bound = PART + ROUNDS * MAX_TLAB / bytes as f64;
        assert!(
            part.abs() <= bound || (class == OF_STRINGS && part > 0.0),
            "{what}: {row} instead of {objects} objects: {part:+.3}, not {bound:.3}"
        );
    }
    let all: u64 = classes.iter().map(|row| row["objects"].as_u64().unwrap()).sum();
    assert!(report["objects"].as_u64().unwrap().abs_diff(all) <= classes.len() as u64, "{classes:?}");
}

/// With CPU time and waits in one run, and with another interval.
#[test]
fn allocations_beside_time_have_their_own_interval() {
    if !is_root() {
        return;
    }
    let mut target = start(&Jdk::host(), G1);
    let pid = target.pid().to_string();
    let mut all = 0.0;
    let line = ["-p", &pid, "-e", "alloc,cpu,wait", "--alloc-interval", "4MiB"];
    let profile = while_sampling(&[], &line, || {
        for _ in 0..3 {
            all += allocate(&mut target).bytes.iter().sum::<u64>() as f64;
        }
    });
    assert_eq!(profile.report["accounts"]["one_in"], 4 << 20);
    let sampled = (profile.account("kept") * (4 << 20)) as f64;
    // Chance decides on the blocks at both ends of the timeline of each CPU, and of each turn if another JVM allocates in
    // between: the standard deviation is up to 11 of 720 samples.
    assert!((0.9 * all..1.1 * all).contains(&sampled), "{sampled} of {all}");
    let others: BTreeMap<&str, u64> = profile.report["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (of["event"].as_str().unwrap_or("cpu"), of["accounts"]["kept"].as_u64().unwrap()))
        .collect();
    assert_eq!(others.keys().copied().collect::<Vec<_>>(), ["cpu", "wait"]);
    assert!(others["cpu"] > 0, "{others:?}");
}

/// A JVM that starts during the run, from a file that another JVM has mapped, is sampled from its first allocation on.
/// Both are in a cgroup of their own.
#[test]
fn a_jvm_that_starts_later_is_sampled() {
    if !is_root() {
        return;
    }
    // Before the JVMs: the cgroup is removed after their end.
    let group = Group::own(&naming(), "alloc-later");
    let _first = program(G1).start_in(&group);
    let mut later = None;
    let profile = while_sampling(&[], &["-G", &group.arg(), "-e", "alloc,cpu"], || {
        let mut target = program(G1).start_in(&group);
        later = Some((allocate(&mut target), target));
    });
    let (truth, target) = later.unwrap();
    let pid = target.pid();
    let jvms = profile.report["jvms"].as_array().unwrap();
    let jvm = jvms.iter().find(|jvm| jvm["pid"] == pid).unwrap_or_else(|| panic!("{pid} in {jvms:?}"));
    // It allocates as much before it is ready.
    is_near("the later JVM", jvm["ticks"].as_u64().unwrap(), 2 * truth.bytes.iter().sum::<u64>());
}

/// Without symbols the JVM chooses the samples, the agent passes them on, and their classes, methods, bytes and numbers of
/// objects are right as far as chance allows. So they are in a second run, after one that has ended.
#[test]
fn jdk_11_without_symbols() {
    in_container(11, |jdk| are_estimated(&jdk.stripped("alloc-sampled"), &[PARALLEL, G1]));
}

#[test]
fn jdk_17_without_symbols() {
    on_host(17, |jdk| are_estimated(&jdk.stripped("alloc-sampled"), &[SERIAL, PARALLEL, G1, Z, SHENANDOAH]));
}

#[test]
fn jdk_25_without_symbols() {
    on_host(25, |jdk| are_estimated(&jdk.stripped("alloc-sampled"), &[G1, COMPACT, GENERATIONAL_Z]));
}

#[test]
fn the_jvm_chooses_the_objects_if_the_user_wants_that() {
    on_host(17, |jdk| {
        let mut target = start(jdk, G1);
        let mut truth = Truth::default();
        let pid = target.pid().to_string();
        let line = ["-p", &pid, "-e", "alloc,cpu", "--alloc-interval", "16KiB", "--alloc-by", "object"];
        let profile = while_sampling(&[], &line, || truth = allocate(&mut target));
        is_estimate(&profile, truth, jdk.version, "chosen");
        let way = format!(
            "allocations in JVM {pid} are sampled by SampledObjectAlloc and the agent, so their bytes are estimates"
        );
        assert_eq!(profile.report["warnings"].as_array().unwrap(), &[Value::from(way)]);
    });
}

/// Many samples: chance matters less.
const SHORT_INTERVAL: u64 = 16 << 10;

fn are_estimated(jdk: &Jdk, collectors: &[&[&str]]) {
    for (nr, flags) in collectors.iter().enumerate() {
        let mut target = start(jdk, flags);
        let pid = target.pid().to_string();
        // Whether the agent that is there serves another run does not depend on the collector.
        let runs = if nr == 0 { 2 } else { 1 };
        for run in 1..=runs {
            let what = format!("JDK {} {flags:?}, run {run}", jdk.version);
            let mut truth = Truth::default();
            let line = ["-p", &pid, "-e", "alloc,cpu", "--alloc-interval", "16KiB"];
            let profile = while_sampling(&[], &line, || truth = allocate(&mut target));
            is_estimate(&profile, truth, jdk.version, &what);
            let way = format!("allocations in JVM {pid} are sampled by SampledObjectAlloc and the agent");
            let warnings = profile.report["warnings"].as_array().unwrap();
            assert_eq!(warnings.len(), 1, "{what}: {warnings:?}");
            assert!(warnings[0].as_str().unwrap().starts_with(&way), "{what}: {warnings:?}");
            if run < runs {
                // The JVM turns the event off.
                allocate(&mut target);
            }
        }
    }
}

/// By how many samples the result for so many bytes may differ: five standard deviations of chance, and the error of
/// the JVM's own choice. That of JDK 11 is large: after a sample it shortens the distance to the next one, but not always.
fn chance(bytes: u64, jdk: u32) -> f64 {
    let samples = bytes as f64 / SHORT_INTERVAL as f64;
    let part = if jdk == 11 { 0.3 } else { 0.01 };
    5.0 * samples.sqrt() + part * samples + SAMPLES
}

#[track_caller]
fn is_estimate(profile: &Profile, truth: Truth, jdk: u32, what: &str) {
    let Profile { folded, report, .. } = profile;
    for (at, (method, class)) in METHODS.into_iter().enumerate() {
        let (bytes, objects) = (truth.bytes[at], truth.objects[at]);
        let within = folded.within(method);
        let right = bytes as f64 / SHORT_INTERVAL as f64;
        let found = within.total();
        let of = format!("{what}: {method} has {found} samples, not {right:.0}\n{}", folded.top(8));
        assert!((found as f64 - right).abs() <= chance(bytes, jdk), "{of}");
        let leaf = format!("[new: {class}]");
        assert_eq!(within.count(|stack| stack.last() == Some(&leaf)), found, "{of}\n{}", within.top(8));
        let called = within.count(|stack| stack[stack.len() - 2].starts_with(method));
        assert_eq!(called, found, "{of}\n{}", within.top(8));
        let classes = report["classes"].as_array().unwrap();
        let row = classes.iter().find(|row| row["name"] == class).unwrap();
        let part = row["objects"].as_u64().unwrap() as f64 / objects as f64 - 1.0;
        assert!(
            part.abs() <= chance(bytes, jdk) / right || (class == OF_STRINGS && part > 0.0),
            "{what}: {row} instead of {objects} objects: {part:+.3}"
        );
    }
    assert_eq!(report["accounts"]["one_in"], SHORT_INTERVAL);
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert_eq!(profile.account("missed"), 0);
    // Not counted, but estimated.
    let allocated = &report["allocated"];
    assert_eq!((&allocated["profiled"], &allocated["profiled_calls"]), (&0.into(), &0.into()), "{allocated}");
    let all: u64 = truth.bytes.iter().sum();
    let estimated = allocated["estimated"].as_u64().unwrap() as f64 / all as f64;
    let part = if jdk == 11 { 0.2 } else { PART };
    assert!((1.0 - part..1.0 + part).contains(&estimated), "{what}: {allocated} of {all}");
}

#[test]
fn a_jvm_without_symbols_gets_no_agent_that_the_user_forbids() {
    on_host(17, |jdk| {
        let mut target = start(&jdk.stripped("alloc-forbidden"), G1);
        let pid = target.pid().to_string();
        let profile = while_sampling(&[], &["-p", &pid, "-e", "alloc,cpu", "--java", "vm"], || {
            allocate(&mut target);
        });
        let warnings = profile.report["warnings"].to_string();
        assert!(warnings.contains(&format!("allocations are not sampled in JVM {pid}: ")), "{warnings}");
        assert!(warnings.contains("--java and the daemon's settings do not load it"), "{warnings}");
        assert_eq!(profile.account("ticks"), 0);
    });
}

#[test]
fn a_jvm_without_symbols_is_named_with_the_reason() {
    in_container(8, |jdk| {
        let mut target = start(jdk, G1);
        let pid = target.pid().to_string();
        let profile = while_sampling(&[], &["-p", &pid, "-e", "alloc,cpu"], || {
            allocate(&mut target);
        });
        let warnings = profile.report["warnings"].to_string();
        assert!(warnings.contains(&format!("allocations are not sampled in JVM {pid}: ")), "{warnings}");
        assert!(
            warnings.contains("libjvm.so: it has no symbols of the functions AllocTracer::"),
            "{warnings}"
        );
        assert!(warnings.contains("only JDK 11 and later can choose samples"), "{warnings}");
        assert_eq!(profile.account("ticks"), 0);
    });
}

#[test]
fn options_that_do_not_apply_are_refused() {
    for (line, words) in [
        (
            &["-e", "cpu", "--alloc-interval", "1MiB"][..],
            "--alloc-interval applies to the events alloc and native-alloc",
        ),
        (&["-e", "alloc", "-c", "10"], "do not apply to alloc; use --alloc-interval"),
        (&["-e", "alloc", "--all-kernel"], "--all-kernel: the event alloc has frames of processes only"),
        (&["-e", "alloc", "--alloc-interval", "5GiB"], "expected a size up to 4GiB"),
    ] {
        run([&["-d", "1"], line].concat()).refused(2, words);
    }
}
