//! Attaches to real JVMs, as root: this works wherever they run, and harms no JVM.

mod hostile;
mod java;

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jbpf_prof::jvm::{self, AgentStart, Attached, ExpectedNameSource, Jvm, JvmRow, Refusal};
use jbpf_prof::sample::{MonoNs, ProcessId};
use jvm_symbols_log::{ClassName, Load, Method, Quotas, Reader, RecordVisitor, Stub, Unload};

use self::java::{
    Java, PATIENCE, a_jdk, at_once, attach, jdks, on_each_jdk, options, state_of, tmp_of, traces_in,
};
use testkit::cgroup::Group;
use testkit::nobody::{AS_NOBODY, NOBODY};
use testkit::profiler::{binary, has_helper, run};
use testkit::scratch;

/// The content of an agent log.
#[derive(Default)]
struct RecordedSink {
    classes: HashMap<u64, String>,
    methods: Vec<String>,
    loads: usize,
    stubs: usize,
    replayed: bool,
}

impl RecordVisitor for RecordedSink {
    fn method(&mut self, offset: u64, method: &Method<'_>) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let class = match method.class {
            ClassName::Named { class, .. } => text(class),
            ClassName::As(known) => self.classes[&known].clone(),
        };
        self.methods.push(format!("{class}{}", text(method.name)));
        self.classes.insert(offset, class);
    }
    fn load(&mut self, _: &Load<'_>) {
        self.loads += 1;
    }
    fn unload(&mut self, _: &Unload) {}
    fn stub(&mut self, _: &Stub<'_>) {
        self.stubs += 1;
    }
    fn replay_end(&mut self) {
        self.replayed = true;
    }
}

fn read_log(attached: &Attached) -> RecordedSink {
    let mut recorded = RecordedSink::default();
    let mut reader = Reader::new(Quotas::default());
    while reader.read(&attached.log, &mut recorded).unwrap() > 0 {}
    recorded
}

/// Reads the log again until it has enough code. On a busy machine the JVM compiles late what the program needs.
#[track_caller]
fn read_until(attached: &Attached, is_enough: impl Fn(&RecordedSink) -> bool) -> RecordedSink {
    let until = Instant::now() + PATIENCE;
    loop {
        let log = read_log(attached);
        if is_enough(&log) {
            return log;
        }
        assert!(Instant::now() < until, "{} loads of {} methods", log.loads, log.methods.len());
        attached.renew_lease(MonoNs(MonoNs::now().0 + 15_000_000_000)).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
}

/// Attaches; asserts that the log has the program's code and that no traces stay behind.
fn assert_attaches(java: &mut Java) -> (Jvm, Attached) {
    let jvm = java.jvm();
    let attached = attach(&jvm).unwrap_or_else(|failed| panic!("{jvm:?}: {failed:?}"));
    let has_turn = |log: &RecordedSink| log.methods.iter().any(|method| method == "LSpin;turn");
    let log = read_until(&attached, |log| has_turn(log) && log.loads > 10);
    let header = jvm_symbols_log::Header::read(&attached.log).unwrap();
    assert!(log.replayed && header.counters.replay.done > 0, "{header:?}");
    assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new());
    assert!(java.is_alive());
    (jvm, attached)
}

#[test]
fn a_plain_jvm_is_found_described_and_attached_to() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &["-XX:+PreserveFramePointer"]);
        let (jvm, attached) = assert_attaches(&mut java);
        assert!(jvm::discover().unwrap().contains(&jvm), "it is among all JVMs");
        assert_eq!((jvm.main.as_str(), jvm.uid), ("Spin", 0));
        assert_eq!(jvm.ns_pid, jvm.process.tgid);
        assert_eq!(attached.source, AgentStart::Late);
        assert!(attached.blobs.blobs.is_empty() && attached.clock_offset == 0);
        assert!(attached.started <= MonoNs::now());
        let flags = attached.inspection.flags;
        assert_eq!(flags.preserve_frame_pointer, Some(true));
        assert_eq!(flags.disable_attach_mechanism, Some(false));
        assert_eq!(flags.enable_dynamic_agent_loading, Some(true));
        assert_eq!(flags.reduce_signal_usage, Some(false));
        let release = fs::read_to_string(jdk.join("release")).unwrap();
        let version = attached.inspection.version.unwrap();
        assert!(release.contains(&format!("JAVA_VERSION=\"{}.", version.feature)), "{version}");
        assert!(release.contains(&attached.inspection.release), "{:?}", attached.inspection);
        assert!(release.contains(&format!("IMPLEMENTOR=\"{}\"", attached.inspection.vendor)));
        let row = JvmRow::of(&jvm, &binary());
        assert_eq!((row.frame_pointers, row.refusal, row.pid), (Some(true), None, java.pid()));
        // The identity that the BPF program would report.
        let exact = ProcessId { start: jvm.process.start + 1234, exec: 7, ..jvm.process };
        assert!(jvm::is_same_process(jvm.start_ticks, jvm.process.tgid, exact));
        assert!(!jvm::is_same_process(jvm.start_ticks, jvm.process.tgid, ProcessId { start: 1, ..exact }));
    });
}

