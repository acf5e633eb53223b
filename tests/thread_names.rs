//! Java threads have the names that Java gives them, read from the JVM's memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use jbpf_prof::jvm::vm::{ProcessMemory, VmCode};
use jbpf_prof::jvm::{self, AttachOptions};
use jbpf_prof::process::procfs;
use jbpf_prof::sample::MonoNs;
use testkit::folded::is;
use testkit::is_root;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{binary, profile};
use testkit::target::Target;

/// Cut by the kernel, these are only two names.
const NAMES: [&str; 5] = [
    "inventory-service-reader-1",
    "inventory-service-reader-2",
    "inventory-service-writer-1",
    "inventory-service-writer-2",
    "\u{1f986}\u{1f986}\u{1f986}\u{1f986} ducks",
];

#[test]
fn names_are_whole_on_jdk_17() {
    on_host(17, are_whole);
}

#[test]
fn names_are_whole_on_jdk_25() {
    on_host(25, are_whole);
}

#[test]
fn names_are_whole_on_jdk_8() {
    in_container(8, are_whole);
}

#[test]
fn names_are_whole_on_jdk_11() {
    in_container(11, are_whole);
}

#[test]
fn names_are_whole_on_jdk_21() {
    in_container(21, are_whole);
}

/// With each collector, and with pointers of either size.
fn are_whole(jdk: &Jdk) {
    for flags in [
        &["-XX:+UseG1GC"][..],
        &["-XX:+UseSerialGC"],
        &["-XX:+UseParallelGC", "-XX:-UseCompressedOops"],
        &["-XX:+UseG1GC", "-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"],
    ] {
        let looks = names_of(jdk, flags);
        assert!(looks.share > 0.8, "JDK {} {flags:?}: only {} could be read", jdk.version, looks.share);
        assert!(NAMES.iter().all(|name| looks.names.contains(*name)), "{flags:?}: {:?}", looks.names);
    }
    if jdk.version >= 17 {
        // ZGC moves objects at any moment, so a pointer may lead to another thread's name.
        let looks = names_of(jdk, &["-XX:+UseZGC"]);
        assert!(looks.names.is_empty(), "JDK {}: {:?}", jdk.version, looks.names);
    }
}

struct Looks {
    names: BTreeSet<String>,
    /// The average share of the threads of `NAMES` that had a name.
    share: f64,
}

/// Reads the names of all threads many times; asserts that no thread has two names, or another thread's.
fn names_of(jdk: &Jdk, flags: &[&str]) -> Looks {
    const LOOKS: usize = 60;
    let target = Program::new("Pools").flags(flags).start(jdk);
    let jvm = (0..40).find_map(|_| jvm::find(target.pid())).expect("it is a JVM");
    let opened = jvm::open(&jvm, &AttachOptions::new(binary())).unwrap();
    let mut code = VmCode::new(ProcessMemory::new(opened.memory.into()), opened.layout, false);
    let numbers = numbers(&target);
    let mut found: BTreeMap<u32, String> = BTreeMap::new();
    let mut named = 0;
    for _ in 0..LOOKS {
        code.check(MonoNs::now());
        for (&number, name) in numbers.iter().zip(code.thread_names(&numbers)) {
            let Some(name) = name else { continue };
            named += usize::from(NAMES.contains(&name.as_str()));
            let known = found.entry(number).or_insert_with(|| name.clone());
            assert_eq!(*known, name, "JDK {} {flags:?}: thread {number} was renamed", jdk.version);
        }
        std::thread::sleep(Duration::from_millis(7));
    }
    let ours: Vec<&String> = found.values().filter(|name| NAMES.contains(&name.as_str())).collect();
    let names: BTreeSet<String> = ours.iter().map(|name| (*name).clone()).collect();
    assert_eq!(ours.len(), names.len(), "two threads have one name: {found:?}");
    let plain = |name: &&String| name.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let strange: Vec<&String> =
        found.values().filter(|name| !NAMES.contains(&name.as_str()) && !plain(name)).collect();
    assert!(strange.is_empty(), "no thread is called {strange:?}");
    let share = named as f64 / (LOOKS * NAMES.len()) as f64;
    eprintln!("JDK {} {flags:?}: {share} of {names:?}", jdk.version);
    Looks { names, share }
}

/// The tids of a process in its own PID namespace.
fn numbers(target: &Target) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap();
    let status = |thread: fs::DirEntry| procfs::parse_status(&fs::read(thread.path().join("status")).ok()?);
    threads.flatten().filter_map(status).map(|status| status.ns_tid).collect()
}

#[test]
fn thread_pools_are_distinguished_by_java_names() {
    if is_root() {
        check_thread_pools(&Jdk::host(), &["--java", "agent"]);
        check_thread_pools(&Jdk::host(), &["--java", "vm"]);
    }
}

/// Old builds of JDK 8 leave one name for all threads of a JVM; newer ones set names as later JDKs do (JDK-8073464).
#[test]
fn thread_pools_are_distinguished_in_a_container_on_jdk_8() {
    in_container(8, |jdk| check_thread_pools(jdk, &["--java", "vm"]));
}

fn check_thread_pools(jdk: &Jdk, more: &[&str]) {
    let target = Program::new("Pools").dont_inline("Pools::burn").start(jdk);
    let all = profile(&target, 3, &[more, &["--per-thread"]].concat()).folded;
    for (method, thread) in [("Pools.reads", "reader"), ("Pools.writes", "writer")] {
        let of = all.within(method);
        let pool = format!("[inventory-service-{thread}-# tid=");
        let ducks = "[\u{1f986}\u{1f986}\u{1f986}\u{1f986} ducks tid=";
        let right = of.share(|stack| stack[1].starts_with(&pool) || stack[1].starts_with(ducks));
        assert!(right > 0.9, "{right} of {method} is in its pool:\n{}", all.top(10));
        let other = of.count(|stack| stack[1].contains("-service-") && !stack[1].starts_with(&pool));
        assert_eq!(other, 0, "{method} is in the other pool:\n{}", all.top(10));
        assert!(of.count(|stack| stack.iter().any(|frame| is(frame, method))) > 20, "{}", all.top(10));
    }
    assert_eq!(all.count(|stack| stack[1].contains('\u{fffd}')), 0, "{}", all.top(10));
}
