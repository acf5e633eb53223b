//! The options of the main command on real programs: each changes what its help says, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use testkit::claims::{Tally, at_least, prove, prove_tallies, seen};
use testkit::folded::{Folded, has, is};
use testkit::java::{Jdk, Program};
use testkit::profiler::{
    Profile, binary, finish, lost, out_file, profile, profile_by, record_watching, run, slice, with_time,
};
use testkit::target::Target;
use testkit::wald::Claim;
use testkit::{is_root, native};

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|a| (*a).to_owned()).collect()
}

#[test]
fn a_period_is_one_of_cpu_time() {
    if !is_root() {
        return;
    }
    // The target runs on the one sampled CPU: on a virtual machine an idle CPU may wake for no tick at all.
    let target = Target::start(Command::new("taskset").args(["-c", "0"]).arg(native::program("native")));
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    // `expected` is the events' own count in such periods; as many ticks come, except those that the host stole, and
    // those that the kernel skips where a BPF program of another test's profiler runs. `whole` tests that no other
    // ticks are missed.
    prove_tallies(&[("missed ticks".to_owned(), Claim::AtMost(0.1))], || {
        // 800 Hz.
        let clock = ["-c", "1250000", "-C", "0"];
        let profile = with_time(&[target.pid()], || profile_by(&clock, &target, 1));
        assert_eq!(profile.account("period_ns"), 1_250_000);
        for rate in ["requested_hz", "effective_hz"] {
            assert_eq!(profile.report[rate], 800.0, "{rate}");
        }
        profile.assert_samples_of(&[target.pid()], profile.folded.total());
        let (expected, missed) = (profile.account("expected"), profile.account("missed"));
        // The host may have stolen from this CPU only.
        let stolen = profile.report["steal"].as_f64().unwrap() * cpus * expected as f64;
        vec![Tally { hits: missed.saturating_sub(stolen as u64), samples: expected }]
    });
}

#[test]
fn only_chosen_cpus_tick() {
    if !is_root() {
        return;
    }
    if std::thread::available_parallelism().unwrap().get() < 2 {
        testkit::skip("one CPU is no choice");
        return;
    }
    let on = |cpu: &str, program: &str| {
        Target::start(Command::new("taskset").args(["-c", cpu]).arg(native::program(program)))
    };
    let (first, second) = (on("0", "kernel"), on("1", "native"));
    let pids = format!("{},{}", first.pid(), second.pid());
    let profile = record_watching(&[second.pid()], 2, &args(&["-p", &pids, "-C", "1"]));
    profile.assert_samples_of(&[second.pid()], profile.folded.count(|stack| stack[0] == "native"));
    // A lost sample was one of a chosen CPU.
    let others = profile.folded.keep(|stack| !["native", "[lost]"].contains(&stack[0].as_str()));
    assert_eq!(others.total(), 0, "{}", others.top(10));
}

#[test]
fn raw_names_are_those_of_this_run() {
    if !is_root() {
        return;
    }
    let program =
        Program::new("Lambdas").args(&["1000"]).flags(&["-Xlog:class+load"]).dont_inline("Lambdas::burn");
    let mut target = program.start(&Jdk::host());
    // `[0.041s][info][class,load] Lambdas$$Lambda$1/0x00007f5c4c000a00 source: Lambdas`
    let class =
        target.lines().iter().flat_map(|line| line.split(' ')).find(|word| word.starts_with("Lambdas$$"));
    let class = class.expect("the JVM logs the lambda's class").to_owned();
    assert!(class.contains("/0x"), "{class}");
    let via_lambda = "Lambdas.viaLambda";
    let claims = [
        seen(100, "calls of the lambda", has(via_lambda)),
        at_least(0.9, "lambdas with their names", has(format!("{class}.applyAsLong"))).among(has(via_lambda)),
    ];
    prove(|| slice(&target, &["--raw-names"]), &claims);
}

