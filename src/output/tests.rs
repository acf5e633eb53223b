//! Tests of properties that every format has.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use super::arbitrary::{self, hostile_names};
use super::jfr::parsed::{JfrValue, Parsed};
use super::{Format, OutputTarget, PictureOptions, encode, folded, jfr, pprof, svg};
use crate::profile::frame::is_clean;
use crate::profile::pauses::{PauseMark, PauseTotals};
use crate::profile::samples::Weight;
use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
use crate::sample::{Estimate, Event};

fn bytes(profile: &Profile, format: &Format) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&profile.views(), format, &PictureOptions::default(), &mut out).unwrap();
    out
}

fn text(profile: &Profile) -> String {
    String::from_utf8(bytes(profile, &folded::FORMAT)).unwrap()
}

fn from_folded(text: &str) -> Profile {
    folded::read(&mut text.as_bytes()).unwrap()
}

fn from_pprof(bytes: &[u8]) -> Profile {
    let mut bytes = bytes;
    pprof::read(&mut bytes).unwrap()
}

fn sum_of_folded(text: &str) -> u64 {
    text.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// The picture's total number of samples.
fn sum_of_svg(picture: &str) -> u64 {
    let (_, rest) = picture.split_once("total_samples=\"").unwrap();
    rest.split_once('"').unwrap().0.parse().unwrap()
}

fn sum_of_pprof(bytes: &[u8]) -> u64 {
    from_pprof(bytes).accounts(Event::Cpu).shown()
}

fn from_jfr(bytes: &[u8]) -> Parsed {
    Parsed::of(bytes)
}

fn sum_of_jfr(bytes: &[u8]) -> u64 {
    from_jfr(bytes).of_type("jdk.ExecutionSample").count() as u64
}

fn profiles() -> impl Iterator<Item = Profile> {
    (0..24).map(|seed| arbitrary::profile(seed, seed % 2 == 1))
}

/// Samples in a comparable form, without bytecode indices, which pprof cannot hold.
fn rows(profile: &Profile) -> BTreeMap<(Labels, Vec<String>), (u64, u64)> {
    let mut rows = BTreeMap::new();
    for sample in profile.samples() {
        let mut stack: Vec<String> = profile
            .trie()
            .path_to_root(sample.leaf)
            .map(|node| {
                let mut frame = profile.frames().get(profile.frame_of(node));
                frame.bci = None;
                format!("{frame:?}")
            })
            .collect();
        stack.reverse();
        let sum: &mut (u64, u64) = rows.entry((profile.labels(sample.labels).clone(), stack)).or_default();
        sum.0 += sample.weight.count;
        sum.1 += sample.weight.value;
    }
    rows
}

/// How many samples have a frame of each source file, once for each such frame.
fn files(profile: &Profile) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    for sample in profile.samples() {
        let frames = profile.trie().path_to_root(sample.leaf).map(|node| profile.frame_of(node));
        for file in frames.filter_map(|frame| profile.frames().get(frame).file) {
            *files.entry(file.to_string()).or_default() += sample.weight.count;
        }
    }
    files
}

#[test]
fn all_formats_sum_to_the_same() {
    for profile in profiles() {
        profile.check().unwrap();
        let shown = profile.accounts(Event::Cpu).shown();
        assert!(shown > 0);
        assert_eq!(sum_of_folded(&text(&profile)), shown);
        assert_eq!(sum_of_pprof(&bytes(&profile, &pprof::FORMAT)), shown);
        assert_eq!(sum_of_jfr(&bytes(&profile, &jfr::FORMAT)), shown);
        for (reverse, min_width) in [(false, 0.1), (true, 0.1), (false, 40.0), (true, 0.0)] {
            let picture_options = PictureOptions { reverse, min_width, ..PictureOptions::default() };
            let mut picture = Vec::new();
            svg::write(&profile.of_event(Event::Cpu), &picture_options, &mut picture).unwrap();
            assert_eq!(sum_of_svg(std::str::from_utf8(&picture).unwrap()), shown);
        }
    }
}

#[test]
fn folded_comes_back_as_it_was() {
    for profile in profiles() {
        let once = text(&profile);
        let back = from_folded(&once);
        for (is, was) in text(&back).lines().zip(once.lines()) {
            for (is, was) in is.split(';').zip(was.split(';')) {
                assert_eq!(is, was);
            }
        }
        assert_eq!(text(&back), once);
        let mut lost = profile.accounts(Event::Cpu).lost.clone();
        lost.sort();
        // The event is guessed from what most stacks end in.
        let event = back.events()[0];
        let mut found = back.accounts(event).lost.clone();
        found.sort();
        assert_eq!(found, lost);
        assert_eq!(back.accounts(event).kept, profile.accounts(Event::Cpu).kept);
        back.check().unwrap();
    }
}

