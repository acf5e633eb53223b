//! Hosts that lack something, a profiler that gets no time: errors name what is missing, no sample is lost silently.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use testkit::cgroup::Group;
use testkit::claims::{at_least, at_most, prove};
use testkit::folded::{Folded, has};
use testkit::java::{Jdk, Program};
use testkit::profiler::{self, ALL, Profile, binary, out_file, report_after_ready, with_time};
use testkit::spent::Watch;
use testkit::target::Target;
use testkit::{is_root, native, scratch, sources};

/// The profiler, started by a command that takes something away from it.
fn under(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(binary());
    command
}

#[test]
fn a_kernel_without_types_is_refused() {
    if !is_root() {
        return;
    }
    let empty = scratch("empty");
    let script = format!("mount --bind '{}' /sys/kernel/btf && exec \"$0\" \"$@\"", empty.display());
    let mut command = under(&["unshare", "--mount", "sh", "-c", &script]);
    profiler::finish(command.args(["--all", "-d", "1", "-o", "-"]))
        .refused(3, "BTF")
        .refused(3, "--btf-path");
}

#[test]
fn a_missing_capability_is_named() {
    if !is_root() {
        return;
    }
    for vital in ["bpf", "perfmon"] {
        let mut command = under(&["setpriv", &format!("--bounding-set=-sys_admin,-{vital}")]);
        let name = format!("CAP_{}", vital.to_uppercase());
        profiler::finish(command.args(["--all", "-d", "1", "-o", "-"])).refused(3, &name);
    }
    // Without this capability the run goes on, and a warning says what is lost.
    let target = native::start("native");
    let mut command = under(&["setpriv", "--bounding-set=-sys_ptrace"]);
    command.args(["-p", &target.pid().to_string(), "-d", "100ms", "-o", "-", "--report", "none"]);
    let run = profiler::finish(&mut command).success();
    assert!(run.stderr.contains("CAP_SYS_PTRACE is missing"), "{}", run.stderr);
}

/// Runs the profiler under a seccomp filter like a container runtime's: these system calls fail with this error.
fn without(calls: &[i64], errno: Errno, args: &[&str]) -> profiler::Run {
    filtered(calls.iter().map(|call| (*call, Vec::new())).collect(), errno, args)
}

/// The same, only for calls that match a rule.
fn filtered(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: Errno, args: &[&str]) -> profiler::Run {
    let no = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, no, arch).unwrap().try_into().unwrap();
    // A filter applies to a thread and its children.
    let filtered = || {
        seccompiler::apply_filter(&filter).unwrap();
        profiler::finish(Command::new(binary()).args(args))
    };
    std::thread::scope(|scope| scope.spawn(filtered).join().unwrap())
}

#[test]
fn a_seccomp_filter_is_recognized_by_the_denied_call() {
    if !is_root() {
        return;
    }
    let line = ["--all", "-d", "1", "-o", "-"];
    for (call, name) in [(libc::SYS_bpf, "bpf"), (libc::SYS_perf_event_open, "perf_event_open")] {
        for (errno, words) in
            [(Errno::PERM, ";"), (Errno::ACCESS, ";"), (Errno::NOSYS, ", as if this kernel")]
        {
            let words = format!("the system call is denied: {name}{words}");
            let run = without(&[call], errno, &line).refused(3, &words);
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        }
        let doctor = without(&[call], Errno::PERM, &["doctor"]);
        assert_eq!(doctor.code, Some(3), "{}", doctor.stdout);
        let refused = doctor.stdout.lines().find(|line| line.starts_with("REFUSED")).unwrap();
        assert!(refused.contains(name) && refused.contains("#the-system-call-is-denied"), "{refused}");
    }
}

