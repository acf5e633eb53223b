//! Bad input, hostile or broken targets: each gives one clear message, a documented exit code, and harms nothing else.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use testkit::claims::{Tally, at_least, at_most, prove, prove_tallies};
use testkit::java::{FRAME_POINTERS, Jdk, Program};
use testkit::profiler::{
    self, Sampling, binary, has_helper, is_main_thread, out_file, profile, report_after_ready, run,
    until_it_ends, while_sampling, with_time,
};
use testkit::spent::{Watch, cpu_time, spend};
use testkit::target::Target;
use testkit::wald::Claim;
use testkit::{is_root, native, scratch};

/// CPU time that has hundreds of samples.
const A_WHILE: Duration = Duration::from_millis(500);

/// Whether a stack has a frame without a name.
fn is_nameless(stack: &[String]) -> bool {
    stack.iter().any(|frame| frame.starts_with("[unknown"))
}

#[test]
fn a_command_line_that_makes_no_sense_is_a_usage_error() {
    for (line, words) in [
        (vec!["-F", "0"], "--frequency 0: use at least 1"),
        (vec!["-F", "many"], "invalid value 'many' for '--frequency <HZ>'"),
        (vec!["-F", "-9"], "invalid value '-9' for '--frequency <HZ>'"),
        (vec!["-c", "0"], "--count 0: use at least 1 ns"),
        (vec!["-c", "x"], "invalid value 'x' for '--count <N>'"),
        (vec!["-c", "18446744073709551615"], "--count 18446744073709551615: use at most 7 days"),
        (vec!["-F", "99", "-c", "1000000"], "--frequency and --count: use only one"),
        (vec!["-e", "nothing"], "unknown event; known events are cpu, page-faults"),
        (vec!["-e", "cpu,cpu"], "--event: cpu is given twice"),
        (
            vec!["-e", "page-faults", "-F", "99"],
            "--frequency applies to the events cpu and wait; for page-faults use --count N",
        ),
        (vec!["-e", "page-faults", "-c", "0"], "--count 0: use 1 or more"),
        (vec!["-d", "0"], "--duration 0: use more than 0"),
        (vec!["-d", "soon"], "--duration soon: expected a time"),
        (vec!["-o", "picture.bmp"], "--output picture.bmp: unknown extension"),
        (vec!["--minwidth", "-1"], "--minwidth -1: use 0 to 1200 pixels"),
        (vec!["--minwidth", "wide"], "invalid value 'wide' for '--minwidth <PX>'"),
        (vec!["--attach-timeout", "x"], "--attach-timeout x: expected a time in ms, s, m or h"),
        (vec!["--attach-timeout", "0"], "--attach-timeout 0: use more than 0"),
        (vec!["--attach-timeout", "-1"], "--attach-timeout -1: expected a time"),
        (vec!["-C", "x"], "--cpu x: expected a list of CPUs, such as 0-3,8"),
        (vec!["-C", "3-1"], "--cpu 3-1: expected a list"),
        (vec!["--java", "maybe"], "possible values: auto, agent, vm, off"),
        (vec!["--report", "xml"], "possible values: text, json, none"),
        (vec!["--all", "-p", "1"], "pid"),
        (vec!["--no-such-flag"], "no-such-flag"),
    ] {
        run(line).refused(2, words);
    }
}

#[test]
fn ordinary_users_get_a_root_hint() {
    let out = out_file("svg");
    let mut command = Command::new(binary());
    command.args(["--all", "-d", "1", "-o"]).arg(&out);
    if rustix::process::geteuid().is_root() {
        // Other users may be unable to reach the binary's directory.
        let copy = std::env::temp_dir().join(format!("jbpf-prof-hint-{}", std::process::id()));
        native::copy(&binary(), &copy);
        let mut command = Command::new(&copy);
        command.args(["--all", "-d", "1", "-o", "-"]).uid(65_534).gid(65_534).current_dir("/");
        let run = profiler::finish(&mut command);
        std::fs::remove_file(copy).unwrap();
        run.refused(3, "root");
    } else {
        profiler::finish(&mut command).refused(3, "root");
    }
}

#[test]
fn what_does_not_exist_is_gone() {
    if !is_root() {
        return;
    }
    // The pid is above the largest `pid_max`.
    run(["-p", "4194999", "-d", "1", "-o", "-"]).refused(4, "4194999");
    // No kernel can be built for so many CPUs.
    run(["-C", "0,9999", "-d", "1", "-o", "-"]).refused(4, "CPU 9999 is not online");
}

