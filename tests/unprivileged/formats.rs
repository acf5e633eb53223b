//! A small profile in every format, compared with the files in `tests/golden`. `UPDATE_GOLDEN=1` rewrites these files:
//! check the difference.

use std::fs;
use std::sync::Arc;

use jbpf_prof::limits::{Limit, LimitRow};
use jbpf_prof::output::{self, OutputTarget, PictureOptions, report};
use jbpf_prof::profile::labels::ContainerLabels;
use jbpf_prof::profile::pauses::PauseTotals;
use jbpf_prof::profile::report::{
    AllocatedBytes, Cost, EventReport, GroupReport, JvmRefusal, JvmReport, ReportedNameSource, Steady,
    StopRow, ThrottleTotals, TraceReport,
};
use jbpf_prof::profile::samples::Weight;
use jbpf_prof::profile::wait_report::{IdleRule, LockMethod, WaitLock, WaitReason, WaitReport, WaitState};
use jbpf_prof::profile::{Accounts, Frame, Kind, Labels, Module, Profile, RunReport, UnknownReason};
use jbpf_prof::sample::{Estimate, Event, ThreadState};
use serde_json::{Value, json};
use testkit::schema::report_problems;

fn golden(name: &str, is: &str) {
    let path = testkit::repository().join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, is).unwrap();
    }
    let was = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(is, was, "{} differs", path.display());
}

/// A server: its main thread in Java, with inlined methods and a system call, the JIT compiler, and another process.
fn profile() -> Profile {
    let libjvm = Arc::new(Module {
        build_id: Some([0xca, 0xfe, 0x01].as_slice().into()),
        ..Module::at("/usr/lib/jvm/java-17/lib/server/libjvm.so")
    });
    let java = |kind, name: &str, bci, line| Frame {
        file: Some("Server.java".into()),
        line,
        bci: Some(bci),
        address: 0x7f00_1000,
        ..Frame::named(kind, name)
    };
    let native = |kind, name: &str| Frame {
        module: Some(Arc::clone(&libjvm)),
        address: 64,
        ..Frame::named(kind, name)
    };
    let named = Frame::named;
    let (process, start) = (named(Kind::Process, "java"), named(Kind::Native, "start_thread"));
    let run = java(Kind::Java, "org.example.Server.run", 14, 31);
    let get = java(Kind::JavaInlined, "java.util.HashMap.get", 2, 557);
    let hash = java(Kind::JavaInlined, "java.util.HashMap.hash", 9, 338);
    let slow = java(Kind::JavaInterpreted, "org.example.Server.slow", 3, 40);
    let poll = [named(Kind::Kernel, "do_syscall_64"), named(Kind::Kernel, "ep_poll")];
    let compile = native(Kind::Cpp, "CompileBroker::compiler_thread_loop()");
    let regalloc = native(Kind::Cpp, "PhaseChaitin::Select()");
    let unknown = Frame::unknown(UnknownReason::CodeMoved, None, 0x7f00_2000);
    let stub = Frame::unknown(UnknownReason::NoSymbol, Some(Arc::new(Module::at("/opt/lib/libfast.so"))), 16);
    let rust = named(Kind::Native, "core::slice::sort::stable::drift::sort");
    let cut = named(Kind::Marker, "[truncated]");
    let mut p = Profile::new();
    let labels = |pid, process: &str, thread: &str| Labels {
        pid,
        process: process.into(),
        thread: thread.into(),
        tid: 0,
        cgroup: 4242,
        container: (pid == 4711).then(|| Arc::new(server())),
        ..Labels::default()
    };
    let mut add = |labels: &Labels, stack: &[&Frame], count: u64| {
        let stack: Vec<Arc<Frame>> = stack.iter().map(|&f| Arc::new(f.clone())).collect();
        p.add(labels, &stack, count, count * 10_101_010);
    };
    let main = labels(4711, "java", "main");
    add(&main, &[&process, &start, &run, &get, &hash], 620);
    add(&main, &[&process, &start, &run, &get], 180);
    add(&main, &[&process, &start, &run, &slow, &run, &get], 90);
    add(&main, &[&process, &start, &run, &poll[0], &poll[1]], 40);
    add(&main, &[&process, &start, &unknown], 3);
    add(&main, &[&process, &cut, &run, &stub], 2);
    add(&labels(4711, "java", "C2 CompilerThre"), &[&process, &start, &compile, &regalloc], 110);
    let tool = named(Kind::Process, "my tool");
    add(&labels(815, "my tool", "my tool"), &[&tool, &rust], 60);
    add(&labels(816, "my tool", "my tool"), &[&tool, &rust], 55);
    let kept = p.of_event(Event::Cpu).total().count;
    *p.accounts_mut(Event::Cpu) =
        Accounts { filtered: 4740, kept, missed: 3, period_ns: 10_101_010, ..Accounts::default() };
    p.accounts_mut(Event::Cpu).lose("ring full", 7);
    p.accounts_mut(Event::Cpu).taken = 4740 + kept + 7;
    p.accounts_mut(Event::Cpu).expected = p.accounts(Event::Cpu).taken + 3;
    p.check().unwrap();
    p
}