/// Without `openat2` names are lost, which is a warning; the run goes on.
#[test]
fn a_filter_that_does_not_know_openat2_is_a_warning() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let pid = target.pid().to_string();
    let line = ["-p", &pid, "-F", "2999", "-d", "1", "-o", "-", "--report", "none"];
    let batch = || {
        let run = without(&[libc::SYS_openat2], Errno::NOSYS, &line).success();
        assert!(run.stderr.contains("the system call is denied: openat2, as if"), "{}", run.stderr);
        Folded::parse(&run.stdout)
    };
    // The file is found through its process, which is alive.
    let named = has("main");
    prove(batch, &[at_least(0.9, "stacks with names", named)]);
}

/// The clock cannot be stopped: an error after everything has been sampled.
#[test]
fn sampling_that_fails_late_gives_what_there_is_and_is_a_failure() {
    if !is_root() {
        return;
    }
    // PERF_EVENT_IOC_DISABLE is `_IO('$', 1)`.
    let is_disable = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0x2401).unwrap();
    let rules = BTreeMap::from([(libc::SYS_ioctl, vec![SeccompRule::new(vec![is_disable]).unwrap()])]);
    let (target, out) = (native::start("native"), out_file("folded"));
    let watch = Watch::keep(&[target.pid()]);
    let pid = target.pid().to_string();
    // The error comes in the last window: CPUs are counted in those before.
    let line = ["-p", &pid, "-F", "2999", "-d", "3", "--report", "json", "-o", out.to_str().unwrap()];
    let words = "sampling ended early: stopping the perf events: ";
    let run = filtered(rules, Errno::IO, &line).refused(1, words);
    let profile = profiler::read(&out, serde_json::from_str(&run.stdout).unwrap(), watch.end());
    profile.assert_samples_of(&[target.pid()], profile.folded.total());
    let warnings = profile.report["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().starts_with(words), "{warnings:?}");
}

#[test]
fn few_descriptors_are_enough() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let batch = || {
        // The program has 63 of its own, 34 of them for maps: a map that this run does not need takes one, too.
        let mut command = under(&["prlimit", "--nofile=67"]);
        command.args(["-F", "2999", "-d", "1"]).args(ALL);
        let profile = profile(&mut command, &[target.pid()]);
        let of_target = profile.folded.of_thread(target.pid());
        profile.assert_samples_of(&[target.pid()], of_target.total());
        of_target
    };
    // Which other programs need descriptors at the same time depends on the tests beside this one.
    prove(batch, &[at_most(0.005, "stacks without names", is_nameless)]);
}

/// Whether a stack has a frame without a name.
fn is_nameless(stack: &[String]) -> bool {
    stack.iter().any(|frame| frame.starts_with("[unknown"))
}

/// Runs a prepared profiler to its end; watches the CPU time of these processes.
fn profile(profiler: &mut Command, watched: &[u32]) -> Profile {
    let out = out_file("folded");
    profiler.args(["--report", "json", "-o"]).arg(&out);
    with_time(watched, || {
        let watch = Watch::keep(watched);
        let run = profiler::finish(profiler).success();
        let spent = watch.end();
        profiler::read(&out, serde_json::from_str(&run.stdout).unwrap(), spent)
    })
}

/// A host of 512 CPUs needs more descriptors than the usual 1,024; here the limit is 24, too low for two CPUs.
#[test]
fn a_soft_limit_of_descriptors_is_raised_and_the_command_keeps_it() {
    if !is_root() {
        return;
    }
    let mut command = under(&["prlimit", "--nofile=24:4096"]);
    command.args(["-d", "5", "-o", out_file("folded").to_str().unwrap(), "--report", "none", "--"]);
    let run = profiler::finish(command.args(["sh", "-c", "ulimit -Sn; ulimit -Hn"])).success();
    assert_eq!(run.stdout, "24\n4096\n");
}