#[test]
fn a_process_that_ends_ends_the_run_with_what_there_is() {
    if !is_root() {
        return;
    }
    let mut target = Target::spawn(Command::new(native::program("short")).arg("1000"));
    // The program goes on when it is sampled.
    target.signal(Signal::STOP);
    wait_until("it is stopped", || is_stopped(&target));
    let before = cpu_time(target.pid()).unwrap();
    let pid = target.pid().to_string();
    let profile = until_it_ends(&["-p", &pid], || target.signal(Signal::CONT));
    assert!(target.wait().success());
    let work = profile.folded.within("short_lived_work").total();
    let right = profile.by_chance(990 - before.as_millis() as u64);
    assert!(right.contains(&work), "{work}, not {right:?}:\n{}", profile.folded.top(5));
}

#[test]
fn a_command_that_cannot_be_run_is_refused() {
    if !is_root() {
        return;
    }
    let (out, text) = (out_file("folded"), testkit::sources().join("target.h"));
    for command in ["no-such-command", text.to_str().unwrap()] {
        run(["-o", out.to_str().unwrap(), "--", command]).refused(4, &format!("cannot run {command}: "));
        assert!(!out.exists());
    }
}

#[test]
fn outputs_that_cannot_be_written_fail_before_sampling() {
    if !is_root() {
        return;
    }
    let dir = scratch("unwritable");
    let picture = dir.join("is-a-directory.svg");
    std::fs::create_dir_all(&picture).unwrap();
    for out in [picture, dir.join("no-such-directory/x.svg"), "/proc/x.svg".into()] {
        // A run that samples by mistake would take an hour.
        run(["--all", "-d", "3600", "-o", out.to_str().unwrap()]).refused(1, out.to_str().unwrap());
    }
}

#[test]
fn a_full_disk_leaves_no_half_file() {
    if !is_root() {
        return;
    }
    let target = native::start("unique");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.folded");
    std::fs::write(&out, "from an earlier run\n").unwrap();
    // Files may have at most 8 blocks of 512 bytes. The shell ignores SIGXFSZ, so the write fails instead.
    let script = "ulimit -f 8; trap '' XFSZ; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(binary());
    command.args(["-p", &target.pid().to_string(), "-F", "2999", "-d", "1", "-o"]).arg(&out);
    profiler::finish(&mut command).refused(1, "x.folded");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "from an earlier run\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
}

/// The kernel reports the full disk only when no block is left.
#[test]
fn a_disk_that_fills_up_leaves_no_half_file() {
    if !is_root() {
        return;
    }
    let target = native::start("unique");
    let disk = scratch("disk");
    // A hundred stacks are too many for this disk.
    let script = "mount -t tmpfs -o size=16k none \"$0\" && cd \"$0\" && echo earlier > x.folded && \"$@\"; code=$?; ls -A; cat x.folded; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(disk).arg(binary());
    let pid = target.pid().to_string();
    let line = ["-p", &pid, "-F", "2999", "-d", "1", "--report", "none", "-o"];
    let run = profiler::finish(command.args(line).arg("x.folded"));
    assert_eq!(run.stdout, "x.folded\nearlier\n", "{}", run.stderr);
    run.refused(1, "x.folded: No space left on device");
    let script = "exec \"$@\" > /dev/full";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(binary()).args(line).arg("-");
    profiler::finish(&mut command).refused(1, "No space left on device");
}

