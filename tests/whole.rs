//! The profiler on real programs: accounts, selections, commands, hostile neighbours.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs::File;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use testkit::folded::{Folded, bare, is, reaches_root, user_leaf};
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{self, Sampling, lost, profile, profile_enough, record, record_watching};
use testkit::spent::{Watch, cpu_time};
use testkit::target::Target;
use testkit::{assert_share, is_root, native};

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|a| (*a).to_owned()).collect()
}

/// Asserts that each tick is kept, filtered, or lost for a reason, and that the output sums to kept and lost.
fn assert_accounts(report: &Value, shown: u64) {
    let accounts = &report["accounts"];
    let n = |name: &str| accounts[name].as_u64().unwrap_or_else(|| panic!("{name} in {accounts}"));
    let lost = lost(report);
    assert!(n("ticks") > 0, "{accounts}");
    assert_eq!(n("ticks"), n("filtered") + n("kept") + lost, "{accounts}");
    assert_eq!(n("expected"), n("ticks") + n("missed"), "{accounts}");
    assert_eq!(shown, n("kept") + lost, "the folded file sums to what was kept and lost: {accounts}");
}

#[test]
fn the_whole_machine_adds_up() {
    if !is_root() {
        return;
    }
    // These names are unique: other JVMs may run on this machine.
    let own = |name: &str, program: &[String]| {
        let link = testkit::scratch("own-names").join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&program[0], &link).unwrap();
        Target::start(Command::new(link).args(&program[1..]))
    };
    let java = own("whole-java", &Program::new("Shares").host_command(&Jdk::host()));
    let native = own("whole-native", &[native::program("native").to_str().unwrap().to_owned()]);
    let profile = record_watching(&[java.pid(), native.pid()], 3, &args(&["--all"]));
    assert_accounts(&profile.report, profile.folded.total());
    for (name, target) in [("whole-java", &java), ("whole-native", &native)] {
        profile.assert_samples_of(&[target.pid()], profile.folded.count(|stack| stack[0] == name));
    }
    let java = profile.folded.keep(|stack| stack[0] == "whole-java");
    assert!(java.within("Shares.round").total() * 10 > java.total() * 9, "{}", java.top(10));
}

/// Missed ticks must not hide lost ones: a busy CPU ticks as often as its event counts, except for the time that the
/// host steals.
#[test]
fn cpus_that_work_miss_no_ticks() {
    if !is_root() {
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let pinned = |cpu: usize| {
        Target::start(Command::new("taskset").arg("-c").arg(cpu.to_string()).arg(native::program("native")))
    };
    let all: Vec<Target> = (0..cpus).map(pinned).collect();
    let profile = record(3, &args(&["--all"]));
    let [expected, ticks, missed] = ["expected", "ticks", "missed"].map(|name| profile.account(name) as f64);
    assert_eq!(expected, ticks + missed);
    assert!(expected > 2_900.0 * cpus as f64, "{expected} on {cpus} CPUs");
    let stolen = profile.report["steal"].as_f64().unwrap() * expected;
    assert!(missed < 0.02 * expected + stolen, "{missed} of {expected} missed, {stolen} stolen");
    drop(all);
}

#[test]
fn selected_processes_only() {
    if !is_root() {
        return;
    }
    let (one, two, other) = (native::start("native"), native::start("kernel"), native::start("unique"));
    let both =
        record_watching(&[one.pid(), two.pid()], 2, &args(&["-p", &format!("{},{}", one.pid(), two.pid())]));
    assert_accounts(&both.report, both.folded.total());
    for (name, target) in [("native", &one), ("kernel", &two)] {
        both.assert_samples_of(&[target.pid()], both.folded.count(|stack| stack[0] == name));
    }
    assert_eq!(
        both.folded.count(|stack| stack[0] != "native" && stack[0] != "kernel"),
        0,
        "{}",
        both.folded.top(10)
    );
    drop(other);
}

#[test]
fn user_or_kernel_frames_only() {
    if !is_root() {
        return;
    }
    let target = native::start("kernel");
    let user = profile(&target, 2, &["-U"]);
    // Each sample in the kernel keeps its user frames, so the code that called the kernel is there.
    user.assert_samples_of(&[target.pid()], user.folded.total());
    let kernel_frame = |frame: &String| frame.ends_with("_[k]");
    assert_eq!(user.folded.count(|stack| stack.iter().any(kernel_frame)), 0, "{}", user.folded.top(10));
    let kernel = profile(&target, 2, &["-K"]);
    assert_eq!(kernel.folded.count(|s| !s[1..].iter().all(kernel_frame)), 0, "{}", kernel.folded.top(10));
    // The program is nearly always in the kernel.
    let (least, _) = kernel.ticks_of(&[target.pid()]);
    assert!(kernel.folded.total() as f64 > least * 0.9, "{least}:\n{}", kernel.folded.top(10));
}

#[test]
fn a_command_is_profiled_from_its_first_instruction() {
    if !is_root() {
        return;
    }
    let short = native::program("short");
    let profile = record(20, &args(&["--", short.to_str().unwrap(), "1000"]));
    assert_accounts(&profile.report, profile.folded.total());
    // The program uses a second of CPU time at 999 Hz; startup and clock reads take a few milliseconds of it.
    let work = profile.folded.within("short_lived_work").total();
    let right = profile.by_chance(985);
    assert!(right.contains(&work), "{work} samples of a second's work:\n{}", profile.folded.top(10));
    assert!(profile.report["duration_s"].as_f64().unwrap() < 19.0, "the run ends with the command");
}

#[test]
fn a_program_that_was_executed_from_memory_has_its_names() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    if !is_root() {
        return;
    }
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut memory = std::fs::File::from(memory);
    memory.write_all(&std::fs::read(native::program("native")).unwrap()).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let target = Target::start(&mut Command::new(path));
    let folded = profile(&target, 2, &[]).folded;
    let named = folded.share(|stack| user_leaf(stack).is_some_and(|leaf| leaf.starts_with("burn")));
    assert!(folded.total() > 50 && named > 0.95, "{named}:\n{}", folded.top(10));
}