#[test]
fn flags_are_those_of_the_jvm_and_not_of_its_command_line() {
    let args = tempfile::NamedTempFile::new().unwrap();
    writeln!(args.as_file(), "-XX:+PreserveFramePointer -XX:-EnableDynamicAgentLoading").unwrap();
    let java = Java::start(&a_jdk(), &[&format!("@{}", args.path().display())]);
    let jvm = java.jvm();
    let inspection = jvm::inspect(&jvm, &binary()).unwrap();
    assert_eq!(inspection.flags.preserve_frame_pointer, Some(true));
    assert_eq!(inspection.flags.enable_dynamic_agent_loading, Some(false));
    assert_eq!(JvmRow::of(&jvm, &binary()).refusal, Some(Refusal::AgentLoadingDisabled));
}

#[test]
fn a_jvm_of_another_user_is_attached_to() {
    on_each_jdk(|jdk| {
        let mut java = Java::of_nobody(jdk);
        let (jvm, _attached) = assert_attaches(&mut java);
        assert_eq!((jvm.uid, jvm.gid), (NOBODY, NOBODY));
    });
}

#[test]
fn a_jvm_in_namespaces_of_its_own_is_attached_to() {
    on_each_jdk(|jdk| {
        let script = java::script("mount -t tmpfs tmp /tmp", "mount -o remount,bind,ro /");
        let wrapper =
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script];
        let mut java = Java::under(&wrapper, jdk, &[]);
        let (jvm, _attached) = assert_attaches(&mut java);
        assert_ne!(jvm.ns_pid, jvm.process.tgid, "it is in a pid namespace");
    });
}

/// Its `/tmp` is the host's, where the name of its socket contains the pid, which is 1. So one JVM runs after the
/// other, and no other test has such a JVM.
#[test]
fn a_jvm_in_a_user_namespace_is_attached_to() {
    for jdk in jdks() {
        let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
        let wrapper: Vec<&str> = AS_NOBODY.into_iter().chain(unshare).collect();
        let mut java = Java::under(&wrapper, &jdk, &[]);
        let (jvm, _attached) = assert_attaches(&mut java);
        assert_eq!(jvm.uid, NOBODY, "root within is nobody outside");
    }
}

#[test]
fn a_tmpfs_of_a_user_namespace_takes_the_agent() {
    let script = java::script("mount -t tmpfs tmp /tmp", "true");
    let unshare = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];
    let wrapper: Vec<&str> = AS_NOBODY.into_iter().chain(unshare).chain(["sh", "-c", &script]).collect();
    let mut java = Java::under(&wrapper, &a_jdk(), &[]);
    assert_attaches(&mut java);
}

#[test]
fn a_jvm_that_uses_few_signals_is_attached_to_by_its_socket() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &["-Xrs"]);
        let (_, attached) = assert_attaches(&mut java);
        assert_eq!(attached.inspection.flags.reduce_signal_usage, Some(true));
    });
}

#[test]
fn where_attaching_is_disabled_nothing_is_printed_and_the_refusal_named() {
    on_each_jdk(|jdk| {
        let java = Java::start(jdk, &["-XX:+DisableAttachMechanism"]);
        let failed = attach(&java.jvm()).unwrap_err();
        assert_eq!(failed.refusal, Refusal::AttachDisabled);
        assert!(failed.inspection.is_some());
        assert_eq!(java.output_since_ready(), Vec::<String>::new());
    });
}

#[test]
fn where_agent_loading_is_disabled_the_refusal_is_named() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &["-XX:-EnableDynamicAgentLoading"]);
        assert_eq!(attach(&java.jvm()).unwrap_err().refusal, Refusal::AgentLoadingDisabled);
        assert!(java.is_alive());
    });
}

#[test]
fn a_stopped_jvm_is_refused_in_time_and_left_alone() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &[]);
        let jvm = java.jvm();
        let pid = rustix::process::Pid::from_raw(i32::try_from(java.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while state_of(java.pid()) != b'T' {
            thread::yield_now();
        }
        // On any machine the refusal is nearer than the timeout, unless it waits for that.
        let begun = Instant::now();
        let refused = jvm::attach(&jvm, &options(600)).unwrap_err();
        assert_eq!(refused.refusal, Refusal::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(300));
        assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        assert_attaches(&mut java);
        assert_eq!(java.output_since_ready(), Vec::<String>::new());
    });
}