/// Fake JVMs accept the request and answer nothing, like JVMs in an endless pause.
#[test]
fn a_jvm_that_does_not_answer_costs_the_timeout_and_no_more() {
    if !is_root() {
        return;
    }
    let [mute, other_mute] = [0, 1].map(|_| {
        let mut mute = Command::new(native::program("fake_jvm"));
        Target::start(mute.arg(libjvm(&Jdk::host())).arg("mute"))
    });
    let busy = native::start("native");
    // This profiler began earlier and would sample for less time, but it waits longer for its JVM.
    let mut patient = Command::new(binary());
    patient.args(["-q", "-d", "1", "--attach-timeout", "300s", "-p", &other_mute.pid().to_string(), "-o"]);
    let mut patient = Target::spawn(patient.arg(out_file("folded")));
    let pids = format!("{},{}", mute.pid(), busy.pid());
    let profile = record_watching(&[busy.pid()], 2, &args(&["-p", &pids, "--attach-timeout", "1s"]));
    assert!(patient.is_alive(), "the timeout makes no difference");
    // An interrupted attach leaves no file.
    patient.signal(Signal::INT);
    patient.wait();
    let jvm = &profile.report["jvms"][0];
    assert!(jvm["names"]["memory"].is_object() && jvm["no_agent"]["label"] == "timed out", "{jvm}");
    assert!(jvm["no_agent"]["hint"].as_str().unwrap().contains("--attach-timeout"), "{jvm}");
    profile.assert_samples_of(&[busy.pid()], profile.folded.count(|stack| stack[0] == "native"));
}

fn libjvm(jdk: &Jdk) -> PathBuf {
    jdk.home().unwrap().join("lib/server/libjvm.so")
}

/// A JVM with the version of a build that crashes in the events that the agent needs.
#[test]
fn a_build_that_may_crash_is_attached_to_if_that_is_forced() {
    if !is_root() {
        return;
    }
    let jdk = Jdk::host();
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("libjvm.so");
    age(&jdk, &old);
    let mut java = Command::new("unshare");
    java.args(["--mount", "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""]);
    java.arg(&old).arg(libjvm(&jdk)).args(Program::new("Shares").host_command(&jdk));
    let mut target = Target::start(&mut java);
    for (more, source) in [(&[][..], "memory"), (&["--force-attach"], "agent_late")] {
        let sample = || {
            let Profile { folded, report, .. } = profile(&target, 1, more);
            let jvm = &report["jvms"][0];
            assert!(jvm["names"][source].is_object(), "{more:?}: {jvm}");
            let known = jvm["no_agent"]["label"] == "known crash JDK-8173361";
            assert!(known == (source == "memory"), "{more:?}: {jvm}");
            folded
        };
        let claims = [
            seen(100, format!("{more:?}: samples"), |_| true),
            at_least(0.9, format!("{more:?}: time in the method"), has("Shares.round")),
        ];
        prove(sample, &claims);
    }
    assert!(target.is_alive());
}

/// Copies a JDK's `libjvm.so` with the version of the first JDK 13: `17.0.15+` becomes `13.0.00+`.
fn age(jdk: &Jdk, to: &Path) {
    let release = std::fs::read_to_string(jdk.home().unwrap().join("release")).unwrap();
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_RUNTIME_VERSION=\"")).unwrap();
    let own = &version[..=version.find('+').unwrap()];
    let old = format!("13{}", own[2..].replace(|c: char| c.is_ascii_digit(), "0"));
    let mut sed = Command::new("sed");
    sed.env("LC_ALL", "C").arg(format!("s/{}/{old}/g", own.replace('.', "\\."))).arg(libjvm(jdk));
    assert!(sed.stdout(File::create(to).unwrap()).status().unwrap().success());
}

