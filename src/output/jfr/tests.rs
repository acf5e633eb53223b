use std::collections::BTreeMap;
use std::sync::Arc;

use super::metadata::name_of;
use super::parsed::{ChunkTime, JfrFields, JfrValue, Parsed};
use super::{CHUNK_SIZE, MAX_SAMPLES, write, write_chunks};
use crate::output::folded;
use crate::profile::samples::Weight;
use crate::profile::{Frame, Kind, Labels, Profile};
use crate::sample::{Event, ThreadState};

const SECOND: i64 = 1_000_000_000;
const START: u64 = 1_763_719_200_000_000_000;

fn stack(profile: &mut Profile, frames: &[(Kind, &str)]) -> crate::profile::trie::NodeId {
    let frames: Vec<_> = frames
        .iter()
        .map(|(kind, name)| {
            let line = if *kind == Kind::Java { 17 } else { 0 };
            Arc::new(Frame { line, bci: (line > 0).then_some(3), ..Frame::named(*kind, *name) })
        })
        .collect();
    profile.intern_stack(&frames)
}

/// A JVM that ran and waited, another process, page faults, and lost samples.
fn profile() -> Profile {
    let mut profile = Profile::new();
    let java = |state| Labels {
        pid: 7,
        tid: 8,
        process: "java".into(),
        thread: "worker".into(),
        state,
        ..Labels::default()
    };
    let runs = profile.intern_labels(&java(ThreadState::Running));
    let waits = profile.intern_labels(&java(ThreadState::Sleeping));
    let other = profile.intern_labels(&Labels { pid: 9, process: "cat".into(), ..Labels::default() });
    let root = [(Kind::Process, "java"), (Kind::Thread, "worker"), (Kind::Java, "a.b.Main.run")];
    let of = |above: &[(Kind, &'static str)]| [&root[..], above].concat();
    let deep = stack(&mut profile, &of(&[(Kind::JavaInlined, "a.b.C.<init>"), (Kind::Kernel, "do_fault")]));
    let flat = stack(&mut profile, &of(&[]));
    let bare =
        stack(&mut profile, &[(Kind::Process, "cat"), (Kind::Marker, "[truncated]"), (Kind::Native, "x.y")]);
    let lock = [
        (Kind::Wait, "[wait: monitor a.Cache]"),
        (Kind::Waker, "--"),
        (Kind::Waker, "leaf"),
        (Kind::Waker, "root"),
    ];
    let lock = stack(&mut profile, &of(&lock));
    let ms = |count| Weight { count, value: count * 1_000_000, ..Weight::default() };
    profile.add_interned_in_second(0, deep, runs, Event::Cpu, ms(4));
    profile.add_interned_in_second(2, deep, runs, Event::Cpu, ms(3));
    profile.add_interned_in_second(2, flat, runs, Event::Cpu, ms(2));
    profile.add_interned_in_second(1, bare, other, Event::Cpu, ms(1));
    profile.add_interned_in_second(1, lock, waits, Event::Wait, ms(5));
    profile.add_interned_in_second(
        1,
        flat,
        runs,
        Event::PageFaults,
        Weight { count: 6, value: 600, ..Weight::default() },
    );
    for (event, kept, lost) in [(Event::Cpu, 10, 2), (Event::Wait, 5, 0), (Event::PageFaults, 6, 1)] {
        let accounts = profile.accounts_mut(event);
        (accounts.taken, accounts.kept, accounts.expected) = (kept + lost, kept, kept + lost);
        accounts.lose("ring full", lost);
        accounts.period_ns = if event == Event::PageFaults { 0 } else { 1_000_000 };
        accounts.one_in = if event == Event::PageFaults { 100 } else { 0 };
    }
    (profile.span.start_unix_ns, profile.span.duration_ns) = (START, 3 * SECOND as u64);
    profile.check().unwrap();
    profile
}

fn parsed(profile: &Profile, chunk_size: usize) -> Parsed {
    let mut file = Vec::new();
    write_chunks(&profile.views(), chunk_size, &mut file).unwrap();
    Parsed::of(&file)
}

/// `class.method` of each frame, leaf first.
fn methods(stack: &JfrValue) -> Vec<String> {
    let name = |frame: &JfrValue| {
        let method = frame.at("method");
        assert_eq!(method.at("descriptor").text(), "()L;");
        format!("{}.{}", method.at("type").at("name").text(), method.at("name").text())
    };
    stack.at("frames").list().iter().map(name).collect()
}

fn leaves<'p>(events: impl Iterator<Item = &'p JfrFields>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for event in events {
        *sums.entry(methods(&event["stackTrace"])[0].clone()).or_default() += 1;
    }
    sums
}

fn sums<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
    of.map(|(name, n)| (name.to_owned(), n)).into()
}