#[test]
fn pprof_comes_back_as_it_was() {
    for (seed, profile) in profiles().enumerate() {
        let once = bytes(&profile, &pprof::FORMAT);
        let back = from_pprof(&once);
        back.check().unwrap();
        assert_eq!(back.accounts(Event::Cpu), profile.accounts(Event::Cpu), "seed {seed}");
        assert_eq!(back.span, profile.span);
        assert_eq!(text(&back), text(&profile), "seed {seed}");
        assert_eq!(files(&back), files(&profile), "seed {seed}");
        let again = from_pprof(&bytes(&back, &pprof::FORMAT));
        assert_eq!(rows(&again), rows(&back), "seed {seed}");
        assert_eq!(again.accounts(Event::Cpu), back.accounts(Event::Cpu));
    }
}

#[test]
fn pprof_keeps_every_sample_label_line_and_module() {
    let mut profile = Profile::new();
    // `plausible` has no frames that pprof would merge into one address.
    for (labels, stack, weight) in arbitrary::plausible(5) {
        profile.add(&labels, &stack, weight, weight * 10);
    }
    *profile.accounts_mut(Event::Cpu) = Accounts {
        taken: profile.of_event(Event::Cpu).total().count,
        kept: profile.of_event(Event::Cpu).total().count,
        ..Accounts::default()
    };
    let totals = PauseTotals { safepoints: 4, safepoint_usec: 900, collections: 2, collection_usec: 700 };
    profile.pauses =
        [(7, 0), (7, 3), (9, 1)].map(|(pid, second)| PauseMark { pid, second, totals }).into_iter().collect();
    let back = from_pprof(&bytes(&profile, &pprof::FORMAT));
    assert_eq!(rows(&back), rows(&profile));
    assert!(rows(&back).len() > 20);
    assert_eq!(back.pauses.by_process(), profile.pauses.by_process());
    assert!(back.pauses.marks().all(|mark| mark.second == 0), "pprof has no seconds");
}

#[test]
fn folded_to_pprof_and_back() {
    for profile in profiles() {
        let first = from_folded(&text(&profile));
        let through = from_pprof(&bytes(&first, &pprof::FORMAT));
        assert_eq!(text(&through), text(&first));
    }
}

#[test]
fn hostile_names_are_harmless_in_every_format() {
    let mut seen = 0;
    for seed in 0..12 {
        let profile = arbitrary::profile(seed, true);
        let folded = text(&profile);
        for line in folded.lines() {
            assert!(is_clean(line, usize::MAX), "{line:?}");
            seen += 1;
        }
        let picture = String::from_utf8(bytes(&profile, &svg::FORMAT)).unwrap();
        assert!(picture.chars().all(|c| c == '\n' || c == '\t' || is_clean(c.encode_utf8(&mut [0; 4]), 9)));
        xml::check(&picture);
        let names = from_pprof(&bytes(&profile, &pprof::FORMAT));
        for symbol in names.frames().symbols() {
            assert!(is_clean(names.frames().name(symbol), 5000));
        }
        for constant in from_jfr(&bytes(&profile, &jfr::FORMAT)).constants.values() {
            if let JfrValue::Text(text) = constant {
                assert!(is_clean(text, 5000), "{text:?}");
            }
        }
    }
    assert!(seen > 300 && hostile_names().len() > 30);
}

#[test]
fn names_of_any_length_are_shortened() {
    let long = "long; ".repeat(20_000);
    let mut profile = Profile::new();
    let labels = Labels { process: long.as_str().into(), ..Labels::default() };
    let frames = [Kind::Process, Kind::Java, Kind::Kernel, Kind::JavaInlined];
    let frames = frames.map(|kind| Arc::new(Frame::named(kind, long.as_str())));
    profile.add(&labels, &frames, 3, 30);
    *profile.accounts_mut(Event::Cpu) = Accounts { taken: 3, kept: 3, ..Accounts::default() };
    let folded = text(&profile);
    assert!(folded.len() < 4 * 5000 && folded.matches('…').count() == 8);
    assert_eq!(text(&from_folded(&folded)), folded);
    let packed = bytes(&profile, &pprof::FORMAT);
    assert_eq!(text(&from_pprof(&packed)), folded);
    assert_eq!(sum_of_svg(&String::from_utf8(bytes(&profile, &svg::FORMAT)).unwrap()), 3);
    let jfr = bytes(&profile, &jfr::FORMAT);
    assert!(sum_of_jfr(&jfr) == 3 && jfr.len() < 40_000, "{}", jfr.len());
}

