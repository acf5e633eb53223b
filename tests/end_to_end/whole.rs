//! The profiler on real programs: accounts, selections, commands, hostile neighbours.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use testkit::claims::{StackClaim, Tally, at_least, prove, prove_tallies, seen, share};
use testkit::folded::{Folded, bare, has, is, reaches_root, user_leaf};
use testkit::java::{Jdk, Program, classes, in_container, on_host};
use testkit::profiler::{
    self, Profile, Sampling, children_as, lost, profile, profile_at_high_rate, record, record_once,
    record_watching, slice,
};
use testkit::spent::{Watch, cpu_time, spend};
use testkit::target::Target;
use testkit::wald::{Claim, Verdict};
use testkit::{container, is_root, native, scratch};

/// All processes. Tests run beside others: nothing is attached to the JVMs of these.
const ALL: [&str; 3] = ["--all", "--java", "off"];

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|a| (*a).to_owned()).collect()
}

/// The path of a compiled program as an argument.
fn path(name: &str) -> String {
    native::program(name).to_str().unwrap().to_owned()
}

/// Starts a program whose process has a name that no other test's process has.
fn start_as(name: &str, program: &[String]) -> Target {
    let link = scratch("own-names").join(name);
    let _ = std::fs::remove_file(&link);
    symlink(&program[0], &link).unwrap();
    Target::start(Command::new(link).args(&program[1..]))
}

/// Whether a stack begins with this name, which is mostly the process's.
fn of(name: &'static str) -> impl Fn(&[String]) -> bool + Copy {
    move |stack: &[String]| stack[0] == name
}

/// Asserts that each tick is kept, filtered, or lost for a reason, and that the output sums to kept and lost.
#[track_caller]
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
    let java = start_as("whole-java", &Program::new("Shares").host_command(&Jdk::host()));
    let native = start_as("whole-native", &[path("native")]);
    let targets = [("whole-java", java.pid()), ("whole-native", native.pid())];
    // With `vm` Java has its names, and nothing is attached to the JVMs of other tests.
    let line = args(&["--all", "--java", "vm"]);
    let sample = || {
        let profile = record_watching(&targets.map(|(_, pid)| pid), 2, &line);
        assert_accounts(&profile.report, profile.folded.total());
        for (name, pid) in targets {
            profile.assert_samples_of(&[pid], profile.folded.count(of(name)));
        }
        profile.folded
    };
    prove(sample, &[at_least(0.9, "time in the method", has("Shares.round")).among(of("whole-java"))]);
}

/// No other test may run meanwhile: where another profiler's program runs, or one of its maps is changed, the kernel
/// skips the ticks of that CPU.
mod alone {
    use std::process::Command;

    use testkit::claims::{Tally, prove_tallies};
    use testkit::profiler::record;
    use testkit::target::Target;
    use testkit::wald::Claim;
    use testkit::{is_root, native};

    use super::{ALL, args};

    /// Missed ticks must not hide lost ones: a busy CPU ticks as often as its event counts, except for the time that
    /// the host steals.
    #[test]
    fn cpus_that_work_miss_no_ticks() {
        if !is_root() {
            return;
        }
        let cpus = std::thread::available_parallelism().unwrap().get();
        let program = native::program("native");
        let pinned =
            |cpu: usize| Target::start(Command::new("taskset").arg("-c").arg(cpu.to_string()).arg(&program));
        let _all: Vec<Target> = (0..cpus).map(pinned).collect();
        prove_tallies(&[("ticks that busy CPUs missed".to_owned(), Claim::AtMost(0.02))], || {
            let profile = record(2, &args(&ALL));
            let [expected, ticks, missed] = ["expected", "ticks", "missed"].map(|name| profile.account(name));
            assert_eq!(expected, ticks + missed);
            assert!(expected > 1_900 * cpus as u64, "{expected} on {cpus} CPUs");
            let stolen = profile.report["steal"].as_f64().unwrap() * expected as f64;
            vec![Tally { hits: missed.saturating_sub(stolen as u64), samples: expected }]
        });
    }
}