/// The profiler restarts a worker that was killed, and repeats the queries that this worker had not answered.
#[test]
fn a_killed_worker_costs_no_names() {
    if !is_root() {
        return;
    }
    let batch = || {
        let (first, second) = (native::start("native"), native::start("unique"));
        second.signal(Signal::STOP);
        let pids = format!("{},{}", first.pid(), second.pid());
        let sampling = Sampling::begin(&["-v", "-p", &pids]);
        let watch = Watch::keep(&[first.pid(), second.pid()]);
        spend(first.pid(), A_WHILE);
        // The worker has named the stacks of a window.
        sampling.wait_for("taken in within");
        let workers = profiler::children_as(sampling.pid(), "__worker");
        assert!(!workers.is_empty());
        for worker in workers {
            kill_process(Pid::from_raw(worker.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        }
        // `second` was stopped until now, so the profiler has not asked for its names yet.
        second.signal(Signal::CONT);
        for target in [&first, &second] {
            spend(target.pid(), A_WHILE);
        }
        sampling.signal(Signal::INT);
        let profile = sampling.end(watch);
        for (target, name) in [(&first, "native"), (&second, "unique")] {
            profile.assert_samples_of(&[target.pid()], profile.folded.count(|stack| stack[0] == name));
        }
        let warnings = profile.report["warnings"].to_string();
        assert!(warnings.contains("symbol worker crashed or timed out"), "{warnings}");
        profile.folded
    };
    prove(batch, &[at_most(0.005, "stacks without names", is_nameless)]);
}

#[test]
fn closed_standard_output_is_a_quiet_end() {
    if !is_root() {
        return;
    }
    let target = native::start("unique");
    let script = "\"$@\" | head -n 1";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script, "bash"]).arg(binary());
    command.args(["-p", &target.pid().to_string(), "-F", "2999", "-d", "1", "-o", "-", "--report", "none"]);
    let run = profiler::finish(&mut command);
    assert!(run.stdout.starts_with("unique;") && run.stdout.lines().count() == 1, "{}", run.stdout);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

#[test]
fn interrupted_it_writes_what_there_is() {
    if !is_root() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let out = out_file("folded");
        // A command starts after sampling has begun; its `ready` says that there are samples to write.
        let mut profiler = Command::new(binary());
        profiler.args(["-F", "999", "--report", "json", "-o"]).arg(&out).args(["--", "sh", "-c"]);
        profiler.arg("\"$0\" 300; exec \"$1\"").arg(native::program("short")).arg(native::program("native"));
        let watch = Watch::keep(&[]);
        let mut profiler = Target::start(&mut profiler);
        profiler.signal(signal);
        let profile = profiler::read(&out, report_after_ready(&mut profiler), watch.end());
        // `short` works for 300 ms of CPU time; startup and clock reads take a few of them.
        let work = profile.folded.within("short_lived_work").total();
        assert!(profile.by_chance(295).contains(&work), "{signal:?}: {work}\n{}", profile.folded.top(5));
    }
}

/// A terminal sends SIGINT to the profiler's children too, and they must still symbolize what was sampled.
#[test]
fn ctrl_c_in_a_terminal_costs_no_names() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").start(&Jdk::host());
    let pid = target.pid().to_string();
    let batch = || {
        let profile = while_sampling(&[], &["-p", &pid], || spend(target.pid(), A_WHILE));
        assert_eq!(profile.report["warnings"], serde_json::json!([]));
        assert_eq!(jvm(&profile.report)["log_cut"], false, "{}", profile.report["jvms"]);
        profile.folded
    };
    prove(batch, &[at_most(0.1, "stacks without names", is_nameless)]);
}

/// Longer than `ENDS_WITHIN`, so that only the signal can end a wait in time.
const ATTACH_TIMEOUT: [&str; 2] = ["--attach-timeout", "600"];
/// How long a run may take after Ctrl-C: any machine is faster if nothing waits for the timeout.
const ENDS_WITHIN: Duration = Duration::from_secs(200);

/// Files in `/tmp` of a profiler with this pid, and of any profiler that attaches to this JVM.
fn traces(profiler: u32, jvm: u32) -> Vec<String> {
    let (trigger, agent) = (format!(".attach_pid{jvm}"), format!(".jvm-symbols-{profiler}-"));
    let names = std::fs::read_dir("/tmp").unwrap().map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| *name == trigger || name.starts_with(&agent))
        .collect()
}

/// Waits for a condition.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process is stopped. A signal needs a moment to arrive.
fn is_stopped(target: &Target) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
    stat.rsplit_once(')').unwrap().1.starts_with(" T")
}

/// A JVM that answers no other client while the returned connection is open: HotSpot serves one client at a time, and
/// this client sends nothing.
fn held_up(jdk: &Jdk) -> (Target, UnixStream) {
    let target = Program::new("Shares").start(jdk);
    let pid = target.pid().to_string();
    let jcmd = Command::new(jdk.home().unwrap().join("bin/jcmd")).args([&pid, "VM.version"]).output();
    assert!(jcmd.unwrap().status.success(), "the JVM listens now");
    (target, UnixStream::connect(format!("/tmp/.java_pid{pid}")).unwrap())
}

