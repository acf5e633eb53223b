//! Hosts that lack something, and a profiler that gets no time: what is missing is named, and nothing is lost silently.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::profiler::{self, binary, out_file, report_after_ready};
use common::spent::Watch;
use common::target::Target;
use common::{is_root, native, scratch};
use rustix::process::Signal;

/// The profiler under a command that takes something away from it.
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
    // Without this one the run goes on, and says what is lost.
    let target = native::start("native");
    let mut command = under(&["setpriv", "--bounding-set=-sys_ptrace"]);
    command.args(["-p", &target.pid().to_string(), "-d", "1", "-o", "-", "--report", "none"]);
    let run = profiler::finish(&mut command).success();
    assert!(run.stderr.contains("CAP_SYS_PTRACE is missing"), "{}", run.stderr);
}

#[test]
fn few_descriptors_are_enough() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let out = out_file("folded");
    let watch = Watch::keep(&[target.pid()]);
    let mut command = under(&["prlimit", "--nofile=64"]);
    command.args(["--all", "-F", "999", "-d", "3", "--report", "json", "-o"]).arg(&out);
    let run = profiler::finish(&mut command).success();
    let profile = profiler::read(&out, serde_json::from_str(&run.stdout).unwrap(), watch.end());
    let of_target = profile.folded.keep(|stack| stack[0] == "native");
    profile.assert_samples_of(&[target.pid()], of_target.total());
    assert_eq!(of_target.count(|s| s.iter().any(|f| f.starts_with("[unknown"))), 0, "{}", of_target.top(10));
}

/// Counts are the kernel's: they wait for whoever is stopped.
#[test]
fn a_profiler_that_is_stopped_for_seconds_loses_nothing() {
    if !is_root() {
        return;
    }
    let out = out_file("folded");
    let mut profiler = Command::new(binary());
    profiler.args(["-F", "999", "--report", "json", "-o"]).arg(&out).args(["--", "sh", "-c"]);
    profiler.arg("\"$0\" 300; echo ready; exec \"$0\" 2700").arg(native::program("short"));
    let mut profiler = Target::start(&mut profiler);
    profiler.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2_500));
    profiler.signal(Signal::CONT);
    let profile = profiler::read(&out, report_after_ready(&mut profiler), Watch::keep(&[]).end());
    // 3 s of CPU time, less what it took to begin twice.
    let work = profile.folded.within("short_lived_work").total();
    let right = 2_900 - profile.account("missed").min(2_900)..=3_030;
    assert!(right.contains(&work), "{work}:\n{}", profile.folded.top(5));
    assert_eq!(profile.folded.count(|stack| stack[0] == "[lost]"), 0, "{}", profile.folded.top(5));
}

/// What a tenant calls its programs reaches terminals, pictures and parsers.
#[test]
fn names_of_tenants_steer_no_terminal_and_no_browser() {
    if !is_root() {
        return;
    }
    // The program's file gives the process its name, too, and without symbols its frames.
    let evil = scratch("evil").join("\x1b[2J;\n<b>&\"x");
    std::fs::copy(native::program("native"), &evil).unwrap();
    assert!(Command::new("strip").arg(&evil).status().unwrap().success());
    let target = Target::start(&mut Command::new(&evil));
    let outs = ["svg", "folded", "pb.gz"].map(out_file);
    let pid = target.pid().to_string();
    let mut line = vec!["-vv", "-p", &pid, "-F", "999", "-d", "2"];
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