#[test]
fn selected_processes_only() {
    if !is_root() {
        return;
    }
    let (one, two, _other) = (native::start("native"), native::start("kernel"), native::start("unique"));
    let pids = [one.pid(), two.pid()];
    let both = record_watching(&pids, 2, &args(&["-p", &format!("{},{}", one.pid(), two.pid())]));
    assert_accounts(&both.report, both.folded.total());
    for (name, pid) in ["native", "kernel"].into_iter().zip(pids) {
        both.assert_samples_of(&[pid], both.folded.count(of(name)));
    }
    // A lost sample was one of a selected process.
    let others = both.folded.keep(|stack| !["native", "kernel", "[lost]"].contains(&stack[0].as_str()));
    assert_eq!(others.total(), 0, "{}", others.top(10));
}

#[test]
fn user_or_kernel_frames_only() {
    if !is_root() {
        return;
    }
    let target = native::start("kernel");
    let kernel_frame = |frame: &String| frame.ends_with("_[k]");
    let of_it = |more: &str| args(&["-p", &target.pid().to_string(), more]);
    let user = record_watching(&[target.pid()], 1, &of_it("-U"));
    // Each sample in the kernel keeps its user frames, so the code that called the kernel is there.
    user.assert_samples_of(&[target.pid()], user.folded.total());
    assert_eq!(user.folded.count(|stack| stack.iter().any(kernel_frame)), 0, "{}", user.folded.top(10));
    let sample = || {
        let kernel = record_watching(&[target.pid()], 1, &of_it("-K"));
        kernel.assert_samples_of(&[target.pid()], kernel.folded.total());
        let kept = kernel.folded.keep(|stack| stack[0] != "[lost]");
        assert_eq!(kept.count(|stack| !stack[1..].iter().all(kernel_frame)), 0, "{}", kept.top(10));
        kept
    };
    // The program is nearly always in the kernel.
    prove(sample, &[at_least(0.9, "samples in the kernel", |stack| stack.len() > 1)]);
}

#[test]
fn a_command_is_profiled_from_its_first_instruction() {
    if !is_root() {
        return;
    }
    // The run ends with the command: its own time limit is later than its deadline here.
    let profile = record(600, &args(&["--", &path("short"), "1000"]));
    assert_accounts(&profile.report, profile.folded.total());
    // The program uses a second of CPU time at 999 Hz; startup and clock reads take a few milliseconds of it.
    let work = profile.folded.within("short_lived_work").total();
    let right = profile.by_chance(985);
    assert!(right.contains(&work), "{work} samples of a second's work:\n{}", profile.folded.top(10));
}

#[test]
fn a_program_that_was_executed_from_memory_has_its_names() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    if !is_root() {
        return;
    }
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut memory = File::from(memory);
    memory.write_all(&std::fs::read(native::program("native")).unwrap()).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let target = Target::start(&mut Command::new(path));
    let burns = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| leaf.starts_with("burn"));
    prove(|| slice(&target, &[]), &[at_least(0.95, "functions with their names", burns)]);
}

#[test]
fn functions_of_a_stripped_program_are_distinct() {
    if !is_root() {
        return;
    }
    let full = native::program("native");
    let stripped = scratch("stripped").join("stripped");
    assert!(Command::new("strip").arg("-o").arg(&stripped).arg(&full).status().unwrap().success());
    let symbols = Command::new("nm").arg(&full).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let target = Target::start(&mut Command::new(&stripped));
    // GCC may clone a function that has constant arguments: `burn10.constprop.0`.
    let truths = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];
    let claims = truths.map(|(name, truth)| {
        let line = symbols.lines().find(|l| l.contains(name)).unwrap();
        let place = format!("stripped!fun_{}", line.split(' ').next().unwrap().trim_start_matches('0'));
        let own = move |stack: &[String]| user_leaf(stack).is_some_and(|leaf| is(leaf, &place));
        share(truth, name, own)
    });
    let mut in_file = Tally::default();
    let sample = || {
        let profile = profile_at_high_rate(&target, 1.0, &[]);
        let rows = profile.report["stripped"].as_array().unwrap();
        let row = rows.iter().find(|row| row["path"].as_str() == stripped.to_str());
        in_file.hits += row.unwrap_or_else(|| panic!("{rows:?}"))["self"].as_u64().unwrap();
        in_file.samples += profile.folded.total();
        profile.folded
    };
    prove(sample, &claims);
    let verdict = Claim::AtLeast(0.9).judge(in_file.hits, in_file.samples);
    assert_eq!(verdict, Verdict::Right, "the report's row has {in_file:?}");
}