fn server() -> ContainerLabels {
    ContainerLabels {
        namespace: "shop".into(),
        pod: "server-0".into(),
        container: "app".into(),
        name: "".into(),
        id: "0123456789abcdef".repeat(4).into(),
        pod_uid: "0a1b2c3d-0000-1111-2222-333344445555".into(),
    }
}

/// A JVM with the agent whose log was cut, a JVM whose memory was read instead, and a JVM without names.
fn jvm_reports() -> Vec<JvmReport> {
    let mut reached = JvmReport {
        pid: 4711,
        name: "org.example.Server".into(),
        version: "17.0.12+7".into(),
        newer_than: None,
        names: ReportedNameSource::AgentLate { ms: 240 },
        no_agent: None,
        frame_pointers: Some(true),
        undescribed: None,
        compiled_before: Some(0.41),
        samples: 1045,
        java_samples: 935,
        rootless_samples: 2,
        log_bytes: 5_300_000,
        log_cut: false,
        throttling: Some(ThrottleTotals { times: 12, usec: 340_000 }),
        pauses: Some(PauseTotals {
            safepoints: 20,
            safepoint_usec: 30_000,
            collections: 18,
            collection_usec: 25_000,
        }),
    };
    let refused = JvmReport {
        pid: 99,
        name: "/srv/app/a-service-with-a-rather-long-name-that-nobody-can-read.jar".into(),
        version: "24+36".into(),
        names: ReportedNameSource::Refused {
            label: "attach disabled".into(),
            hint: "It runs with -XX:+DisableAttachMechanism: start it with -agentpath instead.".into(),
        },
        frame_pointers: Some(false),
        undescribed: Some("layout unknown".into()),
        compiled_before: None,
        samples: 0,
        java_samples: 0,
        rootless_samples: 0,
        log_bytes: 0,
        throttling: None,
        pauses: None,
        ..reached.clone()
    };
    let read = JvmReport {
        pid: 512,
        name: "org.example.Batch".into(),
        version: "26.0.1+8".into(),
        newer_than: Some(25),
        names: ReportedNameSource::Memory { ms: 31 },
        no_agent: Some(JvmRefusal {
            label: "noexec tmp".into(),
            hint: "Mount its /tmp without noexec, or start the JVM with -agentpath for the agent.".into(),
        }),
        compiled_before: None,
        samples: 200,
        java_samples: 100,
        rootless_samples: 0,
        log_bytes: 0,
        throttling: None,
        pauses: None,
        ..reached.clone()
    };
    reached.log_cut = true;
    vec![reached, read, refused]
}

