//! Java threads have the names that Java gives them, read from the JVM's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use jbpf_prof::jvm::vm::{ProcessMemory, VmCode};
use jbpf_prof::jvm::{self, AttachOptions};
use jbpf_prof::process::procfs;
use jbpf_prof::sample::MonoNs;
use testkit::claims::{Tally, prove_tallies};
use testkit::folded::Folded;
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{binary, short_slice};
use testkit::target::Target;
use testkit::wald::Claim;

/// Cut by the kernel, these are only two names.
const NAMES: [&str; 5] = [
    "inventory-service-reader-1",
    "inventory-service-reader-2",
    "inventory-service-writer-1",
    "inventory-service-writer-2",
    "\u{1f986}\u{1f986}\u{1f986}\u{1f986} ducks",
];

/// The deadline for what a JVM does beside the test.
const TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn names_are_whole_on_jdk_17() {
    // The agent comes last: it stays in the JVM.
    on_host(17, |jdk| are_whole(jdk, &["vm", "agent"]));
}

#[test]
fn names_are_whole_on_jdk_25() {
    on_host(25, |jdk| are_whole(jdk, &[]));
}

/// Old builds of JDK 8 leave one name for all threads of a JVM; newer ones set names as later JDKs do (JDK-8073464).
#[test]
fn names_are_whole_on_jdk_8() {
    in_container(8, |jdk| are_whole(jdk, &["vm"]));
}

#[test]
fn names_are_whole_on_jdk_11() {
    in_container(11, |jdk| are_whole(jdk, &[]));
}

#[test]
fn names_are_whole_on_jdk_21() {
    in_container(21, |jdk| are_whole(jdk, &[]));
}

/// With each collector, and with pointers of either size. With the first collector, profiles by these sources of names
/// have the names, too.
fn are_whole(jdk: &Jdk, profiled_by: &[&str]) {
    let with_g1 = read_names(jdk, &["-XX:+UseG1GC"]);
    for java in profiled_by {
        thread_pools_are_distinguished(&with_g1, java);
    }
    drop(with_g1);
    read_names(jdk, &["-XX:+UseSerialGC", "-XX:-UseCompressedOops"]);
    let wide = ["-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"];
    read_names(jdk, &[&["-XX:+UseParallelGC"], &wide[..]].concat());
    if jdk.version >= 17 {
        has_no_names(jdk);
    }
}

fn start(jdk: &Jdk, flags: &[&str]) -> Target {
    Program::new("Pools").dont_inline("Pools::burn").flags(flags).start(jdk)
}

/// Reads the names of all threads many times: each thread of [`NAMES`] gets its name and keeps it, and no thread ever
/// has another's. Returns the JVM.
fn read_names(jdk: &Jdk, flags: &[&str]) -> Target {
    let what = format!("JDK {} {flags:?}", jdk.version);
    let target = start(jdk, flags);
    let mut reader = Reader::of(&target, what.clone());
    // A thread that has no name yet gets none while the JVM collects, which takes long on a busy machine.
    let until = Instant::now() + TIMEOUT;
    while reader.names().len() < NAMES.len() {
        assert!(Instant::now() < until, "{what}: {:?}", reader.found);
        reader.look();
    }
    let claim = (format!("{what}: threads with their names"), Claim::AtLeast(0.8));
    prove_tallies(&[claim], || vec![reader.looks()]);
    let ours = reader.found.values().filter(|name| NAMES.contains(&name.as_str())).count();
    assert_eq!(ours, NAMES.len(), "{what}: two threads have one name: {:?}", reader.found);
    reader.assert_no_strange_names();
    target
}

/// ZGC moves objects at any moment, so a pointer may lead to another thread's name: nothing is read.
fn has_no_names(jdk: &Jdk) {
    let target = start(jdk, &["-XX:+UseZGC"]);
    let mut reader = Reader::of(&target, format!("JDK {} with ZGC", jdk.version));
    reader.looks();
    assert!(reader.names().is_empty(), "{}: {:?}", reader.what, reader.found);
    reader.assert_no_strange_names();
}

/// Reads the names of a JVM's threads.
struct Reader {
    what: String,
    code: VmCode<ProcessMemory>,
    /// The tids of all threads in the JVM's own PID namespace.
    numbers: Vec<u32>,
    /// The threads that had a name so far.
    found: BTreeMap<u32, String>,
}

impl Reader {
    /// The number of looks of one batch.
    const LOOKS: usize = 60;

