//! Unusual processes: their first thread has ended, or their mappings make them hard to read. All their code has its
//! names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use testkit::cgroup::{Group, hierarchies};
use testkit::claims::{at_least, prove, seen};
use testkit::folded::{Folded, bare, is, reaches_root};
use testkit::java::{Jdk, Program, classes};
use testkit::profiler::{profile, record, run, while_sampling};
use testkit::spent::spend;
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// The sources of Java names.
const SOURCES: [&str; 2] = ["agent", "vm"];

#[test]
fn a_program_whose_first_thread_has_ended() {
    if !is_root() {
        return;
    }
    let with = native::program("leave");
    for program in [with, native::without_frame_pointers("leave.c")] {
        let target = Target::start(&mut Command::new(program));
        wait_for_the_end_of_the_first_thread(target.pid());
        prove_whole("by its pid", || profile(&target, 1, &[]).folded);
    }
}

#[test]
fn a_group_of_a_program_whose_first_thread_has_ended() {
    if !is_root() {
        return;
    }
    let program = native::without_frame_pointers("leave.c");
    // In v1 the cgroup of an ended thread is `/`.
    for (hierarchy, point) in hierarchies() {
        let group = Group::own(&point, "leave");
        let target = Target::start(&mut group.enter(&program));
        wait_for_the_end_of_the_first_thread(target.pid());
        let args = ["-G", &group.arg()].map(str::to_owned);
        prove_whole(&hierarchy, || record(1, &args).folded);
    }
}

#[test]
fn a_jvm_whose_first_thread_has_ended() {
    if !is_root() {
        return;
    }
    let target = leader_exit_jvm();
    target.signal(Signal::USR1);
    wait_for_the_end_of_the_first_thread(target.pid());
    let listed = run(["jvms"]).success().stdout;
    let pid = target.pid().to_string();
    let row = listed.lines().find(|line| line.split_whitespace().next() == Some(&pid));
    assert!(row.is_some_and(|row| row.ends_with("leader_exit_jvm")), "{listed}");
    for source in SOURCES {
        prove_named(source, || {
            let profile = profile(&target, 1, &["--java", source]);
            assert_eq!(profile.report["jvms"][0]["pid"], target.pid(), "{}", profile.report["jvms"]);
            profile.folded
        });
    }
}

#[test]
fn a_first_thread_that_ends_in_mid_run_takes_no_names_with_it() {
    if !is_root() {
        return;
    }
    for source in SOURCES {
        prove_named(source, || {
            let target = leader_exit_jvm();
            let pid = target.pid().to_string();
            let ran = while_sampling(&[], &["--pid", &pid, "--java", source], || {
                spend(target.pid(), Duration::from_millis(300));
                target.signal(Signal::USR1);
                wait_for_the_end_of_the_first_thread(target.pid());
                // Nearly all the time comes after the end.
                spend(target.pid(), Duration::from_millis(2_000));
            });
            ran.folded
        });
    }
}

#[test]
fn another_libjvm_that_is_mapped_as_data_is_not_the_jvm() {
    if !is_root() {
        return;
    }
    let copy = scratch("indexed").join("libjvm.so");
    fs::copy(libjvm(&Jdk::host()), &copy).unwrap();
    // The kernel fills the gaps between libraries first, from above: the file needs more pages than these gaps have.
    let target = Program::new("Mapped").args(&[copy.to_str().unwrap(), "8192"]).start(&Jdk::host());
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    let first = maps.lines().find(|line| line.ends_with("/libjvm.so")).unwrap();
    assert!(first.ends_with(copy.to_str().unwrap()), "it lies above the JVM's own: {first}");
    prove_named("agent", || by_the_agent(&target));
}

#[test]
fn a_jvm_that_has_very_many_files_mapped() {
    if !is_root() {
        return;
    }
    // Long paths: a process may have 65,530 mappings, and the profiler once gave up at 16 MiB of text.
    let dir = (0..4).fold(scratch("segments"), |dir, _| dir.join("x".repeat(200)));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("segment.dat");
    fs::write(&file, [0; 4096]).unwrap();
    let target = Program::new("Mapped").args(&[file.to_str().unwrap(), "20000"]).start(&Jdk::host());
    let length = fs::read(format!("/proc/{}/maps", target.pid())).unwrap().len();
    assert!(length > 16 << 20, "{length}");
    prove_named("agent", || by_the_agent(&target));
}

/// A second of a JVM whose names come from the agent.
#[track_caller]
fn by_the_agent(target: &Target) -> Folded {
    let profile = profile(target, 1, &[]);
    let jvm = &profile.report["jvms"][0];
    assert!(jvm["names"]["agent_late"].is_object(), "{jvm}");
    profile.folded
}

/// Proves that the stacks of `leave.c` are whole.
#[track_caller]
fn prove_whole(what: &str, batch: impl FnMut() -> Folded) {
    let whole = |stack: &[String]| {
        let names: Vec<&str> = stack.iter().map(|frame| bare(frame)).collect();
        names.windows(3).any(|three| three == ["outer", "middle", "burn"]) && reaches_root(stack)
    };
    let claims = [
        seen(200, format!("{what}: samples"), |_| true),
        at_least(0.9, format!("{what}: whole stacks"), whole),
    ];
    prove(batch, &claims);
}

/// Proves that the work of the program `Shares` has its names.
#[track_caller]
fn prove_named(source: &str, batch: impl FnMut() -> Folded) {
    let named = |stack: &[String]| {
        let burns = |frame: &String| frame.starts_with("Shares.burn");
        stack.iter().any(burns) && stack.iter().any(|frame| is(frame, "Shares.main"))
    };
    let claims = [
        seen(200, format!("{source}: samples"), |_| true),
        at_least(0.9, format!("{source}: stacks with their names"), named),
    ];
    prove(batch, &claims);
}

/// The program `Shares` on the second thread of `leader_exit_jvm`, which makes the JVM.
fn leader_exit_jvm() -> Target {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let jdk = Jdk::host();
    let program = PROGRAM.get_or_init(|| {
        let program = scratch("leave").join("leader_exit_jvm");
        let include = jdk.home().unwrap().join("include");
        let mut cc = Command::new("cc");
        cc.arg("-I").arg(&include).arg("-I").arg(include.join("linux")).args(["-O2", "-pthread", "-o"]);
        cc.arg(&program).arg(testkit::sources().join("leader_exit_jvm.c")).arg("-ldl");
        assert!(cc.status().unwrap().success(), "leader_exit_jvm.c does not compile");
        program
    });
    Target::start(Command::new(program).arg(libjvm(&jdk)).arg(classes()).arg("Shares"))
}

fn libjvm(jdk: &Jdk) -> PathBuf {
    jdk.home().unwrap().join("lib/server/libjvm.so")
}

fn wait_for_the_end_of_the_first_thread(pid: u32) {
    while !fs::read(Path::new("/proc").join(pid.to_string()).join("maps")).unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
