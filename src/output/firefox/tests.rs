use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::profile::pauses::PauseTotals;
use crate::profile::{Frame as OurFrame, Profile as OurProfile};
use crate::sample::ThreadState;

/// One thread that ran `early` in second 0 and `late` in second 2, and one lost tick.
fn profile() -> OurProfile {
    let mut profile = OurProfile::new();
    let labels =
        Labels { pid: 7, tid: 8, process: "java".into(), thread: "worker".into(), ..Labels::default() };
    let labels = profile.intern_labels(&labels);
    let mut add = |second, name: &str, count| {
        let frames = [(Kind::Process, "java"), (Kind::Thread, "worker"), (Kind::Java, name)];
        let frames = frames.map(|(kind, name)| Arc::new(OurFrame::named(kind, name)));
        let stack = profile.intern_stack(&frames);
        let weight = Weight { count, value: count * 1_000_000, ..Weight::default() };
        profile.add_interned_in_second(second, stack, labels, Event::Cpu, weight);
    };
    add(0, "early", 3);
    add(0, "both", 1);
    add(2, "late", 5);
    add(2, "both", 1);
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.taken, accounts.kept, accounts.period_ns) = (11, 10, 1_000_000);
    accounts.lose("ring full", 1);
    profile.check().unwrap();
    profile
}

fn json(profile: &OurProfile) -> Value {
    let views = profile.views();
    serde_json::to_value(FirefoxWriter::of(&views[0], &views)).unwrap()
}

fn thread<'j>(json: &'j Value, name: &str) -> &'j Value {
    json["threads"].as_array().unwrap().iter().find(|thread| thread["processName"] == name).unwrap()
}