#[test]
fn a_jvm_that_starts_survives_and_is_attached_to() {
    for jdk in jdks() {
        let attached = AtomicUsize::new(0);
        // One or two rounds are enough, unless the machine has no time.
        for _ in 0..20 {
            at_once(0..5, |_| {
                let mut java = Java::launch(&[], &jdk, &[]);
                // Attach at once: the JVM maps libjvm.so milliseconds before it catches SIGQUIT.
                let jvm = java.jvm();
                let result = attach(&jvm);
                eprintln!("{:?}", result.as_ref().map(|_| ()));
                attached.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
                assert!(java.is_alive(), "SIGQUIT came too early");
            });
            if attached.load(Ordering::Relaxed) > 5 {
                break;
            }
        }
        let attached = attached.into_inner();
        assert!(attached > 5, "only {attached} of 100 starting JVMs were attached to");
    }
}

#[test]
fn a_jvm_that_ends_meanwhile_is_reported_as_gone() {
    let (mut gone, mut done) = (0, 0);
    let delays = [0_u64, 1, 3, 6, 10, 15, 25, 40, 60, 90];
    // Of a JVM that is old enough, an attach may be faster than any of these; on a free machine none is.
    for (nth, delay) in delays.into_iter().chain([0; 40]).enumerate() {
        if nth >= delays.len() && gone > 0 {
            break;
        }
        let mut java = Java::start(&a_jdk(), &[]);
        let jvm = java.jvm();
        let result = thread::scope(|scope| {
            let attaching = scope.spawn(|| attach(&jvm));
            thread::sleep(Duration::from_millis(delay));
            java.kill();
            attaching.join().unwrap()
        });
        match result {
            Ok(_) => done += 1,
            Err(failed) => {
                // After its last answer the JVM may have closed its descriptors already.
                let expected = [Refusal::Exited, Refusal::NoAnswer, Refusal::NoLog];
                assert!(expected.contains(&failed.refusal), "{failed:?} after {delay} ms");
                gone += 1;
            }
        }
        assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
        drop(java);
        assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Exited);
        // A killed JVM cannot remove its socket.
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", jvm.ns_pid));
    }
    assert!(gone > 0, "every attach ({done}) was faster than the kill");
}

#[test]
fn attaching_again_and_again_costs_the_jvm_nothing() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &[]);
        let jvm = java.jvm();
        let pid = java.pid();
        let (first, mut last) = (attach(&jvm).unwrap(), None);
        let mapped = || {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            maps.lines().filter(|line| line.contains(".jvm-symbols-")).count()
        };
        let agent_mappings = mapped();
        assert!(agent_mappings > 0);
        first.end_lease().unwrap();
        drop(first);
        let mut descriptors = Vec::new();
        for _ in 0..25 {
            let attached = attach(&jvm).unwrap();
            attached.end_lease().unwrap();
            drop(attached);
            descriptors.push(fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count());
            last = descriptors.last().copied();
        }
        assert_eq!(mapped(), agent_mappings, "the library is loaded once");
        let early = descriptors[4];
        assert!(last.unwrap() <= early + 2, "descriptors grow: {descriptors:?}");
        assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
        assert_attaches(&mut java);
    });
}

#[test]
fn a_socket_that_a_cleaner_of_tmp_took_is_made_again() {
    on_each_jdk(|jdk| {
        let mut java = Java::start(jdk, &[]);
        let (jvm, first) = assert_attaches(&mut java);
        first.end_lease().unwrap();
        fs::remove_file(format!("/tmp/.java_pid{}", jvm.ns_pid)).unwrap();
        assert_attaches(&mut java);
        assert_eq!(java.output_since_ready(), Vec::<String>::new(), "a thread dump");
    });
}

#[test]
fn several_jvms_are_attached_to_at_once() {
    let mut javas: Vec<Java> = (0..2).flat_map(|_| jdks()).map(|jdk| Java::start(&jdk, &[])).collect();
    let jvms: Vec<Jvm> = javas.iter().map(Java::jvm).collect();
    thread::scope(|scope| {
        let attaching: Vec<_> = jvms.iter().map(|jvm| scope.spawn(|| attach(jvm))).collect();
        for (attached, java) in attaching.into_iter().zip(&mut javas) {
            read_until(&attached.join().unwrap().unwrap(), |log| log.loads > 10);
            assert!(java.is_alive());
        }
    });
}