#[test]
fn ctrl_c_ends_an_attach_that_is_not_answered() {
    if !is_root() {
        return;
    }
    let (mut target, silent) = held_up(&Jdk::host());
    let pid = target.pid().to_string();
    let out = out_file("folded");
    let mut profiler = Command::new(binary());
    profiler.process_group(0).args(["--report", "json", "-p", &pid]).args(ATTACH_TIMEOUT);
    let mut profiler = Target::spawn(profiler.arg("-o").arg(&out));
    let of_run = || traces(profiler.pid(), target.pid());
    wait_until("the agent is put there", || !of_run().is_empty());
    let begun = Instant::now();
    kill_process_group(Pid::from_raw(profiler.pid().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let left = profiler.pid();
    let report = report_after_ready(&mut profiler);
    assert!(begun.elapsed() < ENDS_WITHIN, "{:?}", begun.elapsed());
    assert_eq!(traces(left, target.pid()), Vec::<String>::new());
    assert_eq!(jvm(&report)["names"]["refused"]["label"], "interrupted", "{}", report["jvms"]);
    assert_eq!(report["warnings"], serde_json::json!([]));
    assert!(out.exists(), "what there is is written");
    // The JVM reads the request of the profiler that has ended, and then serves the next client.
    drop(silent);
    let again = profile(&target, 1, &[]);
    assert!(jvm(&again.report)["names"]["agent_late"].is_object(), "{}", again.report["jvms"]);
    assert!(target.is_alive());
}

#[test]
fn a_jvm_that_has_just_begun_does_not_hold_up_the_end() {
    if !is_root() {
        return;
    }
    let program = Program::new("Shares").paused();
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).args(program.host_command(&Jdk::host()));
    let target = Target::spawn(&mut shell);
    wait_until("the shell stops itself", || is_stopped(&target));
    let pid = target.pid().to_string();
    let sampling = Sampling::begin(&[["-p", &pid], ATTACH_TIMEOUT].concat());
    target.signal(Signal::CONT);
    wait_until("a helper is started for it", || has_helper(sampling.pid()));
    let begun = Instant::now();
    sampling.signal(Signal::TERM);
    let left = sampling.pid();
    let profile = sampling.end(Watch::keep(&[]));
    assert!(begun.elapsed() < ENDS_WITHIN, "{:?}", begun.elapsed());
    assert_eq!(traces(left, target.pid()), Vec::<String>::new());
    assert_eq!(jvm(&profile.report)["names"]["refused"]["label"], "interrupted", "{}", profile.report);
}

/// The only row of `jvms` in the report.
fn jvm(report: &Value) -> &Value {
    assert_eq!(report["jvms"].as_array().map(Vec::len), Some(1), "{}", report["jvms"]);
    &report["jvms"][0]
}

#[test]
fn jvms_that_refuse_are_left_alone_and_named() {
    if !is_root() {
        return;
    }
    for (flag, label) in [
        ("-XX:+DisableAttachMechanism", "attach disabled"),
        ("-XX:-EnableDynamicAgentLoading", "agent loading disabled"),
    ] {
        let mut target = Program::new("Shares").flags(&[flag]).start(&Jdk::host());
        let has_no_agent = |stack: &[String]| stack.iter().any(|frame| frame == "[unknown: no agent]");
        let read = profile(&target, 1, &[]);
        let row = jvm(&read.report);
        assert!(row["names"]["memory"].is_object() && row["no_agent"]["label"] == label, "{row}");
        assert_eq!(read.folded.count(has_no_agent), 0, "{}", read.folded.top(5));
        let batch = || {
            let line = ["--java", "agent", "--per-thread"];
            let profile = with_time(&[target.pid()], || profile(&target, 1, &line));
            let refused = &jvm(&profile.report)["names"]["refused"];
            assert_eq!(refused["label"], label, "{}", profile.report["jvms"]);
            assert!(refused["hint"].as_str().is_some_and(|hint| hint.contains("--java auto")), "{refused}");
            // The JVM is profiled nevertheless, without Java names.
            profile.assert_samples_of(&[target.pid()], profile.folded.total());
            profile.folded
        };
        // How much the JVM's compiler threads work is a matter of the machine.
        prove(batch, &[at_least(0.9, "stacks without Java names", has_no_agent).among(is_main_thread)]);
        assert!(target.is_alive());
        assert_eq!(target.lines(), ["ready"], "nothing was printed by the JVM");
    }
}

#[test]
fn without_the_agent_a_jvm_is_not_touched() {
    if !is_root() {
        return;
    }
    let mut target = Program::new("Shares").start(&Jdk::host());
    let profile = profile(&target, 1, &["--java", "off"]);
    assert_eq!(jvm(&profile.report)["names"], "off");
    assert_eq!(of_attaching(target.pid()), Vec::<String>::new());
    assert!(target.is_alive());
    assert_eq!(target.lines(), ["ready"], "nothing was printed by the JVM");
    // `of_attaching` does see the traces of an attach.
    self::profile(&target, 1, &[]);
    assert!(of_attaching(target.pid()).iter().any(|trace| trace.contains("jvm-symbols")));
}

/// The traces of an attach: the agent's mappings and descriptors, HotSpot's socket, and the trigger file.
fn of_attaching(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let files = files.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string()));
    let sockets = [format!("/tmp/.java_pid{pid}"), format!("/tmp/.attach_pid{pid}")];
    let sockets = sockets.into_iter().filter(|path| std::path::Path::new(path).exists());
    let is_ours = |text: &String| text.contains("jvm-symbols") || text.contains("memfd:");
    maps.lines().map(str::to_owned).chain(files).filter(is_ours).chain(sockets).collect()
}

