use std::sync::Arc;

use super::{DiffTarget, Difference, text, verdict};
use crate::compare::{CompareOptions, Comparison, ProfilePair, Work};
use crate::output::PictureOptions;
use crate::profile::samples::Weight;
use crate::profile::{Frame, Kind, Labels, Profile};
use crate::sample::Event;

/// A run of 40 seconds of a program that parses for `parse` of 100 samples a second.
fn run(parse: u64) -> Profile {
    let mut profile = Profile::new();
    let labels = profile.intern_labels(&Labels { process: "shop".into(), ..Labels::default() });
    let mut stack = |names: &[(Kind, &str)]| {
        let frames: Vec<Arc<Frame>> =
            names.iter().map(|(kind, name)| Arc::new(Frame::named(*kind, *name))).collect();
        profile.intern_stack(&frames)
    };
    let root = [(Kind::Process, "shop"), (Kind::Native, "main")];
    let rest = stack(&root);
    let [parsed, other, gone] = [
        [(Kind::Java, "shop.Json.parse")],
        [(Kind::Java, "shop.<b>Other|.run")],
        [(Kind::Java, if parse < 20 { "shop.Old.run" } else { "shop.New.run" })],
    ]
    .map(|leaf| stack(&[&root[..], &leaf[..]].concat()));
    for second in 0..40u16 {
        let wave = u64::from(second % 3);
        for (node, count) in [(parsed, parse + wave), (other, 50 - wave), (rest, 40 - parse), (gone, 10)] {
            profile.add_interned_in_second(
                second,
                node,
                labels,
                Event::Cpu,
                Weight { count, ..Weight::default() },
            );
        }
    }
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.kept, accounts.taken, accounts.period_ns) = (4000, 4002, 10_101_010);
    accounts.lose("ring full", 2);
    profile.check().unwrap();
    profile
}

/// Compares two runs, and passes the difference on.
fn compared<T>(sides: [u64; 2], per: Option<Work>, then: impl FnOnce(&Difference<'_>) -> T) -> T {
    let [before, after] = sides.map(|parse| [run(parse)]);
    let pair = ProfilePair::of(&before, &after, Event::Cpu);
    let comparison = Comparison::of(&pair, CompareOptions { threshold: 1.0, per }).unwrap();
    let [before, after] = ["a.html", "b.html"].map(|name| [name.to_owned()]);
    then(&Difference { pair: &pair, comparison: &comparison, before: &before, after: &after })
}

fn written(difference: &Difference<'_>, extension: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("d.{extension}"));
    super::write(difference, &DiffTarget::parse(&path, None).unwrap(), &PictureOptions::default()).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_verdict_names_what_changed_and_by_how_much() {
    compared([10, 30], None, |difference| {
        assert!(difference.comparison.is_changed());
        let said = verdict(difference);
        assert!(
            said.contains("shop.Json.parse self +20 points ±")
                && said.contains("(self 11.0 % before, 31.0 % after)"),
            "{said}"
        );
        let text = text(difference, 100);
        assert!(text.contains("before: a.html (1 run, 4,000 samples, 2 lost)"), "{text}");
        assert!(text.contains("40 before, 40 after"), "{text}");
        assert!(text.ends_with(&format!("{said}\n")), "{text}");
    });
    compared([10, 10], None, |difference| {
        assert!(!difference.comparison.is_changed());
        assert_eq!(verdict(difference), "no change of 1 point or more found");
        assert!(text(difference, 100).contains("None is proved"));
    });
}

#[test]
fn work_makes_the_whole_comparable() {
    let work = Work { name: "request".to_owned(), before: 100.0, after: 200.0 };
    compared([10, 10], Some(work), |difference| {
        let whole = difference.comparison.whole.unwrap();
        assert!(whole.is_finding && (whole.points() + 50.0).abs() < 1e-9, "{whole:?}");
        let said = verdict(difference);
        assert!(said.starts_with("changed: -50 % ±") && said.contains(" per request: "), "{said}");
    });
}

#[test]
fn each_form_has_both_sides() {
    compared([10, 30], None, |difference| {
        let folded = written(difference, "folded");
        assert!(folded.contains("shop;main;shop.Old.run_[j] 400 0\n"), "{folded}");
        assert!(folded.contains("[lost];[ring full] 2 2\n"), "{folded}");
        let svg = written(difference, "svg");
        assert!(
            svg.contains("+ shop.Json.parse (10.98 % before, 30.98 % after, +20.00 points)</title>"),
            "{}",
            &svg[svg.find("<title>").unwrap()..]
        );
        assert!(svg.contains("− shop.Old.run (10.00 % before, 0.00 % after") && !svg.contains("<b>"));
        let json: serde_json::Value = serde_json::from_str(&written(difference, "json")).unwrap();
        assert_eq!(json["verdict"], "changed");
        assert_eq!(json["noise"]["between"], "seconds");
        let functions = json["functions"].as_array().unwrap();
        let parse = functions.iter().find(|function| function["name"] == "shop.Json.parse").unwrap();
        assert!((parse["self"]["points"].as_f64().unwrap() - 20.0).abs() < 1e-9, "{parse}");
        assert_eq!(parse["finding"], true);
        let main = functions.iter().find(|function| function["name"] == "main").unwrap();
        assert_eq!(main["total"]["points"], 0.0);
        assert_eq!(main["total"]["finding"], false);
        let markdown = written(difference, "md");
        assert!(markdown.contains("| `shop.Json.parse` | 11.0 % | 31.0 % | +20 ±"), "{markdown}");
        let page = written(difference, "html");
        let read = crate::output::page::read::read(&mut page.as_bytes()).unwrap();
        assert_eq!(read.of_event(Event::Cpu).total().count, 8000);
    });
}