#[test]
fn a_neighbour_without_two_equal_stacks_costs_others_nothing() {
    if !is_root() {
        return;
    }
    let [one, two] = [0, 1].map(|_| start_as("all-different", &[path("unique")]));
    let victim = start_as("victim", &[path("native")]);
    let claims = [
        ("different stacks, of the neighbours' samples".to_owned(), Claim::AtLeast(0.9)),
        ("lost ticks, of all".to_owned(), Claim::AtMost(0.01)),
    ];
    prove_tallies(&claims, || {
        let profile = record_watching(&[one.pid(), two.pid(), victim.pid()], 2, &args(&ALL));
        let all = &profile.folded;
        assert_accounts(&profile.report, all.total());
        let own = all.keep(of("all-different"));
        profile.assert_samples_of(&[one.pid(), two.pid()], own.total());
        profile.assert_samples_of(&[victim.pid()], all.count(of("victim")));
        vec![
            Tally { hits: own.stacks().count() as u64, samples: own.total() },
            Tally { hits: all.count(of("[lost]")), samples: all.total() },
        ]
    });
}

/// The stacks of a profile, each below a frame of this name.
fn marked(mark: &str, folded: &Folded) -> Folded {
    let line = |(stack, count): (&[String], u64)| format!("{mark};{} {count}\n", stack.join(";"));
    Folded::parse(&folded.stacks().map(line).collect::<String>())
}

#[test]
fn two_profilers_at_once_are_both_right() {
    if !is_root() {
        return;
    }
    // The program waits for the compiler: on a busy machine it would long be interpreted.
    let program = Program::new("Shares").flags(&["-Xbatch"]).dont_inline("Shares::burn*");
    let target = program.start(&Jdk::host());
    let pid = target.pid();
    let line = args(&["-p", &pid.to_string()]);
    let marks = ["first", "second"];
    let sample = || {
        let at_once = || {
            std::thread::scope(|scope| {
                let runs = marks.map(|_| scope.spawn(|| record_once(&[pid], 1, &line)));
                runs.map(|run| run.join().unwrap())
            })
        };
        let mut pairs = (0..20).map(|_| at_once());
        let profiles = pairs.find(|pair| pair.iter().all(|profile| profile.has_time_of(&[pid])));
        let profiles = profiles.expect("two profiles of a program with CPU time");
        let mut both = Folded::default();
        for (mark, profile) in marks.into_iter().zip(profiles) {
            assert_accounts(&profile.report, profile.folded.total());
            profile.assert_samples_of(&[pid], profile.folded.total());
            both.add(marked(mark, &profile.folded));
        }
        both
    };
    let burns = |stack: &[String]| {
        user_leaf(stack).is_some_and(|leaf| bare(leaf).starts_with("Shares.burn") && leaf.ends_with("_[j]"))
    };
    let in_round = &has("Shares.round");
    let mut claims = Vec::new();
    for mark in marks {
        claims.push(at_least(0.9, format!("{mark}: time in the method"), in_round).among(of(mark)));
        let of_round = move |stack: &[String]| of(mark)(stack) && in_round(stack);
        claims.push(at_least(0.98, format!("{mark}: time in what it calls"), burns).among(of_round));
    }
    prove(sample, &claims);
}

#[test]
fn every_output_at_once_and_all_of_them_whole() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let outs = ["svg", "folded", "pb.gz"].map(profiler::out_file);
    let mut line = args(&["-p", &target.pid().to_string(), "-F", "999", "-d", "1"]);
    for out in &outs {
        line.extend(["-o".to_owned(), out.to_str().unwrap().to_owned()]);
    }
    let run = profiler::run(&line).success();
    let svg = std::fs::read_to_string(&outs[0]).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("burn40"));
    assert!(std::fs::read_to_string(&outs[1]).unwrap().contains("burn40"));
    assert_eq!(&std::fs::read(&outs[2]).unwrap()[..2], &[0x1f, 0x8b], "gzip");
    let said = [run.stderr.as_str(), &run.stdout].concat();
    assert!(said.contains("burn40"), "the report names the hottest: {said}");
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
    let directory = tempfile::tempdir().unwrap();
    let has_itself = |more: &[&str]| {
        let mut command = Command::new(profiler::binary());
        command.args(ALL).args(["-F", "4999", "-d", "1", "--report", "json", "-o"]);
        command.arg(directory.path().join("own.folded")).args(more);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let child = command.spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Profilers of other tests have the same name, so only the pid tells.
        let rows = report["processes"].as_array().unwrap();
        let is_sampled =
            |pid: u32| rows.iter().any(|row| row["pids"].as_array().unwrap().iter().any(|of| *of == pid));
        assert!(is_sampled(native.pid()), "the other process is in it");
        is_sampled(pid)
    };
    assert!(!has_itself(&[]));
    assert!((0..30).any(|_| has_itself(&["--include-self"])), "it uses CPU time in each run");
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