#[test]
fn a_jvm_without_frame_pointers_is_reported_and_has_whole_stacks() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").without(FRAME_POINTERS).start(&Jdk::host());
    prove_tallies(&[("Java stacks without a root".to_owned(), Claim::AtMost(0.02))], || {
        let profile = profile(&target, 1, &[]);
        let jvm = jvm(&profile.report);
        assert_eq!((&jvm["frame_pointers"], &jvm["undescribed"]), (&false.into(), &Value::Null));
        let ticks = |name: &str| jvm[name].as_u64().unwrap();
        vec![Tally { hits: ticks("rootless_ticks"), samples: ticks("java_ticks") }]
    });
}

#[test]
fn a_stopped_jvm_does_not_delay_others() {
    if !is_root() {
        return;
    }
    let mut stopped = Program::new("Shares").start(&Jdk::host());
    let busy = native::start("native");
    stopped.signal(Signal::STOP);
    wait_until("the JVM is stopped", || is_stopped(&stopped));
    let pids = format!("{},{}", stopped.pid(), busy.pid());
    let profile = profiler::record_watching(&[busy.pid()], 1, &["-p".to_owned(), pids]);
    let row = jvm(&profile.report);
    assert!(row["names"]["memory"].is_object() && row["no_agent"]["label"] == "stopped", "{row}");
    profile.assert_samples_of(&[busy.pid()], profile.folded.count(|stack| stack[0] == "native"));
    stopped.signal(Signal::CONT);
    assert!(stopped.is_alive());
}

#[test]
fn a_jvm_survives_being_attached_to_while_it_starts() {
    if !is_root() {
        return;
    }
    for _ in 0..4 {
        let mut target = Program::new("Shares").spawn(&Jdk::host());
        let run = run(["-p", &target.pid().to_string(), "-d", "100ms", "-o", "-", "--report", "none"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        target.wait_for(|line| line == "ready");
    }
}

/// Scripts prepare something and then execute `java`: the process is old, but its JVM is new.
#[test]
fn a_jvm_that_a_shell_becomes_is_not_judged_before_it_is_linked() {
    if !is_root() {
        return;
    }
    let slow = native::library(&scratch("slow-link"), "slow_link", &[]);
    let out = out_file("folded");
    let mut profiler = Command::new(binary());
    profiler.args(["-F", "999", "--report", "json", "-o"]).arg(&out).args(["--", "sh", "-c"]);
    profiler.arg("sleep 3.2; LD_AUDIT=\"$0\" exec \"$@\"").arg(slow);
    profiler.args(Program::new("Shares").host_command(&Jdk::host()));
    let report = report_after_ready(&mut Target::start(&mut profiler));
    let profile = profiler::read(&out, report, Watch::keep(&[]).end());
    let linking = profile.folded.within("la_objopen").total();
    assert!(linking > 1_000, "{linking} samples while it is linked:\n{}", profile.folded.top(5));
    let names = &jvm(&profile.report)["names"];
    assert!(names["refused"].is_null() && names.is_object(), "{names}");
}

#[test]
fn a_jvm_that_dies_during_the_attach_is_only_a_line_in_the_report() {
    if !is_root() {
        return;
    }
    let (jdk, other) = (Jdk::host(), native::start("native"));
    let (target, silent) = held_up(&jdk);
    let pids = format!("{},{}", target.pid(), other.pid());
    let watch = Watch::keep(&[other.pid()]);
    let out = out_file("folded");
    let mut profiler = Command::new(binary());
    profiler.args(["-F", "2999", "-d", "2", "--report", "json", "-p", &pids]).args(ATTACH_TIMEOUT);
    let mut profiler = Target::spawn(profiler.arg("-o").arg(&out));
    wait_until("the agent is put there", || !traces(profiler.pid(), target.pid()).is_empty());
    let left = (profiler.pid(), target.pid());
    drop(target);
    let profile = profiler::read(&out, report_after_ready(&mut profiler), watch.end());
    drop(silent);
    profile.assert_samples_of(&[other.pid()], profile.folded.count(|stack| stack[0] == "native"));
    assert_eq!(jvm(&profile.report)["names"]["refused"]["label"], "exited", "{}", profile.report["jvms"]);
    assert_eq!(traces(left.0, left.1), Vec::<String>::new());
}