/// Name of the leaf, time in milliseconds, weight.
fn samples(thread: &Value) -> Vec<(String, f64, u64)> {
    let numbers = |column: &Value| -> Vec<f64> {
        column.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    let at = |column: &Value, place: &Value| column[place.as_u64().unwrap() as usize].clone();
    let (samples, mut time) = (&thread["samples"], 0.0);
    let deltas = numbers(&samples["timeDeltas"]);
    let rows = samples["stack"].as_array().unwrap().iter().zip(deltas).zip(numbers(&samples["weight"]));
    rows.filter_map(|((stack, delta), weight)| {
        time += delta;
        if stack.is_null() {
            assert_eq!(weight, 0.0, "the beginning of a second weighs nothing");
            return None;
        }
        let frame = at(&thread["stackTable"]["frame"], stack);
        let function = at(&thread["frameTable"]["func"], &frame);
        let name = at(&thread["funcTable"]["name"], &function);
        Some((at(&thread["stringArray"], &name).as_str().unwrap().to_owned(), time, weight as u64))
    })
    .collect()
}

#[test]
fn samples_stand_in_their_seconds() {
    let json = json(&profile());
    let java = thread(&json, "java");
    assert_eq!((&java["name"], &java["pid"], &java["tid"]), (&"worker".into(), &"7".into(), &"8".into()));
    let samples = samples(java);
    let seconds: Vec<(&str, u64, u64)> =
        samples.iter().map(|(name, ms, weight)| (&**name, *ms as u64 / 1000, *weight)).collect();
    assert_eq!(seconds, [("early", 0, 3), ("both", 0, 1), ("both", 2, 1), ("late", 2, 5)]);
    assert!(samples.is_sorted_by_key(|(_, ms, _)| *ms as u64));
}

#[test]
fn nothing_is_left_out_and_other_formats_see_no_seconds() {
    let profile = profile();
    let json = json(&profile);
    let all: u64 = ["java", "[lost]"].iter().flat_map(|name| samples(thread(&json, name))).map(|s| s.2).sum();
    let view = profile.of_event(Event::Cpu);
    assert_eq!(all, view.accounts().shown());
    assert_eq!(samples(thread(&json, "[lost]"))[0].0, "[ring full]");
    assert_eq!((view.samples().len(), view.by_second().len()), (3, 4), "`both` is one sample");
    let mut folded = Vec::new();
    folded::write(&view, &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(folded.contains("both_[j] 2\n"), "{folded}");
}

#[test]
fn each_second_of_a_jvm_with_pauses_has_a_marker() {
    let mut profile = profile();
    let totals = PauseTotals { safepoints: 3, safepoint_usec: 1500, collections: 1, collection_usec: 1200 };
    let mark = |pid, second| PauseMark { pid, second, totals };
    profile.pauses = [mark(7, 0), mark(7, 2), mark(99, 1)].into_iter().collect();
    let json = json(&profile);
    let rows = json["threads"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "Pauses of the JVM").unwrap();
    assert_eq!((&row["processName"], rows.len()), (&"java".into(), 3), "a JVM without samples has no row");
    let markers = &row["markers"];
    assert_eq!(
        (&markers["startTime"], &markers["endTime"]),
        (&[0.0, 2000.0][..].into(), &[1000.0, 3000.0][..].into())
    );
    let data = &markers["data"][1];
    assert_eq!((&data["safepoints"], &data["safepointTime"]), (&3.0.into(), &1.5.into()), "{data}");
    assert_eq!((&data["collections"], &data["collectionTime"]), (&1.0.into(), &1.2.into()), "{data}");
    assert!(samples(row).is_empty());
}

/// The stored windows of the daemon do not distinguish seconds.
#[test]
fn a_marker_of_a_profile_without_seconds_covers_the_whole() {
    let mut window = OurProfile::new();
    let labels = Labels { pid: 7, process: "java".into(), ..Labels::default() };
    window.add(&labels, &[Arc::new(OurFrame::named(Kind::Java, "run"))], 5, 50);
    window.span.duration_ns = 10_000_000_000;
    let totals = PauseTotals { safepoints: 3, safepoint_usec: 1500, ..PauseTotals::default() };
    window.pauses.add(PauseMark { pid: 7, second: 0, totals });
    let json = json(&window);
    let rows = json["threads"].as_array().unwrap();
    let markers = &rows.iter().find(|row| row["name"] == "Pauses of the JVM").unwrap()["markers"];
    assert_eq!(markers["endTime"], Value::from(&[10_000.0][..]));
    assert_eq!(markers["data"][0]["safepoints"], 3.0);
}

/// The same thread, which also slept for two seconds until second 2, and had page faults.
#[test]
fn other_events_have_rows_of_their_own_and_waits_are_markers_too() {
    let mut profile = profile();
    let labels =
        Labels { pid: 7, tid: 8, process: "java".into(), thread: "worker".into(), ..Labels::default() };
    let runs = profile.intern_labels(&labels);
    let sleeps = profile.intern_labels(&Labels { state: ThreadState::Sleeping, ..labels });
    let mut stack = |kind, name| {
        let frames = [(Kind::Process, "java"), (Kind::Thread, "worker"), (Kind::Java, "get"), (kind, name)];
        profile.intern_stack(&frames.map(|(kind, name)| Arc::new(OurFrame::named(kind, name))))
    };
    let (lock, fault) = (stack(Kind::Wait, "[wait: lock]"), stack(Kind::Kernel, "fault"));
    profile.add_interned_in_second(
        2,
        lock,
        sleeps,
        Event::Wait,
        Weight { count: 20, value: 2 * SECOND, ..Weight::default() },
    );
    profile.add_interned_in_second(
        1,
        fault,
        runs,
        Event::PageFaults,
        Weight { count: 4, value: 400, ..Weight::default() },
    );
    for (event, kept) in [(Event::Wait, 20), (Event::PageFaults, 4)] {
        let accounts = profile.accounts_mut(event);
        (accounts.taken, accounts.kept) = (kept, kept);
    }
    let json = json(&profile);
    let rows: Vec<&Value> =
        json["threads"].as_array().unwrap().iter().filter(|row| row["processName"] == "java").collect();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["worker", "worker: page faults", "worker: waiting time"]);
    let weights = rows.iter().map(|row| samples(row).iter().map(|sample| sample.2).sum::<u64>());
    assert_eq!(weights.collect::<Vec<_>>(), [10, 4, 20]);
    assert_eq!(samples(rows[2])[0].0, "[wait: lock]");

    let markers = &rows[0]["markers"];
    let text = |place: &Value| rows[0]["stringArray"][place.as_u64().unwrap() as usize].clone();
    assert_eq!((&markers["length"], &text(&markers["name"][0])), (&1.into(), &"Sleeping".into()));
    let [begin, end] = ["startTime", "endTime"].map(|time| markers[time][0].as_f64().unwrap().round());
    assert_eq!((begin, end), (1000.0, 3000.0), "a wait belongs to the second in which it ends");
    let data = &markers["data"][0];
    assert_eq!((&data["samples"], &text(&data["reason"])), (&20.0.into(), &"[wait: lock]".into()), "{data}");
    assert!(data["cause"]["stack"].is_number(), "{data}");
    assert!(rows[1..].iter().all(|row| row["markers"]["length"] == 0));
}

#[test]
fn without_seconds_samples_are_spread_over_the_time_of_the_profile() {
    let mut whole = OurProfile::new();
    let labels = whole.intern_labels(&Labels { process: "a".into(), ..Labels::default() });
    for name in ["one", "two"] {
        let stack = whole.intern_stack(&[Arc::new(OurFrame::named(Kind::Native, name))]);
        whole.add_interned(stack, labels, Event::Cpu, Weight { count: 5, ..Weight::default() });
    }
    whole.span.duration_ns = 10 * SECOND;
    let json = json(&whole);
    let times: Vec<u64> = samples(thread(&json, "a")).iter().map(|sample| sample.1.round() as u64).collect();
    assert_eq!(times, [5000, 10_000]);
}