#[test]
fn functions_of_a_stripped_program_are_distinct() {
    if !is_root() {
        return;
    }
    let full = native::program("native");
    let stripped = full.with_file_name("stripped");
    assert!(Command::new("strip").arg("-o").arg(&stripped).arg(&full).status().unwrap().success());
    let symbols = Command::new("nm").arg(&full).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let target = Target::start(&mut Command::new(&stripped));
    let folded = profile_enough(&target, &[], |all| all);
    // GCC may clone a function that has constant arguments: `burn10.constprop.0`.
    for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
        let line = symbols.lines().find(|l| l.contains(name)).unwrap();
        let place = format!("stripped!fun_{}", line.split(' ').next().unwrap().trim_start_matches('0'));
        assert_share(&place, folded.self_share(&place), truth, folded.total());
    }
    let profile = profile(&target, 2, &[]);
    let rows = profile.report["stripped"].as_array().unwrap();
    let row = rows.iter().find(|row| row["path"].as_str() == stripped.to_str()).unwrap();
    assert!(row["self"].as_u64().unwrap() * 10 > profile.folded.total() * 9, "{row}");
}

#[test]
fn a_neighbour_without_two_equal_stacks_costs_others_nothing() {
    if !is_root() {
        return;
    }
    let hostile = [native::start("unique"), native::start("unique")];
    let victim = native::start("native");
    let [one, two] = &hostile;
    let profile = record_watching(&[one.pid(), two.pid(), victim.pid()], 5, &args(&["--all"]));
    assert_accounts(&profile.report, profile.folded.total());
    let own = profile.folded.keep(|stack| stack[0] == "unique");
    profile.assert_samples_of(&[one.pid(), two.pid()], own.total());
    assert!(
        own.stacks().count() as u64 * 10 > own.total() * 9,
        "the neighbours' stacks are not all different"
    );
    let lost = profile.folded.count(|stack| stack[0] == "[lost]");
    let ticks = profile.folded.total();
    assert!(lost * 100 < ticks, "{lost} of {ticks} ticks are lost");
    profile.assert_samples_of(&[victim.pid()], profile.folded.count(|stack| stack[0] == "native"));
}

#[test]
fn two_profilers_at_once_are_both_right() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let pid = target.pid();
    let line = args(&["-p", &pid.to_string()]);
    let profiles = std::thread::scope(|scope| {
        let runs = [0, 1].map(|_| scope.spawn(|| record_watching(&[pid], 4, &line)));
        runs.map(|run| run.join().unwrap())
    });
    for profile in profiles {
        assert_accounts(&profile.report, profile.folded.total());
        profile.assert_samples_of(&[pid], profile.folded.total());
        let round = profile.folded.within("Shares.round");
        assert!(round.total() * 10 > profile.folded.total() * 9, "{}", profile.folded.top(10));
        let burning = round.share(|stack| {
            user_leaf(stack)
                .is_some_and(|leaf| bare(leaf).starts_with("Shares.burn") && leaf.ends_with("_[j]"))
        });
        assert!(burning > 0.98, "{}", round.top(10));
    }
}

