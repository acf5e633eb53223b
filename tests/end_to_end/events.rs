//! Events other than CPU time, end to end: each is counted where it happens, and the accounts add up to the kernel's
//! own count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::folded::{Folded, reaches_root};
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, lost, out_file, run, until_it_ends, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// The number of rounds of a program; each touches 10 new pages in one function and 30 in another one.
const ROUNDS: u64 = 200;

/// Flags for Java code without polls of a safepoint within loops: HotSpot arms a poll by a page fault.
const FLAGS: [&str; 3] = ["-Xbatch", "-XX:-TieredCompilation", "-XX:-UseCountedLoopSafepoints"];

/// The path of a file whose creation starts the rounds.
fn go(name: &str) -> PathBuf {
    let file = scratch("go").join(name);
    let _ = fs::remove_file(&file);
    file
}

/// The program `touched.c` with frame pointers. It is compiled once: a test whose program is replaced by another file
/// would look for its names there.
fn with_frame_pointers() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| native::with_flags("touched.c", "touched-fp", &["-fno-omit-frame-pointer"]))
}

/// Profiles the rounds of a program that waits for `go`.
fn touched(target: &mut Target, go: &Path, more: &[&str]) -> Profile {
    let pid = target.pid().to_string();
    let args = [&["-p", &pid], more].concat();
    while_sampling(&[], &args, || {
        fs::write(go, "").unwrap();
        target.wait_for(|line| line == "touched");
    })
}

/// Asserts that every fault was counted once, and the faults of the two functions in these functions.
#[track_caller]
fn assert_all(profile: &Profile, functions: [&str; 2]) {
    for (name, pages) in functions.into_iter().zip([10, 30]) {
        let stacks = profile.folded.within(name);
        assert_eq!(
            stacks.total(),
            pages * ROUNDS,
            "{name}: {}\n{}",
            profile.folded.top(10),
            profile.report["accounts"]
        );
    }
    let accounts = &profile.report["accounts"];
    assert_eq!(profile.report["event"], "page-faults");
    assert_eq!(accounts["one_in"], 1);
    assert_eq!(profile.account("ticks"), profile.account("expected"), "{accounts}");
    let seen = profile.account("kept") + profile.account("filtered");
    assert_eq!((seen, &accounts["lost"]), (profile.account("ticks"), &serde_json::json!([])));
    assert_eq!(profile.account("kept"), profile.folded.total());
}

#[test]
fn page_faults_are_counted_where_they_happen() {
    if !is_root() {
        return;
    }
    let without = native::without_frame_pointers("touched.c");
    for program in [with_frame_pointers(), without.as_path()] {
        let go = go("native");
        let mut target = Target::start(Command::new(program).arg(&go).arg(ROUNDS.to_string()));
        assert_all(&touched(&mut target, &go, &["-e", "page-faults,cpu"]), ["touch10", "touch30"]);
    }
}

/// A command begins only when its events run, however busy the machine is.
#[test]
fn a_command_is_sampled_from_its_beginning() {
    if !is_root() {
        return;
    }
    let go = go("command");
    fs::write(&go, "").unwrap();
    // The program's output would be in the report.
    let program = with_frame_pointers().display();
    let command = format!("exec {program} {} {ROUNDS} end >/dev/null", go.display());
    let args = ["-e", "page-faults,cpu", "--", "sh", "-c", &command];
    assert_all(&until_it_ends(&args, || ()), ["touch10", "touch30"]);
}

#[test]
fn page_faults_of_java_are_counted_in_their_methods() {
    if !is_root() {
        return;
    }
    let go = go("java");
    let program = Program::new("Touched").flags(&FLAGS).args(&[go.to_str().unwrap(), &ROUNDS.to_string()]);
    let mut target = program.start(&Jdk::host());
    assert_all(
        &touched(&mut target, &go, &["-e", "page-faults,cpu"]),
        ["Touched.touch10", "Touched.touch30"],
    );
}

/// One sample for ten faults stands for ten.
#[test]
fn a_sample_of_one_in_many_stands_for_all_of_them() {
    if !is_root() {
        return;
    }
    let go = go("one-in");
    let mut target = Target::start(Command::new(with_frame_pointers()).arg(&go).arg(ROUNDS.to_string()));
    let profile = touched(&mut target, &go, &["-e", "page-faults,cpu", "-c", "10"]);
    assert_eq!(profile.report["accounts"]["one_in"], 10);
    // The kernel counts to ten on each CPU, for all processes together: ten faults in a row have just one sample. Each
    // time the program loses its CPU, chance decides on less than one sample. In the milliseconds that the faults take,
    // that happens a few times at most, however busy the machine is.
    let near = |pages: u64| pages * ROUNDS / 10 - 20..=pages * ROUNDS / 10 + 20;
    for (name, pages) in [("touch10", 10), ("touch30", 30)] {
        let stacks = profile.folded.within(name);
        assert!(near(pages).contains(&stacks.total()), "{name}: {}", stacks.top(10));
    }
}