    fn of(target: &Target, what: String) -> Reader {
        let options = AttachOptions { timeout: TIMEOUT, ..AttachOptions::new(binary()) };
        let opened = jvm::open(&jvm_of(target), &options).unwrap();
        let code = VmCode::new(ProcessMemory::new(opened.memory.into()), opened.layout, false);
        Reader { what, code, numbers: numbers(target), found: BTreeMap::new() }
    }

    /// How many of the threads of [`NAMES`] have a name now; asserts that no thread has two names.
    fn look(&mut self) -> usize {
        std::thread::sleep(Duration::from_millis(7));
        self.code.check(MonoNs::now());
        let mut named = 0;
        for (&number, name) in self.numbers.iter().zip(self.code.thread_names(&self.numbers)) {
            let Some(name) = name else { continue };
            named += usize::from(NAMES.contains(&name.as_str()));
            let known = self.found.entry(number).or_insert_with(|| name.clone());
            assert_eq!(*known, name, "{}: thread {number} was renamed", self.what);
        }
        named
    }

    /// Many looks: how many of the threads of [`NAMES`] had a name.
    fn looks(&mut self) -> Tally {
        let named: usize = (0..Self::LOOKS).map(|_| self.look()).sum();
        Tally { hits: named as u64, samples: (Self::LOOKS * NAMES.len()) as u64 }
    }

    /// The names of [`NAMES`] that threads had so far.
    fn names(&self) -> BTreeSet<&str> {
        self.found.values().map(String::as_str).filter(|name| NAMES.contains(name)).collect()
    }

    /// The JVM's own threads have names of plain characters.
    fn assert_no_strange_names(&self) {
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        let names = self.found.values().map(String::as_str);
        let strange: Vec<&str> = names.filter(|name| !NAMES.contains(name) && !plain(name)).collect();
        assert!(strange.is_empty(), "{}: no thread is called {strange:?}", self.what);
    }
}

fn jvm_of(target: &Target) -> jvm::Jvm {
    let until = Instant::now() + TIMEOUT;
    loop {
        // On a busy machine reading /proc may take longer than the product's timeout.
        match jvm::find(target.pid()) {
            Some(jvm) => return jvm,
            None => assert!(Instant::now() < until, "{} is no JVM", target.pid()),
        }
    }
}

fn numbers(target: &Target) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap();
    let status = |thread: fs::DirEntry| procfs::parse_status(&fs::read(thread.path().join("status")).ok()?);
    threads.flatten().filter_map(status).map(|status| status.ns_tid).collect()
}

/// Threads have the names of their pools in one of five profiles, and never the name of another pool. If the JVM
/// collects for long while the names are read, the threads of a whole window have the kernel's names.
fn thread_pools_are_distinguished(target: &Target, java: &str) {
    const MOST_PROFILES: u32 = 5;
    let mut all = Folded::default();
    for _ in 0..MOST_PROFILES {
        let got = short_slice(target, &["--java", java, "--per-thread"]).folded;
        let named = POOLS.iter().all(|pool| pool.is_named(&got));
        all.add(got);
        if named {
            for pool in &POOLS {
                assert_eq!(pool.strangers(&all), 0, "{}: another pool:\n{}", pool.method, all.top(10));
            }
            assert_eq!(all.count(|stack| stack[1].contains('\u{fffd}')), 0, "{}", all.top(10));
            return;
        }
    }
    panic!("--java {java}: no profile has the names of the pools:\n{}", all.top(10));
}

/// Threads that run a method.
struct Pool {
    method: &'static str,
    name: &'static str,
}

const POOLS: [Pool; 2] = [
    Pool { method: "Pools.reads", name: "[inventory-service-reader-# tid=" },
    Pool { method: "Pools.writes", name: "[inventory-service-writer-# tid=" },
];

impl Pool {
    /// Whether a profile has enough samples of the method, nearly all of them in threads with their names.
    fn is_named(&self, profile: &Folded) -> bool {
        const DUCKS: &str = "[\u{1f986}\u{1f986}\u{1f986}\u{1f986} ducks tid=";
        let own = profile.within(self.method);
        let right = own.share(|stack| stack[1].starts_with(self.name) || stack[1].starts_with(DUCKS));
        own.total() > 20 && right > 0.9
    }

    /// Samples of the method in threads of another pool.
    fn strangers(&self, profile: &Folded) -> u64 {
        let own = profile.within(self.method);
        own.count(|stack| stack[1].contains("-service-") && !stack[1].starts_with(self.name))
    }
}