#[test]
fn names_that_differ_stay_different() {
    let long = |middle| format!("{}{middle}{}", "a".repeat(4000), "b".repeat(4000));
    let (one, two) = (long("1"), long("2"));
    let spaces = ["a", " a", "a ", "  a", "a\u{3000}", "\u{3000}", " ", "  ", "x 5", "x_5", "# x", "#_x"];
    let names: Vec<&str> = spaces.into_iter().chain([one.as_str(), two.as_str()]).collect();
    for kind in [Kind::Native, Kind::Java, Kind::Kernel] {
        let mut profile = Profile::new();
        for (count, name) in (1..).zip(&names) {
            let frames = [Frame::named(Kind::Process, "p"), Frame::named(kind, *name)].map(Arc::new);
            profile.add(&Labels::default(), &frames, count, 0);
        }
        profile.accounts_mut(Event::Cpu).kept = profile.of_event(Event::Cpu).total().count;
        let folded = text(&profile);
        assert_eq!(folded.lines().count(), names.len(), "{folded}");
        assert_eq!(text(&from_folded(&folded)), folded);
        assert_eq!(text(&from_pprof(&bytes(&profile, &pprof::FORMAT))), folded);
        assert_eq!(text(&from_pprof(&bytes(&from_folded(&folded), &pprof::FORMAT))), folded);
    }
}

#[test]
fn garbage_is_refused_or_read_and_never_panics() {
    let mut numbers = arbitrary::SplitMix64::new(4);
    let packed = bytes(&arbitrary::profile(8, false), &pprof::FORMAT);
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut raw).unwrap();
    let folded = text(&arbitrary::profile(9, true)).into_bytes();
    let (mut read, mut refused) = (0, 0);
    for round in 0..600 {
        let mut broken = if round % 2 == 0 { raw.clone() } else { folded.clone() };
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(broken.len() as u64) as usize;
            match numbers.below(3) {
                0 => broken[at] ^= 1 << numbers.below(8),
                1 => broken[at] = 0xff,
                _ => broken.truncate(at.max(1)),
            }
        }
        let found = if round % 2 == 0 {
            pprof::read(&mut broken.as_slice())
        } else {
            folded::read(&mut broken.as_slice())
        };
        match found {
            Ok(profile) => {
                profile.check().unwrap();
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 50 && refused > 50, "{read} {refused}");
    for bomb in ["a 9223372036854775807\nb 1\n", "a 18446744073709551616\n"] {
        assert!(folded::read(&mut bomb.as_bytes()).is_err());
    }
}