/// Without `--output` a run writes a flame graph, named by the time, to the current directory, and reports its name.
#[test]
fn the_usual_output_is_a_picture_named_by_the_time() {
    if !is_root() {
        return;
    }
    let (target, directory) = (native::start("native"), tempfile::tempdir().unwrap());
    let mut command = Command::new(binary());
    command.current_dir(&directory).args(["-d", "1", "-p", &target.pid().to_string()]);
    let said = finish(&mut command).success().stdout;
    let left: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    let [picture] = &left[..] else { panic!("{left:?}") };
    let picture = picture.to_str().unwrap();
    let today = std::fs::metadata(directory.path().join(picture)).unwrap();
    assert!(
        today.len() > 1_000 && picture.starts_with("jbpf-prof-20") && picture.ends_with(".svg"),
        "{picture}"
    );
    assert!(said.contains(picture), "{said}");
}

/// Runs in a mount namespace with its own /dev, so that a bug cannot remove a link of this machine.
const OUTPUTS: &str = r#"
set -euo pipefail
cd "$0"; profiler=$1; pid=$2
mkdir dev; mount -t tmpfs none dev; cp -a /dev/null /dev/random /dev/urandom dev/
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
mount --bind dev /dev
ls -l /dev | tail -n +2 >before
"$profiler" convert a.folded /dev/stdout | cat >pipe.folded
echo first >file.folded; "$profiler" convert a.folded /proc/self/fd/1 >>file.folded; echo last >>file.folded
"$profiler" convert a.folded >(cat >substituted.folded); wait $!
"$profiler" convert a.folded /dev/fd/3 3>&1 >/dev/null | cat >third.folded
mkfifo fifo.folded; cat fifo.folded >fifo.out & "$profiler" convert a.folded fifo.folded; wait $!; [ -p fifo.folded ]
"$profiler" convert a.folded /dev/null --format svg
mkdir runs; ln -s runs/17.folded latest; "$profiler" convert a.folded latest; [ -L latest ]
"$profiler" agent /dev/stdout | cat >agent.so; "$profiler" agent agent.file; cmp agent.so agent.file
"$profiler" -F 999 -d 1 -p "$pid" -o /dev/stdout >profile.folded 2>report
"$profiler" -F 999 -d 1 -p "$pid" -o >(cat >profile.substituted) >report.substituted; wait $!
ls -l /dev | tail -n +2 >after
"#;

#[test]
fn outputs_that_are_no_files_are_written_to_and_stay() {
    if !is_root() {
        return;
    }
    let (target, directory) = (native::start("native"), tempfile::tempdir().unwrap());
    let stacks = "java;a.B.run_[j];a.B.get_[i] 7\n";
    let inside = |name: &str| directory.path().join(name);
    let text = |name: &str| std::fs::read_to_string(inside(name)).unwrap();
    std::fs::write(inside("a.folded"), stacks).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", OUTPUTS]).arg(directory.path()).arg(binary());
    finish(command.arg(target.pid().to_string())).success();
    assert_eq!(text("before"), text("after"));
    for name in ["pipe.folded", "substituted.folded", "third.folded", "fifo.out", "runs/17.folded"] {
        assert_eq!(text(name), stacks, "{name}");
    }
    assert_eq!(text("file.folded"), format!("first\n{stacks}last\n"), "it is written to where it is");
    // The report goes to the stream that gets no profile.
    for (profile, report) in [("profile.folded", "report"), ("profile.substituted", "report.substituted")] {
        let folded = Folded::parse(&text(profile));
        assert!(folded.total() > 10, "{}", folded.top(5));
        assert!(text(report).starts_with("jbpf-prof "), "{report}: {}", text(report));
    }
}

#[test]
fn quiet_is_without_a_word() {
    if !is_root() {
        return;
    }
    let (target, out) = (native::start("native"), out_file("folded"));
    let pid = target.pid().to_string();
    let run = run(["-q", "-d", "300ms", "-p", &pid, "-o", out.to_str().unwrap()]).success();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    assert!(out.exists());
}

