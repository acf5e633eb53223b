//! Native allocations by bytes: the counted bytes and calls are exactly those that a program asks for, the samples have its
//! functions in the right shares, and other processes have no part in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::folded::{is, reaches_root};
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, run, while_sampling};
use testkit::target::Target;
use testkit::{is_root, lacks, native, scratch, skip, sources};

/// Small, because chance decides on some of the samples of each allocation, however many it has.
const INTERVAL: u64 = 2 << 10;
const ROUNDS: &str = "500";
/// The functions of `allocations.c`, in the order in which it prints their bytes.
const FUNCTIONS: [&str; 10] = [
    "by_malloc",
    "by_calloc",
    "by_realloc",
    "by_reallocarray",
    "by_posix_memalign",
    "by_aligned_alloc",
    "by_memalign",
    "by_library",
    "by_frame",
    "by_thread",
];
/// The largest part by which samples and bytes differ, with many samples, and how many samples chance decides on. That
/// is the blocks at both ends of each allocation. The standard deviation is 9 samples of 2,400 in a function with 500
/// calls, and 13 of 4,700 or more in the others: both bounds together are nine of them or more.
const PART: f64 = 0.03;
const SAMPLES: f64 = 12.0;

/// What the program asked for.
struct Truth {
    bytes: Vec<u64>,
    calls: u64,
}

fn program() -> PathBuf {
    native::without_frame_pointers_and("allocations.c", "allocations", &["-pthread"])
}

/// A library with an allocator, in a directory of the calling test alone: the compiler would change a library that is
/// mapped.
fn allocator(test: &str) -> PathBuf {
    native::library(&scratch(test), "allocator", &["-fno-builtin".as_ref()])
}

fn allocate(target: &mut Target) -> Truth {
    target.write(b"\n");
    let line = target.wait_for(|line| line.starts_with("allocated "));
    let mut bytes: Vec<u64> = line.split(' ').skip(1).map(|bytes| bytes.parse().unwrap()).collect();
    let calls = bytes.pop().unwrap();
    Truth { bytes, calls }
}

/// Samples the program while it allocates, and while `meanwhile` runs.
fn sample(command: &mut Command, meanwhile: impl FnOnce()) -> (Profile, Truth, u32) {
    let mut target = Target::start(command);
    let pid = target.pid();
    let mut truth = None;
    let (chosen, interval) = (pid.to_string(), INTERVAL.to_string());
    let line = ["-p", &chosen, "-e", "native-alloc,cpu", "--alloc-interval", &interval];
    let profile = while_sampling(&[], &line, || {
        truth = Some(allocate(&mut target));
        meanwhile();
    });
    (profile, truth.unwrap(), pid)
}

#[track_caller]
fn is_true(what: &str, profile: &Profile, truth: &Truth) {
    let Profile { folded, report, .. } = profile;
    assert_eq!(report["event"], "native-alloc");
    assert_eq!(report["warnings"], json!([]), "{what}");
    let all: u64 = truth.bytes.iter().sum();
    assert_eq!(
        report["allocated"],
        json!({ "profiled": all, "filtered": 0, "profiled_calls": truth.calls, "filtered_calls": 0 }),
        "{what}: {}",
        folded.top(12)
    );
    let objects = report["objects"].as_u64().unwrap();
    assert!(
        // One sampled call of a few bytes stands for a hundred calls. The program's sizes are fixed: the standard
        // deviation is 53 of 8,000 calls.
        objects.abs_diff(truth.calls) as f64 <= (PART + 0.015) * truth.calls as f64,
        "{what}: {objects} objects of {} calls",
        truth.calls
    );
    for (function, bytes) in FUNCTIONS.into_iter().zip(&truth.bytes) {
        // Of musl's own functions only the first one is known.
        let is_hidden = what == "musl" && function == "by_library";
        let within = folded.within(if is_hidden { "strdup" } else { function });
        let right = *bytes as f64 / INTERVAL as f64;
        let difference = (within.total() as f64 - right).abs();
        assert!(
            right > 2000.0 && difference <= PART * right + SAMPLES,
            "{what}: {function} has {} samples instead of {right:.0}\n{}",
            within.total(),
            folded.top(12)
        );
        // The allocator's function is the leaf, on the function that calls it.
        let callers = |stack: &[String]| {
            let caller = |up: usize| is(&stack[stack.len() - up], function);
            match function {
                "by_library" => is_hidden || caller(3),
                "by_frame" => caller(3) || caller(4),
                _ => caller(2),
            }
        };
        assert_eq!(within.count(callers), within.total(), "{what}: {}", within.top(5));
    }
    // musl describes no frame of its own.
    let whole = folded.count(reaches_root);
    assert_eq!(whole, if what == "musl" { whole } else { folded.total() }, "{what}: {}", folded.top(12));
    assert_eq!(profile.account("kept"), folded.total());
    assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
    assert_eq!((profile.account("missed"), &report["accounts"]["lost"]), (0, &json!([])), "{what}");
}

fn applies() -> bool {
    if !is_root() {
        return false;
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        skip("this kernel has no uprobes");
        return false;
    }
    true
}

/// Another process of the same program and library allocates as much at the same time. It has no probe.
#[test]
fn each_function_of_the_c_library_has_its_bytes() {
    if !applies() {
        return;
    }
    let mut other = Target::start(Command::new(program()).arg(ROUNDS));
    let (profile, truth, _) = sample(Command::new(program()).arg(ROUNDS), || drop(allocate(&mut other)));
    is_true("glibc", &profile, &truth);
}

