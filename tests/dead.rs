//! File systems whose server accepts requests and never answers, and memory locks that such servers hold up forever:
//! the affected process loses its names, other processes lose nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jbpf_prof::process::Unopened;
use jbpf_prof::profile::UnknownReason;
use jbpf_prof::sample::{Leaf, MonoNs, ProcessId, Stack, StackKey, StopReason, ThreadContext, UserWord};
use jbpf_prof::symbolize::{AddressSpaces, CodePlace, JvmMemory, SymbolConfig, Symbolizer};
use rustix::process::Signal;
use testkit::java::{Jdk, Program};
use testkit::profiler::{ALL, record_watching, run, while_sampling};
use testkit::spent::spend;
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// Whether this kernel can mount such file systems.
fn has_fuse() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        skip("this kernel has no /dev/fuse");
    }
    there
}

/// The program `dead_fs` in one of its modes, and the pid of the process that runs.
fn dead_fs(way: &str, with: &Path) -> (Target, u32) {
    let dir = scratch(&format!("mounted-{way}"));
    Target::start_by(Command::new(native::program("dead_fs")).arg(way).arg(dir).arg(with))
}

/// How long a run may take in addition to its sampling: some calls are given up, each after half a second.
const BESIDE: Duration = Duration::from_secs(15);

#[test]
fn a_file_system_that_does_not_answer_costs_its_own_names_only() {
    only_its_own_names_are_lost("file");
}

/// A process that closes a file there, or ends with it open, waits for the server, and no signal ends that.
#[test]
fn a_file_system_that_does_not_let_go_of_a_file_costs_its_own_names_only() {
    only_its_own_names_are_lost("close");
}

/// An overlay hides the file system below from `fstatfs`, and a user namespace can mount both.
#[test]
fn an_overlay_above_such_a_file_system_costs_its_own_names_only() {
    only_its_own_names_are_lost("overlay");
}

fn only_its_own_names_are_lost(way: &str) {
    if !is_root() || !has_fuse() {
        return;
    }
    let (mut dead, pid) = dead_fs(way, &native::program("native"));
    dead.signal(Signal::USR1);
    dead.wait_for(|line| line == "silent");
    let victim = native::start("kernel");
    let begun = Instant::now();
    let profile = record_watching(&[pid, victim.pid()], 3, &ALL.map(str::to_owned));
    assert!(begun.elapsed() < Duration::from_secs(3) + BESIDE, "{:?}", begun.elapsed());
    let of_dead = profile.folded.of_thread(pid);
    profile.assert_samples_of(&[pid], of_dead.total());
    let nameless = of_dead.count(|stack| stack.iter().any(|f| f == "[unknown: file unavailable (file)]"));
    assert!(nameless * 10 > of_dead.total() * 9, "{}", of_dead.top(10));
    let of_victim = profile.folded.of_thread(victim.pid());
    profile.assert_samples_of(&[victim.pid()], of_victim.total());
    assert!(of_victim.within("main").total() * 10 > of_victim.total() * 9, "{}", of_victim.top(10));
}

/// Most such servers answer, and many let root read (`allow_other`): mounts of object stores, of other hosts, unions.
#[test]
fn a_program_on_a_file_system_that_answers_has_its_names() {
    if !is_root() || !has_fuse() {
        return;
    }
    let (_served, pid) = dead_fs("file", &native::program("native"));
    let profile = record_watching(&[pid], 3, &["-p".to_owned(), pid.to_string()]);
    let folded = &profile.folded;
    profile.assert_samples_of(&[pid], folded.total());
    assert!(folded.within("main").within("burn40").total() * 10 > folded.total() * 3, "{}", folded.top(10));
}

/// A process with generated code may have a perf map in its `/tmp`. The search for it must not block a thread of the
/// profiler: a process with a thread that waits for such a file system cannot end.
#[test]
fn a_tmp_that_does_not_answer_costs_the_names_of_generated_code_only() {
    only_generated_code_is_nameless("jit", Path::new("/tmp"));
}

#[test]
fn a_root_that_does_not_answer_costs_the_names_of_generated_code_only() {
    only_generated_code_is_nameless("root", &scratch("mounted-root"));
}