/// On a terminal a bar shows the progress and is erased at the end; a pipe gets no bar.
#[test]
fn progress_is_for_terminals() {
    if !is_root() {
        return;
    }
    let (target, out) = (native::start("native"), out_file("folded"));
    let line = format!("{} -d 2 --report none -p {} -o {}", binary().display(), target.pid(), out.display());
    let on_terminal =
        finish(Command::new("script").args(["--quiet", "--return", "--command", &line, "/dev/null"]));
    let on_terminal = on_terminal.success().stdout;
    assert!(on_terminal.contains("█") && on_terminal.contains("/2 s, "), "{on_terminal:?}");
    assert!(on_terminal.trim_end().ends_with("\r\x1b[K"), "{on_terminal:?}");
    let in_pipe = run(line.replace(" -d 2 ", " -d 300ms ").split(' ').skip(1)).success();
    assert_eq!((in_pipe.stdout.as_str(), in_pipe.stderr.as_str()), ("", ""));
}

/// A file provides the types of a kernel that has no BTF of its own.
#[test]
fn types_of_the_kernel_may_come_from_a_file() {
    if !is_root() {
        return;
    }
    let (target, out) = (native::start("native"), out_file("folded"));
    let btf = out.with_extension("btf");
    std::fs::copy("/sys/kernel/btf/vmlinux", &btf).unwrap();
    let run = |more: &[&str]| {
        let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hidden, "sh"]).arg(binary()).args(more);
        let pid = target.pid().to_string();
        finish(command.args(["-d", "1", "-F", "999", "--report", "none", "-p", &pid, "-o"]).arg(&out))
    };
    run(&[]).refused(3, "BTF");
    assert!(!out.exists());
    let sample = || {
        run(&["--btf-path", btf.to_str().unwrap()]).success();
        Folded::parse(&std::fs::read_to_string(&out).unwrap())
    };
    prove(sample, &[seen(100, "samples of the function", has("burn40"))]);
    std::fs::remove_file(btf).unwrap();
}

/// A program burns 1.5 seconds of CPU time in one function, then executes another program with its own function.
#[test]
fn a_timeline_says_when() {
    if !is_root() {
        return;
    }
    let [first, second] = ["turn_a", "turn_b"].map(native::program);
    let out = out_file("json.gz");
    let paths = [&first, &second, &out].map(|path| path.to_str().unwrap());
    let run = run(["-F", "999", "--report", "json", "-o", paths[2], "--", paths[0], "1500", "1", paths[1]])
        .success();
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(File::open(&out).unwrap()).read_to_end(&mut json).unwrap();
    let threads = timelines(&serde_json::from_slice(&json).unwrap());

    let shown: u64 = threads.values().flatten().map(|sample| sample.weight).sum();
    let accounts = &report["accounts"];
    assert_eq!(shown, accounts["kept"].as_u64().unwrap() + lost(&report), "{accounts}");
    let when = |name: &str, function: &str| {
        let own = threads[name].iter().filter(|sample| sample.stack.iter().any(|frame| frame == function));
        let own: Vec<_> = own.map(|sample| (sample.second, sample.weight)).collect();
        let ticks: u64 = own.iter().map(|(_, weight)| weight).sum();
        assert!(ticks > 1_000, "{ticks} of {function}");
        let seconds: BTreeSet<u64> = own.iter().map(|(second, _)| *second).collect();
        assert!(seconds.len() >= 2, "{function}: 1.5 seconds of CPU time are not in {seconds:?} alone");
        (seconds.first().copied().unwrap(), seconds.last().copied().unwrap())
    };
    let (early, late) = (when("turn_a", "work_of_a"), when("turn_b", "work_of_b"));
    // The second in which the exec happens has samples of both programs. Three seconds of CPU time take at least as
    // long, and the run ends with them.
    let duration = report["duration_s"].as_f64().unwrap();
    let ordered = early.1 <= late.0 && early.0 + 2 <= late.1 && late.1 as f64 <= duration + 1.0;
    assert!(ordered, "{early:?} {late:?} in {duration} s");
}

/// A sample of a timeline: the second in which it was taken, its frames from the root, and its number of ticks.
struct Timed {
    second: u64,
    stack: Vec<String>,
    weight: u64,
}