#[test]
fn every_output_at_once_and_all_of_them_whole() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let outs = ["svg", "folded", "pb.gz"].map(profiler::out_file);
    let mut line = args(&["-p", &target.pid().to_string(), "-d", "2"]);
    for out in &outs {
        line.extend(["-o".to_owned(), out.to_str().unwrap().to_owned()]);
    }
    let run = profiler::run(&line).success();
    let svg = std::fs::read_to_string(&outs[0]).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("burn40"));
    assert!(std::fs::read_to_string(&outs[1]).unwrap().contains("burn40"));
    assert_eq!(&std::fs::read(&outs[2]).unwrap()[..2], &[0x1f, 0x8b], "gzip");
    assert!(
        run.stderr.contains("burn40") || run.stdout.contains("burn40"),
        "the report names the hottest: {}",
        run.stderr
    );
}

#[test]
fn verbose_log_has_each_stage() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let (pid, out) = (target.pid().to_string(), profiler::out_file("svg"));
    let line = ["-p", &pid, "-d", "1", "--report", "none", "-o", out.to_str().unwrap()];
    assert_eq!(profiler::run(line).success().stderr, "", "it is quiet by itself");
    for (how, windows) in [(&["-v"][..], false), (&["-vv"], true), (&["--log-level", "debug"], true)] {
        let said = profiler::run(line.iter().chain(how)).success().stderr;
        for stage in ["capture: ", "symbols: ", "processes: ", "sampling: ", "output: "] {
            assert!(said.contains(stage), "{how:?}: the log has no line of {stage}\n{said}");
        }
        assert_eq!(said.contains("window 1: "), windows, "{said}");
        assert!(said.lines().all(|line| line.starts_with('[')), "{said}");
    }
    profiler::run(["-v", "-q"]).refused(2, "--quiet");
}

/// A profile has samples of the profiler itself only with `--include-self`.
#[test]
fn the_profiler_leaves_itself_out_unless_asked() {
    if !is_root() {
        return;
    }
    let native = native::start("native");
    let own_ticks = |more: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.folded");
        let mut command = Command::new(profiler::binary());
        command.args(["--all", "-F", "4999", "-d", "3", "--report", "json", "-o"]).arg(&path).args(more);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let child = command.spawn().unwrap();
        let pid = u64::from(child.id());
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = report["processes"].as_array().unwrap();
        let ticks_of = |pid: u64| {
            rows.iter()
                .filter(|row| row["pids"].as_array().unwrap().iter().any(|p| p.as_u64() == Some(pid)))
                .map(|row| row["ticks"].as_u64().unwrap())
                .sum::<u64>()
        };
        assert!(ticks_of(native.pid().into()) > 0, "the other process is in it");
        ticks_of(pid)
    };
    assert_eq!(own_ticks(&[]), 0);
    assert!(own_ticks(&["--include-self"]) > 0);
}

/// The number after a label in the text report, 0 if the label is missing. Commas separate thousands.
fn row(text: &str, label: &str) -> u64 {
    let row = text.lines().find_map(|line| line.strip_prefix(label));
    let number = row.and_then(|row| row.split_whitespace().next());
    number.map_or(0, |number| number.replace(',', "").parse().unwrap())
}

/// Milliseconds that all CPUs were idle since boot: `idle` and `iowait` of proc(5).
fn idle_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let times: Vec<u64> = stat.lines().next().unwrap().split_whitespace().flat_map(str::parse).collect();
    (times[3] + times[4]) * 1000 / rustix::param::clock_ticks_per_second()
}

/// Repeats a run, up to five times, while its number of idle samples (the second value) is 0. On a busy machine no CPU
/// may ever be idle; the test then checks less.
fn until_idle<T>(run: impl Fn() -> (T, u64)) -> T {
    let mut runs = (0..5).map(|_| run());
    let (mut last, mut idle) = runs.next().unwrap();
    while idle == 0 {
        let Some(next) = runs.next() else { break };
        (last, idle) = next;
    }
    last
}