fn run_report(p: &Profile) -> RunReport {
    let (file, why) = ("/lib/ld-musl-x86_64.so.1".into(), "stack not readable".into());
    let stopped_in = StopRow { file, why, advice: "The stack was swapped out.".into(), samples: 5 };
    RunReport {
        target: "all processes".into(),
        command: "jbpf-prof --duration 30 --all".into(),
        version: "0.1.0".into(),
        host: "build-7".into(),
        kernel: "6.18.0".into(),
        cpus: 2,
        start: "2026-11-21 10:01:04 UTC".into(),
        duration_s: 30.02,
        requested_hz: 99.0,
        effective_hz: 99.0,
        first: EventReport {
            event: Event::Cpu,
            accounts: p.accounts(Event::Cpu).clone(),
            idle: 4700,
            unknown: p.of_event(Event::Cpu).unknown(),
            stop_reasons: vec![("root".into(), 1155), ("stack not readable".into(), 5)],
            stopped_in: vec![stopped_in],
            waits: None,
            allocated: None,
            traces: None,
        },
        others: Vec::new(),
        jvms: jvm_reports(),
        groups: vec![GroupReport {
            path: "/kubepods/burstable/pod0a1b2c3d-0000-1111-2222-333344445555".into(),
            hierarchy: "v2".into(),
            limit_cpus: Some(1.5),
            periods: 300,
            throttled_periods: 12,
            throttled_usec: 340_000,
            pressure_usec: Some(4_100_000),
        }],
        steal: Some(0.013),
        cost: Cost {
            broker_s: 0.05,
            worker_s: 0.03,
            helpers_s: 0.01,
            bpf_s: Some(0.02),
            bpf_runs: 5907,
            rss_bytes: 61 << 20,
            maps_bytes: 9 << 20,
            steady: Some(Steady { seconds: 19.0, cpu_s: 0.057, after_s: 10.2 }),
        },
        limits: vec![
            LimitRow { limit: Limit::PerfMap, subject: "node (812)".into(), left_out: 7_340_032 },
            LimitRow { limit: Limit::UnwindTables, subject: String::new(), left_out: 3 },
        ],
        warnings: vec![
            "The JVM 99 has no names for its Java code; see below for what to do about it, and why it is so."
                .into(),
        ],
        outputs: vec!["jbpf-prof-2026-11-21-100134.svg".into()],
    }
}

#[test]
fn folded() {
    let mut out = Vec::new();
    output::folded::write(&profile().of_event(Event::Cpu), &mut out).unwrap();
    golden("small.folded", std::str::from_utf8(&out).unwrap());
}

#[test]
fn report_for_people() {
    let p = profile();
    let report_ = run_report(&p);
    for (width, name) in [(100, "report.txt"), (72, "report-narrow.txt")] {
        let text = report::text(&report_, &p, report::Detail { width, rows: 6, lines: true });
        for line in text.lines() {
            assert!(line.chars().count() <= width && line.trim_end() == line, "{line}");
        }
        golden(name, &text);
    }
}

#[test]
fn report_for_machines() {
    let p = profile();
    let text = report::json(&run_report(&p), &p, true).unwrap();
    golden("report.json", &text);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    let back: RunReport = serde_json::from_value(object).unwrap();
    assert_eq!(back, run_report(&p));
}