#[test]
fn functions_of_musl_that_call_each_other_count_once() {
    if !applies() {
        return;
    }
    if lacks("musl-gcc") {
        skip("musl-gcc is not installed");
        return;
    }
    let program = scratch("musl").join("allocations-musl");
    let mut compiler = Command::new("musl-gcc");
    compiler.args(["-O2", "-g", "-fno-builtin", "-o"]).arg(&program).arg(sources().join("allocations.c"));
    assert!(compiler.status().unwrap().success());
    let (profile, truth, _) = sample(Command::new(program).arg(ROUNDS), || ());
    is_true("musl", &profile, &truth);
}

/// The library leads to the C library, whose functions must not count again.
#[test]
fn an_allocator_that_is_preloaded_counts_alone() {
    if !applies() {
        return;
    }
    let (profile, truth, _) =
        sample(Command::new(program()).arg(ROUNDS).env("LD_PRELOAD", allocator("preloaded")), || ());
    is_true("preloaded", &profile, &truth);
    let leaf = |stack: &[String]| stack.last().unwrap().contains("malloc");
    assert!(profile.folded.within("by_malloc").count(leaf) > 0, "{}", profile.folded.top(10));
}

/// The kernel runs the programs of a uprobe as long as the thread lives by which they were attached.
#[test]
fn a_process_whose_first_thread_has_ended_is_sampled_whole() {
    if !applies() {
        return;
    }
    let (profile, truth, _) = sample(Command::new(program()).args([ROUNDS, "alone"]), || ());
    is_true("alone", &profile, &truth);
}

/// The dynamic linker finds the C library first. A library that is loaded later is not used.
#[test]
fn an_allocator_that_is_loaded_later_does_not_count() {
    if !applies() {
        return;
    }
    let (profile, truth, _) = sample(Command::new(program()).arg(ROUNDS).arg(allocator("later")), || ());
    is_true("loaded later", &profile, &truth);
}

#[test]
fn a_static_program_is_sampled_by_its_symbols_or_has_a_reason() {
    if !applies() {
        return;
    }
    let flags = ["-static", "-pthread", "-DSTATIC"];
    let whole = native::without_frame_pointers_and("allocations.c", "allocations-static", &flags);
    let (profile, truth, _) = sample(Command::new(whole).arg(ROUNDS), || ());
    is_true("static", &profile, &truth);
    let flags = ["-static", "-pthread", "-DSTATIC", "-s"];
    let stripped = native::without_frame_pointers_and("allocations.c", "allocations-stripped", &flags);
    let (profile, _, pid) = sample(Command::new(stripped).arg(ROUNDS), || ());
    let reason = format!(
        "native allocations are not sampled in process {pid}: neither the program nor a library of it has the function \
         malloc in its symbol tables (a static program without symbols, or a runtime with an allocator of its own)"
    );
    assert_eq!(profile.report["warnings"], json!([reason]));
    assert_eq!(profile.report["allocated"]["profiled_calls"], 0);
}

/// Direct buffers are memory of malloc, which the JVM calls for Java code.
#[test]
fn direct_buffers_of_java_have_their_methods() {
    if !applies() {
        return;
    }
    let mut target = Program::new("Direct").dont_inline("Direct.*").start(&Jdk::host());
    let pid = target.pid().to_string();
    let mut bytes = 0;
    let line = ["-p", &pid, "-e", "native-alloc,cpu", "--alloc-interval", "8KiB"];
    let profile = while_sampling(&[], &line, || {
        target.write(b"\n");
        let line = target.wait_for(|line| line.starts_with("allocated "));
        bytes = line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    });
    let within = profile.folded.keep(|stack| {
        stack.iter().any(|frame| is(frame, "Direct.buffers")) && is(stack.last().unwrap(), "malloc")
    });
    let right = bytes as f64 / f64::from(8 << 10);
    let difference = (within.total() as f64 - right).abs();
    assert!(
        right > 8000.0 && difference <= PART * right + SAMPLES,
        "{} samples instead of {right:.0}\n{}",
        within.total(),
        profile.folded.top(10)
    );
    assert!(within.stacks().all(|(stack, _)| reaches_root(stack)), "{}", within.top(5));
}

/// A command is sampled from its first instruction, and a process that it starts by a look at it.
#[test]
fn a_command_is_sampled_from_its_beginning() {
    if !applies() {
        return;
    }
    let report = |line: &[&str]| -> Value {
        let run =
            run([&["-e", "native-alloc", "--report", "json", "--format", "folded", "-o", "/dev/null"], line]
                .concat());
        serde_json::from_str(
            &run.success().stdout.lines().skip_while(|line| *line != "{").collect::<String>(),
        )
        .unwrap()
    };
    let program = program();
    let report = report(&["--", program.to_str().unwrap(), "50"]);
    let calls = report["allocated"]["profiled_calls"].as_u64().unwrap();
    assert!((50 * 16..50 * 16 + 100).contains(&calls), "{}", report["allocated"]);
    assert_eq!(report["warnings"], json!([]));
}

#[test]
fn options_that_do_not_apply_are_refused() {
    for (line, words) in [
        (&["-e", "native-alloc"][..], "native-alloc needs a target"),
        (&["-e", "native-alloc,cpu", "-a"], "native-alloc needs a target"),
        (
            &["-e", "native-alloc", "-p", "1", "-c", "10"],
            "do not apply to native-alloc; use --alloc-interval",
        ),
        (
            &["-e", "native-alloc", "-p", "1", "--all-kernel"],
            "the event native-alloc has frames of processes only",
        ),
    ] {
        run([&["-d", "1"], line].concat()).refused(2, words);
    }
}