/// The samples of each thread of a Firefox profile, by the thread's name; its tables refer to each other by row.
fn timelines(profile: &Value) -> BTreeMap<String, Vec<Timed>> {
    let row = |column: &Value, row: &Value| column[usize::try_from(row.as_u64().unwrap()).unwrap()].clone();
    let samples = |thread: &Value| {
        let (table, frames) = (&thread["stackTable"], &thread["frameTable"]);
        let name = |stack: &Value| {
            let function = row(&frames["func"], &row(&table["frame"], stack));
            let name = row(&thread["stringArray"], &row(&thread["funcTable"]["name"], &function));
            name.as_str().unwrap().to_owned()
        };
        let own = &thread["samples"];
        let mut ms = 0.0;
        let mut samples = Vec::new();
        for at in 0..own["stack"].as_array().unwrap().len() {
            ms += own["timeDeltas"][at].as_f64().unwrap();
            let (mut stack, mut up) = (Vec::new(), own["stack"][at].clone());
            while !up.is_null() {
                stack.insert(0, name(&up));
                up = row(&table["prefix"], &up);
            }
            samples.push(Timed {
                second: ms as u64 / 1000,
                stack,
                weight: own["weight"][at].as_u64().unwrap(),
            });
        }
        samples
    };
    let mut threads: BTreeMap<String, Vec<Timed>> = BTreeMap::new();
    for thread in profile["threads"].as_array().unwrap() {
        threads.entry(thread["name"].as_str().unwrap().to_owned()).or_default().extend(samples(thread));
    }
    threads
}

#[test]
fn pictures_look_as_they_were_asked_to() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let (svg, profile) = (out_file("svg"), out_file("pb.gz"));
    let paths = [&svg, &profile].map(|path| path.to_str().unwrap());
    let pid = target.pid().to_string();
    // A tenth of the 1,180 pixels is 118, four tenths are 472.
    let line =
        ["-F", "2999", "-d", "1", "-p", &pid, "-o", paths[0], "-o", paths[1], "--title", "Noon & after"];
    run(line.iter().chain(&["--minwidth", "295", "--report", "none"])).success();
    let first = Picture::read(&svg);
    assert!(first.text.contains(">Noon &amp; after</text>"), "the title");
    assert!(first.has("burn40") && !first.has("burn10"), "{:?}", first.boxes);
    let convert = |how: &[&str]| {
        run(["convert", paths[1], paths[0]].iter().chain(how)).success();
        Picture::read(&svg)
    };
    let (usual, upside, leaf_first) = (convert(&[]), convert(&["--inverted"]), convert(&["--reverse"]));
    assert!(usual.has("burn10") && !usual.text.contains("Noon"));
    // The y coordinate grows downwards.
    let below = |picture: &Picture, one: &str, other: &str| picture.y(one) > picture.y(other);
    assert!(below(&first, "native", "burn40") && below(&usual, "native", "burn40"));
    assert!(below(&upside, "burn40", "native"));
    assert!(below(&leaf_first, "burn40", "native"));
}

/// A flame graph: its text, and the names and y coordinates of its boxes.
struct Picture {
    text: String,
    boxes: Vec<(String, f64)>,
}

impl Picture {
    fn read(path: &Path) -> Picture {
        let text = std::fs::read_to_string(path).unwrap();
        let boxes = text.split("<title>").skip(1).filter_map(|part| {
            let (title, rest) = part.split_once("</title>")?;
            let (name, _) = title.rsplit_once(" (")?;
            let y = rest.split_once(" y=\"")?.1.split('"').next()?;
            Some((name.to_owned(), y.parse().ok()?))
        });
        let boxes = boxes.collect();
        Picture { text, boxes }
    }

    fn has(&self, name: &str) -> bool {
        self.boxes.iter().any(|(own, _)| is(own, name))
    }

    /// The y coordinate of the lowest box with this name. Leaf first, a function that was interrupted is also above the kernel.
    fn y(&self, name: &str) -> f64 {
        let of_name = self.boxes.iter().filter(|(own, _)| is(own, name)).map(|(_, y)| *y);
        of_name.reduce(f64::max).unwrap_or_else(|| panic!("no {name} in {:?}", self.boxes))
    }
}