#[test]
fn go_pprof_opens_it() {
    if testkit::go().arg("version").output().is_err() {
        eprintln!("SKIP: go_pprof_opens_it: there is no go here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for seed in [0, 1] {
        let profile = arbitrary::profile(seed, seed == 1);
        let path = directory.path().join("profile.pb.gz");
        std::fs::write(&path, bytes(&profile, &pprof::FORMAT)).unwrap();
        let run = |how: &str| {
            let out = testkit::go()
                .args(["tool", "pprof", how, "-sample_index=samples"])
                .arg(&path)
                .env("PPROF_TMPDIR", directory.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{how}: {said}");
            String::from_utf8(out.stdout).unwrap()
        };
        let shown = profile.accounts(Event::Cpu).shown();
        let top = run("-top");
        assert!(top.contains(&format!("of {shown} total")), "{top}");
        let raw = run("-raw");
        assert!(raw.contains("samples/count cpu/nanoseconds"), "{raw}");
        let (samples, _) = raw.split_once("Samples:").unwrap().1.split_once("Locations").unwrap();
        let sum: u64 = samples
            .lines()
            .filter_map(|l| l.split_once(':')?.0.split_whitespace().next()?.parse::<u64>().ok())
            .sum();
        assert_eq!(sum, shown);
        assert!(raw.contains("process.pid:["), "{raw}");
        let comments = run("-comments");
        assert!(
            comments.contains(&format!("jbpf-prof.kept={}", profile.accounts(Event::Cpu).kept)),
            "{comments}"
        );
    }
}

/// A small XML reader, strict enough to detect text that became markup.
mod xml {
    pub(super) fn check(text: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('<') {
            entities(&rest[..at]);
            rest = &rest[at..];
            let end = if rest.starts_with("<!--") {
                "-->"
            } else if rest.starts_with("<![CDATA[") {
                "]]>"
            } else {
                ">"
            };
            let length = rest.find(end).expect("markup ends") + end.len();
            let tag = &rest[..length];
            rest = &rest[length..];
            if end != ">" || tag.starts_with("<?") || tag.starts_with("<!") {
                continue;
            }
            let name = tag.trim_start_matches("</").trim_start_matches('<');
            let name = name.split([' ', '>', '/']).next().unwrap();
            let known =
                ["svg", "defs", "linearGradient", "stop", "style", "script", "rect", "text", "g", "title"];
            assert!(known.contains(&name), "{tag}");
            if tag.starts_with("</") {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with("/>") {
                open.push(name);
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
        assert_eq!(text.matches("<script").count(), 2, "inferno's and ours: no name brought one");
    }

    fn entities(text: &str) {
        for (at, _) in text.match_indices('&') {
            let end = text[at..].find(';').expect("an entity ends");
            assert!(["&lt;", "&gt;", "&amp;", "&quot;", "&apos;"].contains(&&text[at..=at + end]), "{text}");
        }
        assert!(!text.contains('>') || text.contains("#frames >"), "{text}");
    }
}

/// Objects of allocations are a column of pprof. Their sum is rounded, and not each number.
#[test]
fn pprof_has_the_objects_of_allocations() {
    let mut profile = arbitrary::profile(3, false);
    let samples = profile.samples();
    for sample in &samples {
        let weight = Weight { count: 2, value: 1 << 20, objects: Estimate::of_units(256 * 5 / 4) };
        profile.add_interned(sample.leaf, sample.labels, Event::Alloc, weight);
    }
    let of = |profile: &Profile| profile.of_event(Event::Alloc).total();
    let all = of(&profile);
    // Numbers that were rounded each would sum to one for each sample.
    assert!(all.objects.rounded() > samples.len() as u64, "{all:?}");
    let back = from_pprof(&bytes(&profile, &pprof::FORMAT));
    assert_eq!(of(&back), Weight { objects: Estimate::whole(all.objects.rounded()), ..all });
    let each = back.of_event(Event::Alloc).samples().iter().map(|sample| sample.weight.objects).min();
    assert_eq!(each, Some(Estimate::whole(1)), "a sample is one of an object");
    assert_eq!(back.of_event(Event::Cpu).total().objects, Estimate::default());
}

/// Each of two events has its own samples and accounts; a format for one event writes a file for each.
#[test]
fn events_stay_apart() {
    let mut profile = arbitrary::profile(3, false);
    let cpu = rows(&from_pprof(&bytes(&profile, &pprof::FORMAT)));
    let (period, samples) = (100, profile.samples());
    for sample in &samples {
        let weight = Weight { count: 2, value: 2 * period, ..Weight::default() };
        profile.add_interned(sample.leaf, sample.labels, Event::PageFaults, weight);
    }
    let kept = 2 * samples.len() as u64;
    let faults = profile.accounts_mut(Event::PageFaults);
    *faults = Accounts {
        taken: kept + 5,
        kept,
        expected: kept + 7,
        missed: 2,
        one_in: period,
        ..Accounts::default()
    };
    faults.lose("ring full", 5);
    profile.check().unwrap();

    let back = from_pprof(&bytes(&profile, &pprof::FORMAT));
    assert_eq!(back.events(), [Event::Cpu, Event::PageFaults]);
    for event in back.events() {
        assert_eq!(back.accounts(event), profile.accounts(event), "{event:?}");
        let total = |profile: &Profile| profile.of_event(event).total();
        assert_eq!(total(&back), total(&profile), "{event:?}");
        assert_eq!(total(&back).count, back.accounts(event).kept);
    }
    let both = rows(&back);
    assert_eq!(both.keys().collect::<Vec<_>>(), cpu.keys().collect::<Vec<_>>());
    assert!(both.iter().all(|(row, (count, value))| {
        (count - cpu[row].0) * period == value - cpu[row].1 && *count > cpu[row].0
    }));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.folded");
    let target = OutputTarget::parse(&path, None).unwrap();
    let written = super::write(&profile.views(), &target, &PictureOptions::default()).unwrap();
    let sums = written.iter().map(|to| sum_of_folded(&std::fs::read_to_string(&to.name).unwrap()));
    assert_eq!(sums.collect::<Vec<_>>(), [profile.accounts(Event::Cpu).shown(), kept + 5]);
    assert!(written[1].name.ends_with("x-page-faults.folded"));
}
