//! A profile of a JVM as Go's own tool reads it: stacks with inlined functions, lines, mappings, labels.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use testkit::claims::{prove, seen};
use testkit::folded::{Folded, bare, is};
use testkit::java::{Jdk, Program};
use testkit::profiler::{out_file, run};
use testkit::{is_root, lacks, sources};

/// The tool's output for a profile.
fn pprof(how: &[&str], file: &Path) -> String {
    let output = testkit::go().args(["tool", "pprof", "-sample_index=samples"]).args(how).arg(file).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{how:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn go_finds_the_stacks_lines_files_and_labels_of_a_jvm() {
    if !is_root() || lacks("go") {
        return;
    }
    let methods = ["burn*", "twice", "thrice", "inner", "other"];
    let inline = methods.map(|method| format!("-XX:CompileCommand=inline,InlinedShares::{method}"));
    let program = Program::new("InlinedShares").flags(&inline.each_ref().map(String::as_str));
    let target = program.dont_inline("InlinedShares::round").debug_non_safepoints().start(&Jdk::host());
    let (folded, profile) = (out_file("folded"), out_file("pb.gz"));
    let (pid, paths) = (target.pid().to_string(), [&folded, &profile].map(|path| path.to_str().unwrap()));
    let sample = || {
        let line = ["-F", "2999", "-d", "1", "-p", &pid, "--report", "none", "-o", paths[0], "-o", paths[1]];
        run(line).success();
        let folded = Folded::parse(&std::fs::read_to_string(&folded).unwrap());
        let folded = folded.keep(|stack| stack[0] != "[lost]");
        assert_traces(&pprof(&["-traces"], &profile), &folded);
        let raw = pprof(&["-raw"], &profile);
        assert_lines(&raw);
        assert_files(&raw);
        let pids = raw.matches(&format!("process.pid:[{pid}]")).count();
        let samples = raw.matches("process.pid:").count();
        assert!(samples > 5 && pids == samples, "{pids} of {samples}");
        let own = "process.executable.name:[java] thread.name:[java]";
        assert!(raw.contains(own), "{raw}");
        folded
    };
    let number_of = |name: &'static str| {
        seen(50, format!("samples of {name}"), move |stack| stack.iter().any(|frame| is(frame, name)))
    };
    prove(sample, &["InlinedShares.burn40", "jni_invoke_static"].map(number_of));
}

/// Asserts that the tool has the folded file's stacks, root last, with their counts, and marks inlined functions.
#[track_caller]
fn assert_traces(traces: &str, folded: &Folded) {
    let mut found: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for trace in traces.split("-----------+").skip(1) {
        // The rest of the separator, then labels with a colon after their names, then a count before the first frame.
        let mut lines =
            trace.lines().skip(1).skip_while(|line| line.split("  ").next().unwrap().ends_with(':'));
        let Some((count, leaf)) = lines.next().and_then(|line| line.trim_start().split_once(' ')) else {
            continue;
        };
        let frames = std::iter::once(leaf).chain(lines).map(|frame| frame.trim().to_owned());
        *found.entry(frames.collect()).or_default() +=
            count.parse::<u64>().unwrap_or_else(|_| panic!("{trace}"));
    }
    let mut right: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (stack, count) in folded.stacks() {
        let name = |frame: &String| {
            format!("{}{}", bare(frame), if frame.ends_with("_[i]") { " (inline)" } else { "" })
        };
        *right.entry(stack.iter().rev().map(name).collect()).or_default() += count;
    }
    assert_eq!(found, right);
}

/// Asserts that each frame of an inlined chain has the line of its method's source.
#[track_caller]
fn assert_lines(raw: &str) {
    let source = std::fs::read_to_string(sources().join("InlinedShares.java")).unwrap();
    let line = |part: &str| 1 + source.lines().position(|line| line.contains(part)).unwrap();
    let body = line("long burn40(")..=line("long twice(");
    let callers = [
        ("other", line("return burn40(x)")),
        ("thrice", line("other(inner(x))")),
        ("round", line("sink = thrice(")),
    ];
    let expected: Vec<String> =
        callers.map(|(method, line)| format!("InlinedShares.{method} InlinedShares.java:{line}")).to_vec();
    let lines: Vec<&str> = raw.lines().collect();
    let places = lines.iter().enumerate().filter_map(|(at, text)| {
        let (_, rest) = text.split_once(" InlinedShares.burn40 InlinedShares.java:")?;
        Some((at, rest.split([':', ' ']).next()?.parse::<usize>().unwrap()))
    });
    let places: Vec<(usize, usize)> = places.collect();
    assert!(!places.is_empty(), "{raw}");
    for (at, line) in places {
        assert!(body.contains(&line), "{line} is none of the lines {body:?}");
        // Newer versions of Go also print the column.
        let place = |text: &&str| {
            let place = text.split(" s=").next().unwrap().trim();
            place.strip_suffix(":0").unwrap_or(place).to_owned()
        };
        let above: Vec<String> = lines[at + 1..][..3].iter().map(place).collect();
        assert_eq!(above, expected);
    }
}

/// Asserts that the JVM's own frames are in its library, with the build id of that file.
#[track_caller]
fn assert_files(raw: &str) {
    let library = Jdk::host().home().unwrap().join("lib/server/libjvm.so").canonicalize().unwrap();
    let notes = Command::new("readelf").arg("--notes").arg(&library).output().unwrap().stdout;
    let notes = String::from_utf8(notes).unwrap();
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
    let (_, mappings) = raw.split_once("\nMappings\n").unwrap();
    let named = format!("{} {id} ", library.display());
    let mapping =
        mappings.lines().find(|line| line.contains(&named)).unwrap_or_else(|| panic!("{named}: {mappings}"));
    let number = mapping.split(':').next().unwrap();
    let frame = raw.lines().find(|line| line.contains(" jni_invoke_static :")).unwrap();
    assert!(frame.contains(&format!(" M={number} ")), "{frame}: {mapping}");
}
