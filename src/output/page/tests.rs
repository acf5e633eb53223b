use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::FORMAT;
use crate::output::arbitrary::{self, hostile_names};
use crate::output::{PictureOptions, encode};
use crate::profile::Profile;
use crate::profile::pauses::{PauseMark, PauseTotals};
use crate::profile::samples::Weight;
use crate::sample::Event;
use crate::text::is_clean;

fn page(profile: &Profile) -> String {
    let mut bytes = Vec::new();
    encode(&profile.views(), &FORMAT, &PictureOptions::default(), &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The document of a page.
fn document(page: &str) -> Value {
    let (_, behind) = page.split_once("{\"deflate-raw\":\"").unwrap();
    let packed = STANDARD.decode(behind.split_once('"').unwrap().0).unwrap();
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(&*packed).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn numbers(column: &Value) -> Vec<i64> {
    column.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

#[test]
fn every_sample_is_in_the_document_in_its_second() {
    for seed in 0..8 {
        let mut profile = arbitrary::profile(seed, seed % 2 == 0);
        for (at, sample) in profile.samples().into_iter().enumerate() {
            let weight = Weight { count: 3, ..Weight::default() };
            profile.add_interned_in_second(at as u16 % 50, sample.leaf, sample.labels, Event::Wait, weight);
        }
        let document = document(&page(&profile));
        let samples = &document["samples"];
        let (events, rows) = (numbers(&samples["event"]), numbers(&samples["rows"]));
        let (columns, counts) = (numbers(&samples["column"]), numbers(&samples["count"]));
        let mut sums = vec![vec![0; 50]; 2];
        let mut next = 0;
        for (event, rows) in events.iter().zip(rows) {
            let mut column = 0;
            for row in next..next + rows as usize {
                column += columns[row];
                sums[*event as usize][column as usize] += counts[row];
            }
            next += rows as usize;
        }
        for (event, sums) in [Event::Cpu, Event::Wait].into_iter().zip(sums) {
            let mut wanted = vec![0; 50];
            for sample in profile.of_event(event).by_second() {
                wanted[usize::from(sample.second)] += sample.weight.count as i64;
            }
            assert_eq!(sums, wanted, "{event:?}");
            assert!(wanted.iter().sum::<i64>() > 0);
        }
    }
}

/// Checks the order of the nodes; returns how many of them have a sibling before them.
fn siblings_of(document: &Value) -> usize {
    let name = |symbol: i64| {
        let string = document["symbols"]["name"][symbol as usize].as_u64().unwrap();
        document["strings"][string as usize].as_str().unwrap()
    };
    let (depths, symbols) = (numbers(&document["nodes"]["depth"]), numbers(&document["nodes"]["symbol"]));
    let mut path: Vec<&str> = Vec::new();
    let mut siblings = 0;
    for (depth, symbol) in depths.into_iter().zip(symbols) {
        let (depth, name) = (depth as usize, name(symbol));
        assert!(depth >= 1 && depth <= path.len() + 1, "a node has its parent before it");
        if depth <= path.len() {
            assert!(path[depth - 1] <= name, "{} stands before {name}", path[depth - 1]);
            siblings += 1;
        }
        path.truncate(depth - 1);
        path.push(name);
    }
    siblings
}

#[test]
fn nodes_are_in_preorder_with_siblings_by_name() {
    let siblings: usize =
        (0..8).map(|seed| siblings_of(&document(&page(&arbitrary::profile(seed, false))))).sum();
    assert!(siblings > 100, "{siblings}");
}

#[test]
fn hostile_names_are_only_in_the_packed_document() {
    let page = page(&arbitrary::profile(4, true));
    for name in hostile_names().iter().filter(|name| name.len() > 20) {
        assert!(!page.contains(name.as_str()), "{name:?}");
    }
    let document = document(&page);
    let strings = document["strings"].as_array().unwrap();
    assert!(strings.iter().any(|text| text == "<script>alert(1)</script>"));
    assert!(strings.iter().all(|text| is_clean(text.as_str().unwrap(), 5000)));
}

/// Samples by event, node, second, process and source line.
fn sums_of(document: &Value) -> BTreeMap<[i64; 5], i64> {
    let [samples, labels, lines] = ["samples", "labels", "lines"].map(|part| &document[part]);
    let column = |of: &Value, name: &str| numbers(&of[name]);
    let (pid, line) = (column(labels, "pid"), column(lines, "line"));
    let (columns, counts) = (column(samples, "column"), column(samples, "count"));
    let keys = ["event", "node", "labels", "line", "rows"].map(|name| column(samples, name));
    let (mut sums, mut node, mut next) = (BTreeMap::new(), 0, 0);
    for key in 0..keys[0].len() {
        node += keys[1][key];
        let mut second = 0;
        for row in next..next + keys[4][key] as usize {
            second += columns[row];
            let of = [keys[0][key], node, second, pid[keys[2][key] as usize], line[keys[3][key] as usize]];
            *sums.entry(of).or_default() += counts[row];
        }
        next += keys[4][key] as usize;
    }
    sums
}

fn mark((pid, second): (u32, u16)) -> PauseMark {
    let totals = PauseTotals {
        safepoints: 3,
        safepoint_usec: 1500,
        collections: u64::from(second),
        collection_usec: 40,
    };
    PauseMark { pid, second, totals }
}

/// Pages from before the pauses are read, and pages from after a further field, too.
#[test]
fn a_page_of_another_version_of_the_program_is_read() {
    let mut profile = arbitrary::profile(1, false);
    profile.pauses.add(mark((7, 0)));
    let mut document = document(&page(&profile));
    let read = |document: &Value| super::read::document(document.to_string().as_bytes()).unwrap();
    document["pauses"]["longest_usec"] = vec![5].into();
    assert_eq!(read(&document).pauses, profile.pauses);
    document.as_object_mut().unwrap().remove("pauses").unwrap();
    let old = read(&document);
    assert!(old.pauses.is_empty() && old.samples().len() == profile.samples().len(), "{:?}", old.pauses);
}

#[test]
fn a_page_is_read_back_with_its_seconds_labels_and_accounts() {
    for seed in 0..8 {
        let mut profile = arbitrary::profile(seed, seed % 2 == 0);
        for (at, sample) in profile.samples().into_iter().enumerate() {
            let weight = Weight { count: 3, ..Weight::default() };
            profile.add_interned_in_second(at as u16 % 50, sample.leaf, sample.labels, Event::Wait, weight);
        }
        let wait = profile.of_event(Event::Wait).total().count;
        let accounts = profile.accounts_mut(Event::Wait);
        (accounts.kept, accounts.taken) = (wait, wait);
        // Also of a process without samples, and in a second without samples.
        profile.pauses = [(7, 0), (7, 60), (u32::MAX, 3)].map(mark).into_iter().collect();
        let written = page(&profile);
        let read = super::read::read(&mut written.as_bytes()).unwrap();
        read.check().unwrap();
        let [before, after] = [document(&written), document(&page(&read))];
        assert_eq!(before["nodes"]["depth"], after["nodes"]["depth"], "seed {seed}");
        assert_eq!(sums_of(&before), sums_of(&after), "seed {seed}");
        assert_eq!((&before["pauses"], before["columns"].as_u64()), (&after["pauses"], Some(61)));
        assert_eq!(read.pauses, profile.pauses);
        for event in [Event::Cpu, Event::Wait] {
            let [before, after] = [&profile, &read].map(|profile| profile.of_event(event));
            assert_eq!(after.total().count, before.total().count);
            assert_eq!(after.accounts().lost, before.accounts().lost);
        }
    }
}

#[test]
fn what_is_no_page_or_contradicts_itself_is_an_error_in_one_sentence() {
    let mut profile = arbitrary::profile(1, false);
    profile.pauses.add(mark((7, 0)));
    let good = document(&page(&profile));
    let error = |text: &str| format!("{:#}", super::read::document(text.as_bytes()).unwrap_err());
    let set = |path: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(path).unwrap() = value;
        error(&bad.to_string())
    };
    assert!(super::read::document(good.to_string().as_bytes()).is_ok());
    for (path, value, part) in [
        ("/version", 9.into(), "version 9"),
        ("/nodes/depth/0", 7.into(), "no caller"),
        ("/nodes/symbol/0", 999_999.into(), "refers to symbol 999999"),
        ("/symbols/name/0", 999_999.into(), "refers to string 999999"),
        ("/kinds/0/name", "x".into(), "unknown kind"),
        ("/samples/node/0", (-1).into(), "negative"),
        ("/samples/rows/0", 999_999_999.into(), "refers to row"),
        ("/samples/column/0", 99_999.into(), "behind its last column"),
        ("/samples/count/0", u64::MAX.into(), "63 bits"),
        ("/pauses/column/0", 99_999.into(), "behind its last column"),
        ("/pauses/pid", vec![7, 7].into(), "refers to pauses 1 of 1"),
        ("/samples/labels/0", 999_999.into(), "refers to labels"),
        ("/events/0/name", "x".repeat(5000).into(), "too long a name"),
        ("/events/0/accounts/filtered", u64::MAX.into(), "63 bits"),
    ] {
        let said = set(path, value);
        assert!(said.contains(part) && !said.contains('\n'), "{path}: {said}");
    }
    for (text, part) in [("<!doctype html>", "not a page"), ("{\"deflate-raw\":\"!\"}", "decoded")] {
        let said = format!("{:#}", super::read::read(&mut text.as_bytes()).unwrap_err());
        assert!(said.contains(part), "{said}");
    }
}

/// A seed that is not read any more would leave the fuzz target with nothing to change.
#[test]
fn the_seeds_of_the_fuzz_target_are_read() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/page");
    let (mut events, mut pauses) = (0, 0);
    for file in std::fs::read_dir(directory).unwrap() {
        let profile = super::read::document(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        profile.check().unwrap();
        pauses += profile.pauses.marks().count();
        events += profile.views().iter().filter(|view| view.total().count > 0).count();
    }
    assert_eq!((events, pauses), (3, 2));
}