#[test]
fn idleness_is_hidden_unless_asked_for() {
    if !is_root() {
        return;
    }
    let two_seconds = || std::thread::sleep(std::time::Duration::from_secs(2));
    for (how, is_shown) in [(&["--all"][..], false), (&["--all", "--idle"], true)] {
        let (profile, idle, shown, hidden) = until_idle(|| {
            let before = idle_ms();
            let profile = profiler::while_sampling(&[], how, two_seconds);
            let shown = profile.folded.count(|stack| stack[0] == "[idle]");
            let hidden = profile.report["idle"].as_u64().unwrap();
            ((profile, idle_ms().saturating_sub(before), shown, hidden), shown + hidden)
        });
        assert_accounts(&profile.report, profile.folded.total());
        assert!(hidden <= profile.account("filtered"), "what is hidden is not asked for: {hidden}");
        assert_eq!(if is_shown { hidden } else { shown }, 0, "{how:?}");
        // Each idle millisecond has one tick, except before sampling begins and after it ends.
        assert!(shown + hidden <= idle + idle / 4 + 100, "{shown} {hidden} idle ticks in {idle} ms");
        let of_pid_0 = |row: &&Value| row["pids"] == serde_json::json!([0]);
        let rows = profile.report["processes"].as_array().unwrap().iter().filter(of_pid_0);
        for name in rows.map(|row| row["name"].as_str().unwrap()) {
            assert!(["[idle]", "[interrupts while idle]"].contains(&name), "{name}");
        }
        // The report has the stop reason of each stack in the profile.
        let ends = profile.report["ends"].as_array().unwrap();
        let ends: u64 = ends.iter().map(|end| end[1].as_u64().unwrap()).sum();
        assert_eq!(ends, profile.account("kept"));
    }
}

#[test]
fn rows_of_the_report_add_up() {
    if !is_root() {
        return;
    }
    let out = profiler::out_file("folded");
    for how in [&["--all"][..], &["--all", "--idle"], &["--all", "--idle", "-X", "[idle]"]] {
        let text = until_idle(|| {
            let line = ["-F", "1999", "-d", "2", "-o", out.to_str().unwrap()];
            let text = profiler::run(line.iter().chain(how)).success().stdout;
            let folded = Folded::parse(&std::fs::read_to_string(&out).unwrap());
            let shown = folded.count(|stack| stack[0] == "[idle]");
            let idle = shown + row(&text, "  idle CPUs");
            (text, if how.contains(&"-X") { 1 } else { idle })
        });
        let rows =
            ["  in the profile", "  idle CPUs", "  not asked for", "  lost"].map(|label| row(&text, label));
        assert_eq!(rows.iter().sum::<u64>(), row(&text, "Ticks"), "{how:?}\n{text}");
    }
}

#[test]
fn what_the_report_says_of_stacks_is_said_of_those_in_the_profile() {
    if !is_root() {
        return;
    }
    let target = native::start("anonymous");
    let unknown = "[unknown: anonymous code]";
    for (how, named) in [(["-I", "burn"], true), (["-X", "burn"], false), (["-X", unknown], true)] {
        let profile = profile(&target, 2, &how);
        let folded = &profile.folded;
        assert_accounts(&profile.report, folded.total());
        assert!(folded.total() > 50, "{how:?}: {}", folded.total());
        assert!(profile.account("filtered") > 50, "the others were filtered: {how:?}");
        let (burns, unknowns) = (folded.within("burn").total(), folded.within(unknown).total());
        let share = |part: u64| part as f64 / folded.total() as f64;
        let right = if named { share(burns) } else { share(unknowns) };
        assert!(right > 0.95, "{how:?}\n{}", folded.top(10));
        assert_eq!(if named { unknowns } else { burns }, 0, "{how:?}\n{}", folded.top(10));
        let found = &profile.report["unknown"];
        let rows = found["rows"].as_array().unwrap();
        let leaves: u64 = rows.iter().map(|row| row["leaves"].as_u64().unwrap()).sum();
        let seen = folded.count(|stack| stack.last().is_some_and(|leaf| leaf.starts_with("[unknown: ")));
        assert_eq!(leaves, seen, "{how:?}: {found}");
        let user: u64 = folded.stacks().map(|(stack, n)| n * user_frames(stack)).sum();
        assert_eq!(found["user_frames"], user, "{how:?}\n{}", folded.top(10));
        let functions = profile.report["functions"].as_array().unwrap();
        let ticks =
            |name: &str| functions.iter().find(|row| row["name"] == name).map(|row| row["total"].as_u64());
        assert_eq!(ticks("burn").flatten().unwrap_or(0), burns, "{how:?}");
    }
}

/// Counts user frames: not the kernel's, and not the process's name.
fn user_frames(stack: &[String]) -> u64 {
    let frames = stack.iter().skip(1).filter(|frame| !frame.ends_with("_[k]") && *frame != "[truncated]");
    frames.count() as u64
}

