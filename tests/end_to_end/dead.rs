//! File systems whose server accepts requests and never answers, and memory locks that such servers hold up forever:
//! the affected process loses its names, other processes lose nothing. A profiler that waits for such a server has not
//! ended when the time limit of a run is over, and the test fails.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jbpf_prof::process::Unopened;
use jbpf_prof::profile::UnknownReason;
use jbpf_prof::sample::{Leaf, MonoNs, ProcessId, Stack, StackKey, StopReason, ThreadContext, UserWord};
use jbpf_prof::symbolize::{AddressSpaces, CodePlace, JvmMemory, SymbolConfig, Symbolizer};
use rustix::process::Signal;
use testkit::cgroup::Tenant;
use testkit::claims::{at_least, prove};
use testkit::folded::is;
use testkit::java::{Jdk, Program};
use testkit::profiler::{ALL, binary, is_main_thread, record_watching, run, while_sampling};
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

/// The program `dead_fs` in one of its modes.
struct Dead {
    server: Target,
    /// The process that runs on the file system.
    pid: u32,
    /// Profilers of other tests meet the process, too. What it holds up is charged to its tenant, and not to theirs.
    _tenant: Tenant,
}

impl Dead {
    fn start(way: &str, with: &Path) -> Dead {
        Dead::on(&scratch(&format!("mounted-{way}")), way, with)
    }

    /// The same with this mount point.
    fn on(dir: &Path, way: &str, with: &Path) -> Dead {
        let tenant = Tenant::own("dead");
        let mut command = tenant.enter(&native::program("dead_fs"));
        let (server, pid) = Target::start_by(command.arg(way).arg(dir).arg(with));
        Dead { server, pid, _tenant: tenant }
    }

    fn fall_silent(&mut self) {
        self.server.signal(Signal::USR1);
        self.server.wait_for(|line| line == "silent");
    }
}

/// Whether a stack is of this thread; the profile needs `--per-thread`.
fn of_thread(tid: u32) -> impl Fn(&[String]) -> bool {
    let end = format!(" tid={tid}]");
    move |stack: &[String]| stack.get(1).is_some_and(|thread| thread.ends_with(&end))
}

fn within(function: &str) -> impl Fn(&[String]) -> bool {
    move |stack: &[String]| stack.iter().any(|frame| is(frame, function))
}

fn is_nameless(stack: &[String]) -> bool {
    stack.iter().any(|frame| frame.starts_with("[unknown: "))
}

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
    let mut dead = Dead::start(way, &native::program("native"));
    dead.fall_silent();
    let victim = native::start("kernel");
    let pids = [dead.pid, victim.pid()];
    let batch = || {
        let profile = record_watching(&pids, 2, &ALL.map(str::to_owned));
        for pid in pids {
            profile.assert_samples_of(&[pid], profile.folded.of_thread(pid).total());
        }
        profile.folded
    };
    let unavailable =
        |stack: &[String]| stack.iter().any(|frame| frame == "[unknown: file unavailable (file)]");
    let claims = [
        at_least(0.9, "stacks without names on the file system", unavailable).among(of_thread(pids[0])),
        at_least(0.9, "whole stacks elsewhere", within("main")).among(of_thread(pids[1])),
    ];
    prove(batch, &claims);
}

/// Most such servers answer, and many let root read (`allow_other`): mounts of object stores, of other hosts, unions.
#[test]
fn a_program_on_a_file_system_that_answers_has_its_names() {
    if !is_root() || !has_fuse() {
        return;
    }
    let served = Dead::start("file", &native::program("native"));
    let pid = served.pid;
    let batch = || {
        let profile = record_watching(&[pid], 2, &["-p".to_owned(), pid.to_string()]);
        profile.assert_samples_of(&[pid], profile.folded.total());
        profile.folded
    };
    let named = |stack: &[String]| within("main")(stack) && within("burn40")(stack);
    prove(batch, &[at_least(0.3, "samples in burn40", named)]);
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
    let mut dead = Dead::on(dir, way, Path::new("/proc/self/exe"));
    dead.fall_silent();
    let pid = dead.pid;
    let batch = || {
        let profile = record_watching(&[pid], 2, &ALL.map(str::to_owned));
        let of_dead = profile.folded.of_thread(pid);
        profile.assert_samples_of(&[pid], of_dead.total());
        of_dead
    };
    prove(batch, &[at_least(0.9, "stacks without names", is_nameless)]);
}

/// The process has also mapped a `libjvm.so`, so it looks like a JVM to attach to.
#[test]
fn a_process_that_holds_its_memory_lock_costs_its_own_names_only() {
    if !is_root() || !has_fuse() {
        return;
    }
    let jdk = Jdk::host();
    let dead = Dead::start("lock", &libjvm(&jdk));
    // Proof that the lock is never free: a read that needs it does not return.
    let cmdline = format!("/proc/{}/cmdline", dead.pid);
    let cat = Command::new("timeout").args(["1", "cat", &cmdline]).output().unwrap();
    assert_eq!(cat.status.code(), Some(124), "the lock is free: this test would not test");
    let victim = Program::new("Shares").start(&jdk);
    let line = ["-p".to_owned(), format!("{},{}", dead.pid, victim.pid()), "--per-thread".to_owned()];
    let batch = || {
        let profile = record_watching(&[dead.pid, victim.pid()], 2, &line);
        for (pid, name) in [(dead.pid, "dead_fs"), (victim.pid(), "java")] {
            profile.assert_samples_of(&[pid], profile.folded.count(|stack| stack[0] == name));
        }
        profile.folded
    };
    let claims = [
        at_least(0.9, "stacks without names", is_nameless).among(|stack| stack[0] == "dead_fs"),
        // How much the JVM's compiler threads work is a matter of the machine.
        at_least(0.9, "named stacks of the JVM", within("Shares.round")).among(is_main_thread),
    ];
    prove(batch, &claims);
    // Listing the JVMs reads every process, too.
    let (listed, pid) = (run(["jvms"]).success().stdout, victim.pid().to_string());
    let is_listed = listed.lines().any(|line| line.split_whitespace().next() == Some(pid.as_str()));
    assert!(is_listed, "{listed}");
}

/// The stacks of its threads that wait cannot be read from outside. Those of another process can.
#[test]
fn a_process_that_holds_its_memory_lock_costs_the_callers_of_its_own_waits_only() {
    if !is_root() || !has_fuse() {
        return;
    }
    let dead = Dead::start("lock", &native::program("native"));
    let hung = native::with_flags("hung.c", "hung", &["-pthread"]);
    let victim = Target::start(Command::new(hung).arg("20"));
    let pids = format!("{},{}", dead.pid, victim.pid());
    let profile = while_sampling(&[], &["-p", &pids, "-e", "wait", "--idle"], || {
        std::thread::sleep(Duration::from_secs(2));
    });
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
    let dead = Dead::start("lock", &native::program("native"));
    let pid = dead.pid;
    let profile = while_sampling(&[pid], &["-p", &pid.to_string()], || {
        spend(pid, Duration::from_secs(1));
        dead.server.signal(Signal::USR2);
        // The profiler asks again for each window, which lasts a second of time, and no less of CPU time.
        spend(pid, Duration::from_secs(4));
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
    let mut dead = Dead::on(&scratch("mounted-memory"), "jit", Path::new("/proc/self/exe"));
    dead.fall_silent();
    let memory = File::open(format!("/proc/{}/mem", dead.pid)).unwrap();
    let mut symbolizer = Symbolizer::start(SymbolConfig::new(binary())).unwrap();
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
        (0..100).map(others).any(|why| why == Some(UnknownReason::ProcessGone)),
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