/// The kernel keeps the counts until a stopped profiler reads them.
#[test]
fn a_profiler_that_is_stopped_for_seconds_loses_nothing() {
    if !is_root() {
        return;
    }
    let out = out_file("folded");
    let mut profiler = Command::new(binary());
    profiler.args(["-F", "999", "--report", "json", "-o"]).arg(&out).args(["--", "sh", "-c"]);
    profiler.arg("\"$0\" 300; echo ready; exec \"$0\" 2700").arg(native::program("short"));
    let watch = Watch::keep(&[]);
    let mut profiler = Target::start(&mut profiler);
    profiler.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2_500));
    profiler.signal(Signal::CONT);
    let profile = profiler::read(&out, report_after_ready(&mut profiler), watch.end());
    // 3 s of CPU time; two starts and clock reads take some milliseconds of it.
    let work = profile.folded.within("short_lived_work").total();
    let right = profile.by_chance(2_960);
    assert!(right.contains(&work), "{work}:\n{}", profile.folded.top(5));
    assert_eq!(profile.folded.count(|stack| stack[0] == "[lost]"), 0, "{}", profile.folded.top(5));
}

/// Tenants choose the names of their programs, and these reach terminals, pictures and parsers.
#[test]
fn names_of_tenants_steer_no_terminal_and_no_browser() {
    if !is_root() {
        return;
    }
    // The name of the program's file is also the name of the process and, without symbols, of its frames.
    let evil = scratch("evil").join("\x1b[2J;\n<b>&\"x");
    native::copy(&native::program("native"), &evil);
    assert!(Command::new("strip").arg(&evil).status().unwrap().success());
    let target = Target::start(&mut Command::new(&evil));
    let outs = ["svg", "folded", "pb.gz"].map(out_file);
    let pid = target.pid().to_string();
    let mut line = vec!["-vv", "-p", &pid, "-F", "2999", "-d", "1"];
    outs.iter().for_each(|out| line.extend(["-o", out.to_str().unwrap()]));
    let run = profiler::run(line).success();
    let back = out_file("folded");
    let convert = ["convert", outs[2].to_str().unwrap(), back.to_str().unwrap()];
    profiler::run(convert).success();
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (svg, folded) = (text(&outs[0]), text(&outs[1]));
    for text in [&run.stdout, &run.stderr, &svg, &folded, &text(&back)] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
    }
    assert!(
        folded.lines().all(|line| line.starts_with("?[2J")),
        "the name is there, made harmless: {folded}"
    );
    assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;"), "markup is text in the picture");
    assert_eq!(folded, text(&back), "and the same on the way back");
}

/// Command lines and environments hold passwords, and users share profiles.
#[test]
fn secrets_of_processes_are_in_no_output() {
    if !is_root() {
        return;
    }
    let secret = "hunter2-canary";
    let with_secret = |program: &[String]| {
        let mut command = Command::new(&program[0]);
        Target::start(command.args(&program[1..]).env("PASSWORD", secret).arg(secret))
    };
    let native = with_secret(&[native::program("native").to_str().unwrap().to_owned()]);
    let java = with_secret(&Program::new("Shares").args(&["1200"]).host_command(&Jdk::host()));
    let outs = ["svg", "folded", "pb.gz"].map(out_file);
    let pids = format!("{},{}", native.pid(), java.pid());
    let mut line = vec!["-vv", "-p", &pids, "-F", "2999", "-d", "1"];
    outs.iter().for_each(|out| line.extend(["-o", out.to_str().unwrap()]));
    let mut said = Vec::new();
    for report in ["text", "json"] {
        let run = profiler::run(line.iter().copied().chain(["--report", report])).success();
        said.extend([run.stdout.into_bytes(), run.stderr.into_bytes()]);
        for out in &outs[..2] {
            said.push(std::fs::read(out).unwrap());
        }
        said.push(Command::new("gzip").arg("-dc").arg(&outs[2]).output().unwrap().stdout);
    }
    said.extend(["jvms", "doctor"].map(|job| profiler::run([job]).success().stdout.into_bytes()));
    for bytes in said {
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.len() > 100 && !text.contains(secret), "{text}");
    }
}