#[test]
fn a_thread_is_profiled_alone_until_it_ends() {
    if !is_root() {
        return;
    }
    let mut target = Target::start(Command::new(native::without_frame_pointers("frames.c")).arg("two"));
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap();
        let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        tids.filter(|tid| *tid != target.pid().to_string()).collect::<Vec<_>>()
    };
    while threads().is_empty() {
        std::thread::yield_now();
    }
    let tid = threads().remove(0);
    let wait = std::time::Duration::from_secs(2);
    let own = profiler::until_it_ends(&["--tid", &tid], || {
        std::thread::sleep(wait);
        target.signal(Signal::USR1);
    });
    assert!(target.is_alive(), "it is not the process that ended");
    assert_accounts(&own.report, own.folded.total());
    assert!(own.folded.total() > 100, "{}", own.folded.top(10));
    assert_eq!(own.folded.count(|stack| stack.iter().any(|f| is(f, "main") || is(f, "in_thread"))), 0);
    assert_from_the_first("until_signalled", &own.folded);
    // The first thread's TID is the PID.
    let pid = target.pid().to_string();
    let first = profiler::while_sampling(&[], &["--tid", &pid], || std::thread::sleep(wait));
    assert_from_the_first("main", &first.folded);
    assert!(first.folded.total() > 100, "{}", first.folded.top(10));
}

/// Asserts that stacks are whole, also in the first of two seconds. A busy host may load unwind tables while it
/// samples. When tables were loaded only for processes that had run, no stack of the two seconds was whole.
#[track_caller]
fn assert_from_the_first(function: &str, folded: &Folded) {
    let whole = folded.share(|stack| reaches_root(stack) && stack.iter().any(|frame| is(frame, function)));
    assert!(whole > 0.5 || cfg!(not(target_arch = "x86_64")), "{whole} are whole:\n{}", folded.top(10));
}

/// Compares with the kernel's CPU time of the profiler and of the children that it waited for, without the command.
#[test]
fn the_report_has_the_cost_of_the_run() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.folded");
    let mut profiler = Command::new(profiler::binary());
    profiler.args(["-F", "999", "-d", "60", "--report", "json", "-o"]).arg(out).args(["--", "sh", "-c"]);
    // Each run executes a new file, which the profiler opens and reads.
    let copies = "i=0; while [ $i -lt 200 ]; do cp \"$0\" \"$1/$i\" && \"$1/$i\" 10; i=$((i+1)); done";
    profiler.arg(copies).arg(native::program("short")).arg(dir.path());
    let report = dir.path().join("report.json");
    let mut profiler = profiler.stdout(File::create(&report).unwrap()).spawn().unwrap();
    // The profiler has ended but is not reaped yet, so the kernel still reports its CPU time.
    let ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&profiler)), ends).unwrap();
    let truth = cpu_time(profiler.id()).unwrap().as_secs_f64();
    assert!(profiler.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let cost = |name: &str| report["cost"][name].as_f64().unwrap();
    let found: f64 = ["broker_s", "worker_s", "helpers_s"].map(cost).iter().sum();
    assert!((found - truth).abs() < 0.2 * truth + 0.05, "{}, and it was {truth} s", report["cost"]);
    assert!(cost("helpers_s") < 1.0, "the command's two seconds are not ours: {}", report["cost"]);
    let ticks = report["accounts"]["ticks"].as_f64().unwrap();
    assert!(ticks > 1000.0 && cost("bpf_runs") >= ticks, "{ticks} ticks: {}", report["cost"]);
}

#[test]
fn a_jvm_that_is_attached_to_while_it_starts_goes_on() {
    on_host(17, survives_its_start);
    for version in [8, 11, 21, 25] {
        in_container(version, survives_its_start);
    }
}

/// The profiler runs before the JVM starts, and attaches as soon as the JVM runs.
fn survives_its_start(jdk: &Jdk) {
    for _ in 0..3 {
        let sampling = Sampling::begin(&["--all"]);
        let mut target = Program::new("Shares").start(jdk);
        sampling.wait_for(&format!("JVM {} (", target.pid()));
        sampling.signal(Signal::INT);
        let report = sampling.end(Watch::keep(&[])).report;
        let jvms = report["jvms"].as_array().unwrap();
        let jvm = jvms.iter().find(|jvm| jvm["pid"] == target.pid()).unwrap_or_else(|| panic!("{report}"));
        assert!(jvm["names"]["agent_during_run"].is_object(), "{jvm}");
        assert!(target.is_alive());
    }
}