#[test]
fn each_sample_is_an_event_of_its_type() {
    let parsed = parsed(&profile(), CHUNK_SIZE);
    let cpu: Vec<&JfrFields> = parsed.of_type("jdk.ExecutionSample").collect();
    let expected = [(".do_fault", 7), ("a/b/Main.run", 2), (".x.y", 1), (".[ring full]", 2)];
    assert_eq!(leaves(cpu.iter().copied()), sums(expected));
    assert!(cpu.iter().all(|event| event["state"].text() == "STATE_RUNNABLE"));
    let faults: Vec<&JfrFields> = parsed.of_type("jbpf.PageFaults").collect();
    assert_eq!(leaves(faults.iter().copied()), sums([("a/b/Main.run", 6), (".[ring full]", 1)]));
    assert!(faults.iter().all(|event| event["amount"].number() == 100));
    let waits: Vec<&JfrFields> = parsed.of_type("jbpf.Wait").collect();
    assert_eq!(leaves(waits.iter().copied()), sums([("a/b/Main.run", 5)]));
    let begins = waits.iter().map(|wait| wait["startTime"].number() - 2 * SECOND);
    assert_eq!(
        begins.collect::<Vec<_>>(),
        [-5, -4, -3, -2, -1].map(|ms| ms * 1_000_000),
        "one after the other"
    );
    for wait in waits {
        assert_eq!(wait["duration"].number(), 1_000_000);
        assert_eq!((wait["state"].text(), wait["reason"].text()), ("sleeping", "wait: monitor a.Cache"));
        assert_eq!(methods(&wait["wakerStackTrace"]), [".leaf", ".root"]);
    }
    let lost = parsed.of_type("jbpf.Lost").map(|event| (event["reason"].text(), event["samples"].number()));
    assert_eq!(lost.collect::<Vec<_>>(), [("ring full", 2), ("ring full", 1)]);
    let accounts = parsed.of_type("jbpf.Accounts").map(|event| {
        ["ticks", "filtered", "kept", "lost", "missed", "expected"].map(|field| event[field].number())
    });
    assert_eq!(accounts.collect::<Vec<_>>(), [[12, 0, 10, 2, 0, 12], [7, 0, 6, 1, 0, 7], [5, 0, 5, 0, 0, 5]]);
}

#[test]
fn frames_have_types_lines_and_packages() {
    let parsed = parsed(&profile(), CHUNK_SIZE);
    let stack = |leaf: &str| {
        let mut stacks = parsed.of_type("jdk.ExecutionSample").map(|event| &event["stackTrace"]);
        stacks.find(|stack| methods(stack)[0] == leaf).unwrap()
    };
    let deep = stack(".do_fault");
    assert_eq!(methods(deep), [".do_fault", "a/b/C.<init>", "a/b/Main.run"], "threads are no frames");
    let facts = |frame: &JfrValue| {
        let numbers = ["lineNumber", "bytecodeIndex"].map(|field| frame.at(field).number());
        (frame.at("type").text().to_owned(), numbers, frame.at("method").at("modifiers").number())
    };
    let expected = [
        ("Native".to_owned(), [-1, -1], 0x100),
        ("Inlined".to_owned(), [-1, -1], 0),
        ("JIT compiled".to_owned(), [17, 3], 0),
    ];
    assert_eq!(deep.at("frames").list().iter().map(facts).collect::<Vec<_>>(), expected);
    let package = |of: usize| deep.at("frames").list()[of].at("method").at("type").at("package");
    assert_eq!((package(0), package(2).at("name").text()), (&JfrValue::Null, "a/b"));
    assert_eq!([".x.y", ".do_fault"].map(|leaf| stack(leaf).at("truncated").number()), [1, 0]);
}