fn only_generated_code_is_nameless(way: &str, dir: &Path) {
    if !is_root() || !has_fuse() {
        return;
    }
    let mut command = Command::new(native::program("dead_fs"));
    let (mut dead, pid) = Target::start_by(command.arg(way).arg(dir).arg("/proc/self/exe"));
    dead.signal(Signal::USR1);
    dead.wait_for(|line| line == "silent");
    let begun = Instant::now();
    let profile = record_watching(&[pid], 3, &ALL.map(str::to_owned));
    assert!(begun.elapsed() < Duration::from_secs(3) + BESIDE, "{:?}", begun.elapsed());
    let of_dead = profile.folded.keep(|stack| stack[0] == "dead_fs");
    profile.assert_samples_of(&[pid], of_dead.total());
    let nameless = of_dead.count(|stack| stack.iter().any(|f| f.starts_with("[unknown: ")));
    assert!(nameless * 10 > of_dead.total() * 9, "{}", of_dead.top(10));
}

/// The process has also mapped a `libjvm.so`, so it looks like a JVM to attach to.
#[test]
fn a_process_that_holds_its_memory_lock_costs_its_own_names_only() {
    if !is_root() || !has_fuse() {
        return;
    }
    let jdk = Jdk::host();
    let (_dead, pid) = dead_fs("lock", &libjvm(&jdk));
    // Proof that the lock is never free: a read that needs it does not return.
    let cat = Command::new("timeout").args(["1", "cat", &format!("/proc/{pid}/cmdline")]).output().unwrap();
    assert_eq!(cat.status.code(), Some(124), "the lock is free: this test would not test");
    let victim = Program::new("Shares").start(&jdk);
    let begun = Instant::now();
    // By pid: other tests, which run beside this one, have programs that are named `java`, too.
    let pids = format!("{pid},{}", victim.pid());
    let profile = record_watching(&[pid, victim.pid()], 3, &["-p".to_owned(), pids]);
    assert!(begun.elapsed() < Duration::from_secs(3) + BESIDE, "{:?}", begun.elapsed());
    let of_dead = profile.folded.keep(|stack| stack[0] == "dead_fs");
    profile.assert_samples_of(&[pid], of_dead.total());
    let nameless = of_dead.count(|stack| stack.iter().any(|f| f.starts_with("[unknown: ")));
    assert!(nameless * 10 > of_dead.total() * 9, "{}", of_dead.top(10));
    let of_victim = profile.folded.keep(|stack| stack[0] == "java");
    profile.assert_samples_of(&[victim.pid()], of_victim.total());
    assert!(of_victim.within("Shares.round").total() * 10 > of_victim.total() * 9, "{}", of_victim.top(10));
    // Listing the JVMs reads every process, too.
    let listed = run(["jvms"]).success();
    assert!(listed.stdout.contains(&victim.pid().to_string()), "{}", listed.stdout);
}

/// The stacks of its threads that wait cannot be read from outside. Those of another process can.
#[test]
fn a_process_that_holds_its_memory_lock_costs_the_callers_of_its_own_waits_only() {
    if !is_root() || !has_fuse() {
        return;
    }
    let (_dead, pid) = dead_fs("lock", &native::program("native"));
    let hung = native::with_flags("hung.c", "hung", &["-pthread"]);
    let victim = Target::start(Command::new(hung).arg("20"));
    let pids = format!("{pid},{}", victim.pid());
    let begun = Instant::now();
    let profile = while_sampling(&[], &["-p", &pids, "-e", "wait", "--idle"], || {
        std::thread::sleep(Duration::from_secs(2));
    });
    assert!(begun.elapsed() < Duration::from_secs(2) + BESIDE, "{:?}", begun.elapsed());
    let second = 1e9 / profile.account("period_ns") as f64;
    let of_victim = profile.folded.keep(|stack| stack[0] == "hung");
    let whole = of_victim.within("begin").within("wait_for_ever").total() as f64;
    assert!(whole > 1.9 * second, "{}", profile.folded.top(10));
    let ends = profile.report["ends"].as_array().unwrap();
    let still = ends.iter().find(|end| end[0] == "wait that is not over").map(|end| end[1].as_u64().unwrap());
    assert!(still.is_some_and(|still| still as f64 > 1.9 * second), "{ends:?}");
}