/// The kernel adds up pages before it counts them, so that chance decides which function has the sample.
#[test]
fn growth_of_memory_has_its_bytes_by_function() {
    if !is_root() {
        return;
    }
    const BYTES: u64 = 4096;
    let go = go("grown");
    let program = native::without_frame_pointers("grown.c");
    let file = scratch("grown").join("file");
    let mut target = Target::start(Command::new(program).arg(&go).arg("600").arg(&file));
    let pid = target.pid().to_string();
    let mut truth = Vec::new();
    let profile = while_sampling(&[], &["-p", &pid, "-e", "rss,cpu"], || {
        fs::write(&go, "").unwrap();
        let line = target.wait_for(|line| line.starts_with("grown "));
        truth = line.split(' ').skip(1).map(|pages| pages.parse::<u64>().unwrap()).collect();
    });
    fs::remove_file(&file).unwrap();
    let page = rustix::param::page_size() as u64;
    let functions = ["grow_anonymous", "grow_shared", "grow_file", "grow_again"];
    assert_eq!((truth.len(), &profile.report["event"]), (functions.len(), &serde_json::json!("rss")));
    for (name, pages) in functions.into_iter().zip(truth) {
        let stacks = profile.folded.within(name);
        let (bytes, right) = (stacks.total() * BYTES, pages * page);
        assert!(pages > 20_000 && bytes.abs_diff(right) < right / 50, "{name}: {bytes} of {right} bytes");
        assert!(stacks.stacks().all(|(stack, _)| reaches_root(stack)), "{}", stacks.top(5));
        let own =
            |stack: &[String]| stack.iter().any(|frame| frame.contains("bpf_") || frame.contains("rss_stat"));
        assert_eq!(stacks.count(own), 0, "{}", stacks.top(5));
    }
    assert_eq!(profile.report["accounts"]["lost"], serde_json::json!([]));
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
}

/// Formats that hold only one event get a file for each event, beside the first one's.
#[test]
fn each_event_has_its_file() {
    if !is_root() {
        return;
    }
    let out = out_file("folded");
    let line = [
        "-d",
        "1",
        "-e",
        "cpu,context-switches",
        "-a",
        "--java",
        "off",
        "--report",
        "json",
        "-o",
        out.to_str().unwrap(),
    ];
    let run = run(line).success();
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let switches =
        out.with_file_name(format!("{}-context-switches.folded", out.file_stem().unwrap().to_str().unwrap()));
    let totals = [&out, &switches].map(|file| {
        let total = Folded::parse(&fs::read_to_string(file).unwrap()).total();
        fs::remove_file(file).unwrap();
        total
    });
    let shown = |report: &serde_json::Value| report["accounts"]["kept"].as_u64().unwrap() + lost(report);
    let of_switches = &report["events"][0];
    assert_eq!(of_switches["event"], "context-switches");
    assert_eq!(totals, [shown(&report), shown(of_switches)]);
    assert!(totals[1] > 0);
}

/// What a program of `probed.c` does in a round, as events with the number of times, and where.
fn probed(file: &str) -> [(String, u64, &'static str); 4] {
    [
        (format!("uprobe:{file}:called"), 3, "calls"),
        (format!("usdt:{file}:probed:round"), 2, "marks"),
        ("syscalls:sys_enter_openat".to_owned(), 1, "opens"),
        ("sched:sched_process_fork".to_owned(), 1, "forks"),
    ]
}

/// Profiles the rounds of a program of `probed.c`.
fn rounds(target: &mut Target, go: &Path, events: &str, more: &[&str]) -> Profile {
    let pid = target.pid().to_string();
    let args = [&["-e", events, "-p", &pid], more].concat();
    while_sampling(&[], &args, || {
        fs::write(go, "").unwrap();
        target.wait_for(|line| line == "probed");
    })
}

/// The accounts of an event other than the first.
fn accounts_of<'r>(report: &'r serde_json::Value, event: &str) -> &'r serde_json::Value {
    let others = report["events"].as_array().unwrap();
    &others.iter().find(|of| of["event"] == event).unwrap_or_else(|| panic!("{event} in {report}"))["accounts"]
}

