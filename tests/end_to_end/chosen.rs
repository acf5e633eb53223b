//! Selected processes: their identity when pids are reused, their descendants, and the run's end after the last one.

use std::process::Command;
use std::time::Duration;

use jbpf_prof::process::procfs;
use rustix::process::{Pid, Signal, kill_process};
use testkit::claims::{prove, seen};
use testkit::java::{Jdk, Program};
use testkit::profiler::{Profile, Sampling, profile, until_it_ends};
use testkit::spent::{Watch, spend};
use testkit::target::Target;
use testkit::{is_root, native, scratch};

/// Milliseconds of CPU time after which a program ends; no test waits for that.
const LONG: &str = "20000";

/// A timer's interrupt wakes the chosen program while another JVM runs.
#[test]
fn a_jvm_that_only_ends_waits_of_others_is_left_alone() {
    if !is_root() {
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut others: Vec<Target> = (0..cpus).map(|_| Program::new("Spin").start(&Jdk::host())).collect();
    let target = Program::new("Waits").start(&Jdk::host());
    let sample = || {
        let profile = profile(&target, 2, &["-e", "wait", "--wakers"]);
        let jvms = profile.report["jvms"].as_array().unwrap();
        let pids: Vec<u64> = jvms.iter().map(|jvm| jvm["pid"].as_u64().unwrap()).collect();
        assert_eq!(pids, [u64::from(target.pid())]);
        profile.folded
    };
    prove(sample, &[seen(200, "waits", |_| true)]);
    assert!(others.iter_mut().all(Target::is_alive));
}

#[test]
fn a_reused_pid_is_not_profiled() {
    if !is_root() {
        return;
    }
    // Numbers are given out in a circle. A program of another test gets this one only if the circle closes just then.
    let profile = (0..20).find_map(|_| profile_of_a_reused_pid()).expect("a number that nobody else takes");
    let of = |name: &str| profile.folded.count(|stack| stack[0] == name);
    assert!(of("native") > 200 && of("kernel") > 200, "{}", profile.folded.top(10));
    // In the window in which its predecessor ended, the new process may still be taken for it.
    assert!(of("turn_a") < 2_000, "{} samples of 4,000 ticks", of("turn_a"));
}

/// Profiles two programs, of which the second ends while another program has the first one's number. `None` if the
/// number was not to be had.
fn profile_of_a_reused_pid() -> Option<Profile> {
    let (first, second) = (native::start("native"), native::start("kernel"));
    let (number, other) = (first.pid(), second.pid());
    let mut with_pid = Command::new(native::program("with_pid"));
    with_pid.arg(number.to_string()).arg(native::program("turn_a")).arg(LONG);
    let is_stranger = || procfs::stat(number).is_some_and(|stat| stat.comm == b"turn_a");
    let mut stranger = None;
    // The run ends although another process has the number.
    let profile = until_it_ends(&["-p", &format!("{number},{other}")], || {
        spend(number, Duration::from_secs(1));
        drop(first);
        let mut begun = Target::spawn(&mut with_pid);
        while begun.is_alive() && !is_stranger() {
            std::thread::yield_now();
        }
        if is_stranger() {
            spend(number, Duration::from_secs(4));
            stranger = Some(begun);
        }
        drop(second);
    });
    assert!(stranger.is_none() || is_stranger(), "it has ended by itself");
    stranger.map(|_| profile)
}

#[test]
fn descendants_are_profiled_when_all_between_have_ended() {
    if !is_root() {
        return;
    }
    // The middle process starts before the profiler, and is gone when its own child begins to work.
    let (first, middle) = (
        "sh -c \"$0\" \"$@\"; exit 0",
        "echo ready\n\
        while [ ! -e \"$2\" ]; do sleep 0.1; done\nsh -c \"$0\" \"$1\" \"$3\" & exit 0",
    );
    let last = "echo pid $$; sleep 1; exec \"$0\" \"$1\"";
    let word = scratch("word").join("go");
    let _ = std::fs::remove_file(&word);
    let mut family = Command::new("sh");
    family.args(["-c", first, middle, last]).arg(native::program("turn_a")).arg(&word).arg(LONG);
    let mut family = Target::start(&mut family);
    let sampling = Sampling::begin(&["-p", &family.pid().to_string(), "--children"]);
    std::fs::write(&word, "").unwrap();
    let said = family.wait_for(|line| line.starts_with("pid "));
    let orphan: u32 = said["pid ".len()..].parse().unwrap();
    family.wait();
    spend(orphan, Duration::from_millis(1_500));
    assert!(procfs::stat(sampling.pid()).is_some_and(|stat| stat.state != b'Z'), "it has ended too early");
    kill_process(Pid::from_raw(orphan.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let all = sampling.end(Watch::keep(&[])).folded;
    // It has 1,500 ticks, less what chance, or a program of another test's profiler on the same CPU, takes away.
    assert!(all.count(|stack| stack[0] == "turn_a") > 1_000, "{}", all.top(10));
}