#[test]
fn the_log_of_a_jvm_with_little_memory_is_short() {
    const LIMIT: u64 = 512 << 20;
    let Some(group) = Group::with_memory("attach", LIMIT) else { return };
    let mut java = Java::under(&["sh", "-c", &group.script()], &a_jdk(), &[]);
    let (_, attached) = assert_attaches(&mut java);
    let cap = jvm_symbols_log::Header::read(&attached.log).unwrap().cap;
    assert!((1 << 20..=LIMIT / 50).contains(&cap), "{cap}");
}

#[test]
fn a_log_from_the_start_is_found_without_attaching() {
    let agent = scratch("agent").join("agent.so");
    run(["agent", agent.to_str().unwrap()]).success();
    on_each_jdk(|jdk| {
        let java = Java::start(jdk, &[&format!("-agentpath:{}", agent.display())]);
        let jvm = java.jvm();
        let attached = attach(&jvm).unwrap();
        assert_eq!(attached.source, AgentStart::AtStart);
        assert_eq!(JvmRow::of(&jvm, &binary()).names, ExpectedNameSource::AgentAtStart);
        read_until(&attached, |log| log.loads > 10);
        assert!(
            !Path::new(&format!("/tmp/.java_pid{}", jvm.ns_pid)).exists(),
            "its attach listener was not started"
        );
    });
}

#[test]
fn a_lease_is_kept_on_the_clock_of_the_jvm() {
    let java = Java::start(&a_jdk(), &[]);
    let attached = attach(&java.jvm()).unwrap();
    let until = MonoNs(MonoNs::now().0 + 60_000_000_000);
    attached.renew_lease(until).unwrap();
    let header = jvm_symbols_log::Header::read(&attached.log).unwrap();
    assert_eq!(attached.host_time(header.lease_until), until);
    let other_clock = Attached { clock_offset: 5_000, log: attached.log.try_clone().unwrap(), ..attached };
    other_clock.renew_lease(until).unwrap();
    assert_eq!(jvm_symbols_log::Header::read(&other_clock.log).unwrap().lease_until, until.0 + 5_000);
    assert_eq!(other_clock.host_time(until.0 + 5_000), until);
}

/// A pid that no process has: it is above the largest `pid_max`.
const NO_PROCESS: u32 = 4_194_999;

#[test]
fn what_a_killed_profiler_left_is_removed_by_the_next() {
    let mut java = Java::in_own_tmp(&a_jdk());
    let jvm = java.jvm();
    // Files as a killed profiler would leave them, and files that this process must not remove.
    let tmp = tmp_of(&jvm);
    let name = |pid: u32, tail: &str| tmp.join(format!(".jvm-symbols-{pid}-0123456789abcde{tail}.so"));
    let left = name(NO_PROCESS, "f");
    let (of_the_living, foreign) = (name(1, "e"), name(NO_PROCESS, "d"));
    [&left, &of_the_living, &foreign].iter().for_each(|path| fs::write(path, b"x").unwrap());
    std::os::unix::fs::chown(&foreign, Some(NOBODY), Some(NOBODY)).unwrap();
    let trigger = tmp.join(format!(".attach_pid{}", jvm.ns_pid));
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(options.create_new(true).write(true), 0o600)
        .open(&trigger)
        .unwrap();
    assert_attaches(&mut java);
    let found = [&left, &trigger, &of_the_living, &foreign].map(|path| path.exists());
    assert_eq!(found, [false, false, true, true]);
}

#[test]
fn a_profiler_killed_at_any_moment_leaves_a_jvm_that_answers() {
    let mut java = Java::in_own_tmp(&a_jdk());
    let (_crate, module) = module_path!().split_once("::").unwrap();
    for delay in [2_u64, 5, 8, 12, 18, 30] {
        let profiler = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &format!("{module}::attach_endlessly")])
            .env("ATTACH_TO", java.pid().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut profiler = profiler.unwrap();
        let until = Instant::now() + PATIENCE;
        while !has_helper(profiler.id()) {
            assert!(Instant::now() < until, "it does not attach");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(delay));
        profiler.kill().unwrap();
        profiler.wait().unwrap();
    }
    let (jvm, _attached) = assert_attaches(&mut java);
    // Only this JVM has this directory, so the agent's files there are of these profilers.
    let entries = fs::read_dir(tmp_of(&jvm)).unwrap();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let left: Vec<String> = names.filter(|name| name.starts_with(".jvm-symbols-")).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Not a test: the profiler that the test above kills.
#[test]
#[ignore = "started by another test"]
fn attach_endlessly() {
    let Ok(pid) = std::env::var("ATTACH_TO") else { return };
    let jvm = jvm::find(pid.parse().unwrap()).unwrap();
    while let Ok(attached) = attach(&jvm) {
        attached.end_lease().unwrap();
    }
}