/// The cause may end: a process that once answered too late has its names from then on.
#[test]
fn a_process_that_lets_its_memory_lock_go_has_its_names_again() {
    if !is_root() || !has_fuse() {
        return;
    }
    let (dead, pid) = dead_fs("lock", &native::program("native"));
    let profile = while_sampling(&[pid], &["-p", &pid.to_string()], || {
        spend(pid, Duration::from_secs(2));
        dead.signal(Signal::USR2);
        spend(pid, Duration::from_secs(6));
    });
    let folded = profile.folded;
    let nameless = folded.count(|stack| stack.iter().any(|frame| frame == "[unknown: mappings unread]"));
    assert!(nameless * 10 > folded.total(), "it was not held up: {}", folded.top(10));
    assert!(folded.within("locked_work").total() * 10 > folded.total(), "{}", folded.top(10));
}

/// Reading such memory blocks its worker forever.
#[test]
fn jvms_whose_memory_does_not_answer_cost_others_nothing() {
    if !is_root() || !has_fuse() {
        return;
    }
    let (mut dead, pid) = dead_fs("jit", Path::new("/proc/self/exe"));
    dead.signal(Signal::USR1);
    dead.wait_for(|line| line == "silent");
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut symbolizer =
        Symbolizer::start(SymbolConfig::new(env!("CARGO_BIN_EXE_jbpf-prof").into())).unwrap();
    // No process has these pids; all belong to one tenant.
    for tgid in u32::MAX - 8..u32::MAX {
        assert_eq!(
            leaf_in(&mut symbolizer, tgid, memory.try_clone().unwrap()),
            Some(UnknownReason::WorkerFailed)
        );
    }
    assert_eq!(symbolizer.stats().worker_lost, 8, "then it has lost its turn");
    let empty = tempfile::tempfile().unwrap();
    // Deadlines are short after so many timeouts, and a host may be busy.
    let others = |_| leaf_in(&mut symbolizer, std::process::id(), empty.try_clone().unwrap());
    assert!(
        (0..5).map(others).any(|why| why == Some(UnknownReason::ProcessGone)),
        "there is nothing to read"
    );
}

/// The unknown reason of an address in a JVM with this memory.
fn leaf_in(symbolizer: &mut Symbolizer, tgid: u32, file: File) -> Option<UnknownReason> {
    let process = ProcessId { tgid, start: 1, exec: 1 };
    // The code heaps at 0x40000000, where `dead_fs` has mapped its file; all other fields are zero.
    let mut layout = [0; 4096];
    layout[..5].copy_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x04]);
    let layout = postcard::from_bytes(&layout).unwrap();
    symbolizer.add_jvm_memory(process, JvmMemory { file, layout, code: true, coarse: false });
    let stack = Stack {
        key: StackKey { process, ..StackKey::default() },
        at: MonoNs(1),
        comm: b"java".to_vec(),
        leaf: Leaf::User,
        stop_reason: StopReason::Root,
        kernel: Vec::new(),
        user: vec![UserWord::Leaf(1 << 40)],
        waiting: None,
        lock: None,
        waker: None,
        object: None,
        context: ThreadContext::None,
    };
    symbolizer.symbolize(&[stack], &mut Generated).remove(0).frames.first().and_then(|frame| frame.unknown)
}

/// Address spaces with only generated code.
struct Generated;

impl AddressSpaces for Generated {
    fn place(&mut self, _: ProcessId, _: MonoNs, _: u64) -> CodePlace {
        CodePlace::Generated
    }

    fn mapped_since(&mut self, _: ProcessId, _: MonoNs) -> Option<MonoNs> {
        None
    }

    fn is_known(&self, _: ProcessId) -> bool {
        true
    }

    fn perf_map(&mut self, _: ProcessId, _: MonoNs) -> Result<OwnedFd, Unopened> {
        Err(Unopened::ProcessGone)
    }
}

fn libjvm(jdk: &Jdk) -> PathBuf {
    jdk.home().expect("on the host").join("lib/server/libjvm.so")
}