/// Repeats a run, up to three times, while its number of idle samples (the second value) is 0. On a busy machine no CPU
/// may ever be idle; the test then checks less.
fn until_idle<T>(run: impl Fn() -> (T, u64)) -> T {
    let mut runs = (0..3).map(|_| run());
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
    let a_second = || std::thread::sleep(std::time::Duration::from_secs(1));
    for (more, is_shown) in [(&[][..], false), (&["--idle"], true)] {
        let how = [&ALL[..], more].concat();
        let (profile, idle, shown, hidden) = until_idle(|| {
            let before = idle_ms();
            let profile = profiler::while_sampling(&[], &how, a_second);
            let shown = profile.folded.count(of("[idle]"));
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
    for more in [&[][..], &["--idle"], &["--idle", "-X", "[idle]"]] {
        let text = until_idle(|| {
            let line = ["-F", "1999", "-d", "1", "-o", out.to_str().unwrap()];
            let text = profiler::run(line.iter().chain(&ALL).chain(more)).success().stdout;
            let folded = Folded::parse(&std::fs::read_to_string(&out).unwrap());
            let idle = folded.count(of("[idle]")) + row(&text, "  idle CPUs");
            (text, if more.contains(&"-X") { 1 } else { idle })
        });
        let rows =
            ["  in the profile", "  idle CPUs", "  not asked for", "  lost"].map(|label| row(&text, label));
        assert_eq!(rows.iter().sum::<u64>(), row(&text, "Ticks"), "{more:?}\n{text}");
    }
}

#[test]
fn what_the_report_says_of_stacks_is_said_of_those_in_the_profile() {
    if !is_root() {
        return;
    }
    let target = native::start("anonymous");
    let unknown = "[unknown: anonymous code]";
    for (how, right, wrong) in [
        (["-I", "burn"], "burn", unknown),
        (["-X", "burn"], unknown, "burn"),
        (["-X", unknown], "burn", unknown),
    ] {
        let sample = || {
            let profile = profile(&target, 1, &how);
            assert_says_what_is_kept(&profile);
            assert_eq!(profile.folded.within(wrong).total(), 0, "{how:?}\n{}", profile.folded.top(10));
            assert!(profile.account("filtered") > 50, "the others were filtered: {how:?}");
            profile.folded
        };
        let claims = [
            at_least(0.95, format!("{how:?}: stacks that were asked for"), has(right)),
            seen(50, format!("{how:?}: samples"), |_| true),
        ];
        prove(sample, &claims);
    }
}

/// Asserts that the report's numbers of unknown frames, of user frames and of the function `burn` are the profile's.
#[track_caller]
fn assert_says_what_is_kept(profile: &Profile) {
    let folded = &profile.folded;
    assert_accounts(&profile.report, folded.total());
    let found = &profile.report["unknown"];
    let rows = found["rows"].as_array().unwrap();
    let leaves: u64 = rows.iter().map(|row| row["leaves"].as_u64().unwrap()).sum();
    let seen = folded.count(|stack| stack.last().is_some_and(|leaf| leaf.starts_with("[unknown: ")));
    assert_eq!(leaves, seen, "{found}");
    let user: u64 = folded.stacks().map(|(stack, n)| n * user_frames(stack)).sum();
    assert_eq!(found["user_frames"], user, "{}", folded.top(10));
    let functions = profile.report["functions"].as_array().unwrap();
    let burns =
        functions.iter().find(|row| row["name"] == "burn").map_or(0, |row| row["total"].as_u64().unwrap());
    assert_eq!(burns, folded.within("burn").total());
}

/// Counts user frames: not the kernel's, and not the process's name.
fn user_frames(stack: &[String]) -> u64 {
    let frames = stack.iter().skip(1).filter(|frame| !frame.ends_with("_[k]") && *frame != "[truncated]");
    frames.count() as u64
}

/// A program whose second thread works until SIGUSR1, and the TID of this thread.
fn two_threads() -> (Target, String) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| native::without_frame_pointers_and("frames.c", "two-threads", &[]));
    let target = Target::start(Command::new(program).arg("two"));
    let pid = target.pid().to_string();
    let second = || {
        let tasks = std::fs::read_dir(Path::new("/proc").join(&pid).join("task")).unwrap();
        tasks.map(|task| task.unwrap().file_name().into_string().unwrap()).find(|tid| *tid != pid)
    };
    let tid = loop {
        if let Some(tid) = second() {
            break tid;
        }
        std::thread::yield_now();
    };
    (target, tid)
}

/// Claims that stacks are whole from the first on. When unwind tables were loaded only for processes that had run, no
/// stack of the first second was whole. On a busy host the loader may need a while of each run.
fn from_the_first(function: &'static str) -> Vec<StackClaim<'static>> {
    let mut claims = vec![seen(100, format!("samples of {function}"), has(function))];
    if cfg!(target_arch = "x86_64") {
        let whole = move |stack: &[String]| reaches_root(stack) && has(function)(stack);
        claims.push(at_least(0.5, "whole stacks", whole));
    }
    claims
}

#[test]
fn a_thread_is_profiled_alone_until_it_ends() {
    if !is_root() {
        return;
    }
    let half_a_second = std::time::Duration::from_millis(500);
    let until_the_thread_ends = || {
        let (mut target, tid) = two_threads();
        let own = profiler::until_it_ends(&["--tid", &tid], || {
            spend(target.pid(), half_a_second);
            target.signal(Signal::USR1);
        });
        assert!(target.is_alive(), "it is not the process that ended");
        assert_accounts(&own.report, own.folded.total());
        assert_eq!(own.folded.count(|stack| has("main")(stack) || has("in_thread")(stack)), 0);
        own.folded
    };
    prove(until_the_thread_ends, &from_the_first("until_signalled"));
    let (target, _) = two_threads();
    // The first thread's TID is the PID.
    let tid = target.pid().to_string();
    let first = || profiler::while_sampling(&[], &["--tid", &tid], || spend(target.pid(), half_a_second));
    prove(|| first().folded, &from_the_first("main"));
}

/// Compares with the kernel's CPU time of the profiler and of the children that it waited for, without the command.
#[test]
fn the_report_has_the_cost_of_the_run() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut profiler = Command::new(profiler::binary());
    profiler.args(["-F", "999", "-d", "600", "--report", "json", "-o"]).arg(dir.path().join("out.folded"));
    // Each run executes a new file, which the profiler opens and reads.
    let copies = "i=0; while [ $i -lt 200 ]; do cp \"$0\" \"$1/$i\" && \"$1/$i\" 10; i=$((i+1)); done";
    profiler.args(["--", "sh", "-c", copies, &path("short")]).arg(dir.path());
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

/// Starts three JVMs when it is told to. Background jobs have no standard input unless they get one, and end without.
const THREE_JVMS: &str = "exec 3<&0; echo ready; read go; for i in 1 2 3; do \"$@\" <&3 & done; wait";

/// The profiler runs before the JVMs start, and attaches as soon as they run.
fn survives_its_start(jdk: &Jdk) {
    let program = Program::new("Shares").args(&["100"]);
    let mut shell = args(&["/bin/sh", "-c", THREE_JVMS, "sh"]);
    let mut target = if let Some(root) = jdk.root() {
        shell.extend(program.contained_command());
        container::start(root, &shell, &[(classes(), "/tmp/classes")])
    } else {
        shell.extend(program.host_command(jdk));
        Target::start(Command::new(&shell[0]).args(&shell[1..]))
    };
    let pid = target.pid();
    // On a busy machine a JVM may take longer to answer than by default.
    let sampling = Sampling::begin(&["-p", &pid.to_string(), "--children", "--attach-timeout", "60s"]);
    target.write(b"go\n");
    for _ in 0..3 {
        target.wait_for(|line| line == "ready");
        sampling.wait_for(" agent, in ");
    }
    sampling.signal(Signal::INT);
    let report = sampling.end(Watch::keep(&[])).report;
    let jvms = report["jvms"].as_array().unwrap();
    let alive = children_as(pid, "Shares");
    assert!(alive.len() == 3 && jvms.len() == 3, "{alive:?} are alive: {jvms:?}");
    for jvm in jvms {
        assert!(alive.iter().any(|pid| jvm["pid"] == *pid), "{alive:?}: {jvm}");
        assert!(jvm["names"]["agent_during_run"].is_object(), "{jvm}");
    }
}