#[test]
fn ten_thousand_threads_cost_no_descriptors() {
    if !is_root() {
        return;
    }
    let storm = native::start("threads");
    let status = std::fs::read_to_string(format!("/proc/{}/status", storm.pid())).unwrap();
    assert!(status.contains("Threads:\t10001\n"), "{status}");
    let mut threads: HashSet<String> = HashSet::new();
    // On a busy machine few of them run in two seconds.
    for _ in 0..20 {
        let (out, watch) = (out_file("folded"), Watch::keep(&[storm.pid()]));
        let mut command = Command::new(binary());
        command.args(["-F", "2999", "-d", "2", "--per-thread", "--raw-threads", "--report", "json"]);
        let mut profiler = Target::spawn(command.args(["-p", &storm.pid().to_string(), "-o"]).arg(&out));
        let descriptors = format!("/proc/{}/fd", profiler.pid());
        let mut most = 0;
        while profiler.is_alive() {
            most = most.max(std::fs::read_dir(&descriptors).map_or(0, Iterator::count));
            std::thread::sleep(Duration::from_millis(20));
        }
        let profile = profiler::read(&out, report_after_ready(&mut profiler), watch.end());
        profile.assert_samples_of(&[storm.pid()], profile.folded.total());
        assert!((10..200).contains(&most), "{most} descriptors");
        threads.extend(profile.folded.stacks().map(|(stack, _)| stack[1].clone()));
        if threads.len() > 500 {
            return;
        }
    }
    panic!("only {} threads were sampled", threads.len());
}

/// A directory with copies of a program that works like `short`, with thousands of functions and their lines.
fn copies_of_a_large_program(number: u32) -> PathBuf {
    let dir = scratch("large");
    let mut source = format!("#include \"{}\"\n", sources().join("short.c").display());
    for i in 0..3000 {
        source += &format!("int large_{i}(int x)\n{{\n\treturn x * {i} + {};\n}}\n", i % 7);
    }
    let (path, program) = (dir.join("large.c"), dir.join("large"));
    std::fs::write(&path, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-I"]).arg(sources()).arg("-o").arg(&program).arg(path);
    assert!(compiler.status().unwrap().success());
    let copies = scratch("large/copies");
    // Copied by another process: see `native::copy`.
    let copy = "for i in $(seq \"$2\"); do cp \"$0\" \"$1/large-$i\" || exit; done";
    let done =
        Command::new("sh").args(["-c", copy]).arg(&program).arg(&copies).arg(number.to_string()).status();
    assert!(done.unwrap().success());
    copies
}

/// Data of one file does not stay in memory forever: a node's files are larger than its memory.
#[test]
fn little_memory_is_enough_for_many_programs() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::with_memory("little-memory", 96 << 20) else { return };
    let copies = copies_of_a_large_program(300);
    let batch = || {
        let mut command = group.enter(&binary());
        let out = out_file("folded");
        command.args(["-F", "999", "--report", "json", "-o"]).arg(&out);
        // The profiled programs leave the group.
        let all = "echo $$ > \"$0\" && for copy in \"$1\"/*; do \"$copy\" 10; done";
        command.args(["--", "sh", "-c", all]).arg(group.path().join("../cgroup.procs")).arg(&copies);
        let run = profiler::finish(&mut command).success();
        let report = serde_json::from_str(&run.stdout).unwrap();
        let profile = profiler::read(&out, report, Watch::keep(&[]).end());
        let work = profile.folded.keep(|stack| stack[0].starts_with("large-"));
        let programs = work.stacks().map(|(stack, _)| &stack[0]).collect::<HashSet<_>>().len();
        assert!(programs > 290, "{programs} programs");
        work
    };
    let worked = |stack: &[String]| stack.iter().any(|frame| frame == "short_lived_work");
    let claims = [
        // Each program also has samples of the kernel and the loader, at its start and its end.
        at_least(0.8, "stacks in the work of these programs", worked),
        at_most(0.01, "stacks without names", is_nameless),
    ];
    prove(batch, &claims);
    std::fs::remove_dir_all(copies).unwrap();
}