#[test]
fn samples_stand_in_their_seconds_and_threads_carry_their_process() {
    let parsed = parsed(&profile(), CHUNK_SIZE);
    let mut rows: BTreeMap<(String, i64), Vec<i64>> = BTreeMap::new();
    for event in parsed.of_type("jdk.ExecutionSample") {
        let thread = &event["sampledThread"];
        let key = (thread.at("osName").text().to_owned(), thread.at("osThreadId").number());
        rows.entry(key).or_default().push(event["startTime"].number() * 10 / SECOND);
    }
    let row = |name: &str, tid| rows[&(name.to_owned(), tid)].clone();
    assert_eq!(row("java-7/worker", 8), [0, 2, 5, 7, 20, 22, 24, 26, 28], "tenths of seconds");
    assert_eq!(row("cat-9/cat", 9), [10]);
    assert_eq!(row("[lost]", 0), [0, 0]);
    assert_eq!(parsed.chunks, [ChunkTime { begin: START, duration: 3 * SECOND as u64 }]);

    let mut alone = profile();
    alone.retain_labels(|labels| labels.pid == 7);
    let parsed = self::parsed(&alone, CHUNK_SIZE);
    let worker = |event: &&JfrFields| event["sampledThread"].at("osName").text() == "worker";
    assert_eq!(parsed.of_type("jdk.ExecutionSample").filter(worker).count(), 9);
}

#[test]
fn a_long_file_has_chunks_that_stand_alone() {
    let profile = profile();
    let (one, many) = (parsed(&profile, CHUNK_SIZE), parsed(&profile, 100));
    assert!(many.chunks.len() > 3, "{:?}", many.chunks);
    assert_eq!(many.events, one.events);
    assert_eq!(many.chunks.iter().map(|chunk| chunk.duration).sum::<u64>(), 3 * SECOND as u64);
    for pair in many.chunks.windows(2) {
        assert_eq!(pair[0].begin + pair[0].duration, pair[1].begin, "no time is missing");
        // Mission Control takes chunks with the same begin for one chunk.
        assert!(pair[0].begin < pair[1].begin, "{:?}", many.chunks);
    }
}

#[test]
fn an_id_has_one_meaning_in_all_chunks() {
    // The JDK's parser keeps constants of earlier chunks by their ids.
    let mut profile = Profile::new();
    let labels = profile.intern_labels(&Labels { process: "p".into(), ..Labels::default() });
    for second in 0..50 {
        let name = format!("f{second}");
        let leaf = stack(&mut profile, &[(Kind::Native, &name)]);
        profile.add_interned_in_second(
            second,
            leaf,
            labels,
            Event::Cpu,
            Weight { count: 2, ..Weight::default() },
        );
    }
    let parsed = parsed(&profile, 300);
    // The parser asserts it.
    assert!(parsed.chunks.len() > 5 && parsed.constants.len() > 100, "{:?}", parsed.chunks);
}

#[test]
fn without_labels_processes_and_threads_stay_frames_and_time_is_that_of_the_profile() {
    let mut profile = folded::read(&mut "java;[main];a.B.run_[j] 4\n".as_bytes()).unwrap();
    profile.span.duration_ns = 8 * SECOND as u64;
    let parsed = parsed(&profile, CHUNK_SIZE);
    let events: Vec<&JfrFields> = parsed.of_type("jdk.ExecutionSample").collect();
    assert_eq!(methods(&events[0]["stackTrace"]), ["a/B.run", ".[main]", ".java"]);
    let seconds = events.iter().map(|event| event["startTime"].number() / SECOND);
    assert_eq!(seconds.collect::<Vec<_>>(), [0, 2, 4, 6]);
}

#[test]
fn more_samples_than_a_file_can_have_are_refused() {
    let profile = folded::read(&mut format!("a {}\n", MAX_SAMPLES + 1).as_bytes()).unwrap();
    let error = write(&profile.views(), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("the profile has 67108865 samples; choose another format"), "{error}");
}

#[test]
fn each_event_has_a_name() {
    let names = Event::FIXED.map(|event| name_of(event).into_owned());
    assert_eq!(
        names,
        [
            "jdk.ExecutionSample",
            "jbpf.PageFaults",
            "jbpf.MinorFaults",
            "jbpf.MajorFaults",
            "jbpf.ContextSwitches",
            "jbpf.Wait",
            "jbpf.Alloc",
            "jbpf.Rss",
            "jbpf.NativeAlloc",
        ]
    );
    let probe = Event::parse("block:block_rq_issue").unwrap();
    assert_eq!(name_of(probe), "jbpf.BlockBlockRqIssue");
}