/// Tracepoints, system calls, functions and static markers: each occurrence is counted once, in the function in which
/// it is. The semaphore of the marker is set, because the program passes its marker only then.
#[test]
fn probes_are_counted_where_they_are_passed() {
    if !is_root() {
        return;
    }
    let program = native::with_flags("probed.c", "probed-fp", &["-fno-omit-frame-pointer"]);
    let all = probed(program.to_str().unwrap());
    for first in 0..all.len() {
        let go = go("probed");
        let mut target = Target::start(Command::new(&program).arg(&go).arg(ROUNDS.to_string()));
        let mut events = all.clone();
        events.rotate_left(first);
        let names =
            events.iter().map(|(name, ..)| name.as_str()).chain(["cpu"]).collect::<Vec<_>>().join(",");
        let profile = rounds(&mut target, &go, &names, &[]);
        let [(name, times, function), others @ ..] = &events;
        let accounts = &profile.report["accounts"];
        assert_eq!(profile.report["event"], *name);
        let within = profile.folded.within(function).total();
        assert_eq!(within, times * ROUNDS, "{name}: {accounts}\n{}", profile.folded.top(10));
        // The children that the program forks pass nothing.
        assert_eq!(profile.folded.total(), within, "{}", profile.folded.top(10));
        let of_probes = |frame: &String| frame.contains("bpf_") || frame.contains("unknown");
        assert_eq!(
            profile.folded.count(|stack| stack.iter().any(of_probes)),
            0,
            "{}",
            profile.folded.top(10)
        );
        assert_eq!((profile.account("kept"), &accounts["lost"]), (within, &serde_json::json!([])));
        assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
        assert_eq!(profile.account("ticks") + profile.account("missed"), profile.account("expected"));
        for (name, times, _) in others {
            let accounts = accounts_of(&profile.report, name);
            assert_eq!(accounts["kept"], times * ROUNDS, "{name}: {accounts}");
            assert_eq!(accounts["missed"], 0, "{name}: {accounts}");
        }
    }
}

/// A container has files of its own: the path is one below the root of the target. A sample for each tenth call stands
/// for ten.
#[test]
fn a_function_is_found_in_the_files_of_the_target() {
    if !is_root() {
        return;
    }
    let program = native::with_flags("probed.c", "probed-static", &["-static", "-fno-omit-frame-pointer"]);
    let root = scratch("probed-root");
    // Not by this process: while it writes, other threads start programs, which have the open file too until they
    // execute, and a file that is open for writing cannot be executed.
    assert!(Command::new("cp").arg(&program).arg(root.join("own-probed")).status().unwrap().success());
    let go = root.join("go");
    let _ = fs::remove_file(&go);
    let mut target =
        Target::start(Command::new("chroot").arg(&root).args(["/own-probed", "/go"]).arg(ROUNDS.to_string()));
    let pid = target.pid().to_string();
    run(["-d", "1", "-p", &pid, "-e", "uprobe:/own-probed:no_such_function"])
        .refused(4, "uprobe:/own-probed:no_such_function: the file has no function of this name");
    run(["-d", "1", "-e", "uprobe:/own-probed:called"]).refused(4, "this host has no file /own-probed");
    let profile = rounds(&mut target, &go, "uprobe:/own-probed:called,cpu", &["-c", "10"]);
    let calls = profile.folded.within("calls").total();
    let exact = 3 * ROUNDS / 10;
    // On each CPU up to nine calls are left over.
    assert!((exact - 16..=exact).contains(&calls), "{calls} of {exact}");
    assert_eq!((calls, profile.report["accounts"]["one_in"].as_u64()), (profile.account("kept"), Some(10)));
}

#[test]
fn what_this_host_does_not_count_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let refused = |event: &str, code: i32, words: &str| {
        run(["-d", "1", "-e", event]).refused(code, words);
    };
    refused("block:nothing", 3, "block:nothing: this kernel has no such tracepoint");
    refused("syscalls:sys_enter_nothing", 3, "there is no system call nothing");
    refused("kretprobe:vfs_read", 2, "the ends of functions are not sampled");
    refused("lock:contention_end", 2, "tracepoints of lock: are not sampled");
    for event in ["uprobe:/bin/sh:main", "usdt:/bin/sh:some:marker"] {
        let words = format!("--all-kernel: the event {event} has frames of processes only");
        run(["-d", "1", "-K", "-e", event]).refused(2, &words);
    }
    refused("usdt:/bin/sh:no:marker", 4, "the file has no static marker of this provider and name");
    let has = |kind: &str| Path::new("/sys/bus/event_source/devices").join(kind).exists();
    if !has("kprobe") {
        refused("kprobe:vfs_read", 3, "this kernel has no kprobes");
    }
    if !has("cpu") && !has("cpu_core") {
        refused(
            "cycles,cpu",
            3,
            "this host has no event cpu-cycles: neither the processor nor the virtual machine",
        );
    }
}

#[test]
fn the_list_of_events_has_those_of_the_kernel() {
    if !is_root() {
        return;
    }
    let list = run(["events", "sched_process_*"]).success().stdout;
    assert_eq!(list, "no event of this host matches sched_process_*\n");
    let list = run(["events", "sched:sched_process_*"]).success().stdout;
    assert!(list.starts_with("Tracepoints\n") && list.contains("\n  sched:sched_process_fork\n"), "{list}");
    let list = run(["events"]).success().stdout;
    assert!(
        list.contains("\n  cpu-migrations ") && list.contains("\n  syscalls:sys_enter_openat\n"),
        "{list}"
    );
}