#[test]
fn the_report_follows_its_published_schema() {
    let mut p = profile();
    let object = p.intern_stack(&[Arc::new(Frame::named(Kind::Object, "[new: int[]]"))]);
    let labels = p.intern_labels(&Labels::default());
    let weight = Weight { count: 2, value: 1 << 20, objects: Estimate::whole(60) };
    p.add_interned(object, labels, Event::Alloc, weight);
    let mut run = run_report(&p);
    let waits = WaitReport {
        states: vec![WaitState { state: ThreadState::Blocked, ns: 5, samples: 1 }],
        untimed: 1,
        reasons: vec![WaitReason {
            state: ThreadState::Sleeping,
            reason: "lock".into(),
            samples: 2,
            waits: 1,
            longest_ns: 20_000_000,
        }],
        idle: vec![IdleRule { rule: "thread pool".into(), samples: 3 }],
        locks: vec![WaitLock {
            reason: "park".into(),
            class: "a.B".into(),
            owner: None,
            samples: 2,
            waits: 1,
            longest_ns: 20_000_000,
        }],
        lock_methods: vec![LockMethod {
            reason: "park".into(),
            class: "a.B".into(),
            method: "a.C.d".into(),
            samples: 2,
            waits: 1,
            longest_ns: 20_000_000,
        }],
    };
    let traces = Some(TraceReport { in_span: 3, no_span: 2, unread: 1, unpublished: 4 });
    run.first.traces = traces;
    let allocated = Some(AllocatedBytes {
        profiled: 5 << 30,
        filtered: 7,
        profiled_calls: 9,
        filtered_calls: 1,
        estimated: 3,
    });
    run.others = vec![
        EventReport { event: Event::Wait, waits: Some(waits), traces, ..EventReport::default() },
        EventReport { event: Event::Alloc, allocated, ..EventReport::default() },
    ];
    for names in [
        ReportedNameSource::AgentAtStart,
        ReportedNameSource::AgentDuringRun { ms: 1 },
        ReportedNameSource::Off,
        ReportedNameSource::Refused { label: "a".into(), hint: "b".into() },
    ] {
        run.jvms.push(JvmReport { names, ..JvmReport::default() });
    }
    let report: Value = serde_json::from_str(&report::json(&run, &p, true).unwrap()).unwrap();
    assert_eq!(report_problems(&report), Vec::<String>::new());
    let class = json!({ "name": "int[]", "samples": 2, "bytes": 1 << 20, "objects": 60 });
    assert_eq!(report["tables_of"]["alloc"]["classes"], json!([class]));
    for (place, wrong) in [
        ("/schema", json!(2)),
        ("/accounts/kept", json!(-1)),
        ("/accounts/lost/0", json!(["ring full"])),
        ("/jvms/0/names", json!("of the agent")),
        ("/events/0/waits/states/0/state", json!("asleep")),
        ("/tables_of/wait/functions", json!(null)),
        ("/functions/0", json!({ "name": "f" })),
        ("/cost/steady", json!({ "other": 1 })),
    ] {
        let mut report = report.clone();
        *report.pointer_mut(place).unwrap() = wrong;
        let problems = report_problems(&report);
        let root = format!("/{}", place.split('/').nth(1).unwrap());
        assert!(problems.iter().any(|problem| problem.starts_with(&root)), "{place}: {problems:?}");
    }
    let mut report = report;
    report["new"] = json!(1);
    assert_eq!(report_problems(&report), ["/new: the schema does not describe it"]);
}

/// Title, colour, place and width of each frame: the parts of a picture that jbpf-prof itself decides.
#[test]
fn picture() {
    let directory = tempfile::tempdir().unwrap();
    for (name, picture_options) in [
        ("small.svg.txt", PictureOptions::default()),
        (
            "small-reversed.svg.txt",
            PictureOptions { reverse: true, inverted: true, ..PictureOptions::default() },
        ),
    ] {
        let path = directory.path().join("small.svg");
        let target = OutputTarget::parse(&path, None).unwrap();
        output::write(&profile().views(), &target, &picture_options).unwrap();
        let picture = fs::read_to_string(&path).unwrap();
        let (_, frames) = picture.split_once("total_samples=").unwrap();
        let attribute = |of: &str, name: &str| {
            let (_, rest) = of.split_once(&format!(" {name}=\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let mut text = String::new();
        for part in frames.split("<title>").skip(1) {
            let (title, rest) = part.split_once("</title>").unwrap();
            let (x, width, y) = (attribute(rest, "x"), attribute(rest, "width"), attribute(rest, "y"));
            text += &format!("{x:>9} {width:>9} {y:>4} {:<18} {title}\n", attribute(rest, "fill"));
        }
        assert!(picture.contains("1,160 samples at 99 Hz, 7 lost, 3 missed"), "{picture}");
        golden(name, &text);
    }
}
