//! The DaemonSet's capabilities: without each one, the losses are those in the table of `docs/kubernetes.md`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testkit::claims::{StackClaim, at_least, at_most, prove};
use testkit::folded::Folded;
use testkit::java::{Jdk, Program, classes};
use testkit::nobody::{AS_NOBODY, NOBODY, as_nobody};
use testkit::profiler::{self, binary};
use testkit::target::Target;
use testkit::{is_root, manifest, native, scratch};

/// The manifest's capabilities, except these, as `setpriv` spells a set.
fn set_without(left_out: &[&str]) -> String {
    let names = manifest::listed("add").into_iter().map(|name| name.to_lowercase());
    let kept = names.filter(|name| !left_out.contains(&name.as_str()));
    kept.fold("-all".to_owned(), |set, name| set + ",+" + &name)
}

/// The profiler with the manifest's capabilities, except these.
fn without(left_out: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={}", set_without(left_out))).arg(binary());
    command
}

/// A directory whose files the user nobody can read and execute, wherever this repository is.
fn for_nobody() -> tempfile::TempDir {
    let own = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    own
}

/// The command that starts a JVM whose classes are in another directory.
fn java_with_classes(at: &str) -> Vec<String> {
    let line = Program::new("Shares").host_command(&Jdk::host());
    line.iter().map(|arg| arg.replace(classes().to_str().unwrap(), at)).collect()
}

/// A copy of the program `native` that the user nobody runs under a name that no other test has, in a directory with
/// this mode.
fn copy(name: &str, mode: u32) -> (Target, PathBuf) {
    let dir = scratch(name);
    let file = dir.join(name);
    native::copy(&native::program("native"), &file);
    for path in [&file, &dir] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    (Target::start(as_nobody().arg(&file)), file)
}

/// The same, in a file system that only this program sees.
fn in_its_own_mounts(name: &str) -> Target {
    let dir = scratch(name);
    let file = dir.join(name);
    let script = format!(
        "mount -t tmpfs own {dir} && chmod 755 {dir} && cp {} {file} && exec {} {file}",
        native::program("native").display(),
        AS_NOBODY.join(" "),
        dir = dir.display(),
        file = file.display(),
    );
    Target::start(Command::new("unshare").args(["--mount", "sh", "-c", &script]))
}

/// A profile of all processes for a second, with these capabilities left out. JVMs of other tests are left alone.
fn profile(left_out: &[&str], event: &str) -> Folded {
    let line = ["-a", "--java", "off", "-e", event, "-F", "2999", "-d", "1", "-o", "-", "--report", "none"];
    let run = profiler::finish(without(left_out).args(line));
    Folded::parse(&run.success().stdout)
}

/// The claim that nine of ten stacks of a program have a frame with this beginning and end, or that they do not.
fn named<'a>(program: &'a str, (start, end): (&'a str, &'a str), are: bool) -> StackClaim<'a> {
    let what = format!("stacks of {program} with a frame {start}...{end}");
    let has = move |stack: &[String]| stack.iter().any(|f| f.starts_with(start) && f.ends_with(end));
    let claim = if are { at_least(0.9, what, has) } else { at_most(0.9, what, has) };
    claim.among(move |stack| stack[0] == program)
}

#[test]
fn what_is_lost_without_each() {
    if !is_root() {
        return;
    }
    const OPEN: &str = "cap-open";
    const PRIVATE: &str = "cap-private";
    const DELETED: &str = "cap-deleted";
    const CONTAINED: &str = "cap-contained";
    let (_open, _) = copy(OPEN, 0o755);
    let (_private, _) = copy(PRIVATE, 0o700);
    let (_deleted, file) = copy(DELETED, 0o755);
    fs::remove_file(file).unwrap();
    let _contained = in_its_own_mounts(CONTAINED);
    let (_kernel, kernel) = native::start_under_own_name("kernel");
    let kernel = kernel.as_str();
    for (left_out, lost) in [
        (None, &[][..]),
        (Some("sys_ptrace"), &[DELETED, CONTAINED]),
        (Some("dac_read_search"), &[PRIVATE, DELETED]),
        (Some("checkpoint_restore"), &[DELETED]),
        (Some("syslog"), &[kernel]),
    ] {
        let mut claims: Vec<StackClaim<'_>> = [OPEN, PRIVATE, DELETED, CONTAINED]
            .map(|program| named(program, ("burn", ""), !lost.contains(&program)))
            .into();
        claims.push(named(kernel, ("read_", "_[k]"), !lost.contains(&kernel)));
        if left_out == Some("syslog") {
            claims.push(named(kernel, ("[kernel]", ""), true));
        }
        // Without the mappings of a process its unwind tables are not loaded.
        claims.push(named(OPEN, ("main", ""), left_out != Some("sys_ptrace")));
        eprintln!("without {left_out:?}:");
        prove(|| profile(left_out.as_slice(), "cpu"), &claims);
    }
}

#[test]
fn waits_have_no_reason_without_the_kernels_symbols() {
    if !is_root() {
        return;
    }
    let _sleeps = ["exec sleep 60", "while :; do sleep 0.02; done"]
        .map(|script| Target::start(Command::new("sh").args(["-c", &format!("echo ready; {script}")])));
    for (left_out, is_hidden) in [(&[][..], false), (&["syslog"], true)] {
        let folded = profile(left_out, "wait");
        let of = |leaf: &str| folded.count(|stack| stack.last().is_some_and(|last| last.contains(leaf)));
        let [hidden, timers, invented] = ["kernel hidden]", "timer]", "in [kernel]"].map(of);
        assert!(folded.total() > 100, "{}", folded.top(5));
        assert_eq!((hidden > 0, timers == 0, invented), (is_hidden, is_hidden, 0), "{}", folded.top(5));
    }
}

/// Where the names of a JVM come from, in the report of this profiler.
fn names(mut profiler: Command, java_by: &str, java: &Target) -> Value {
    profiler.args(["--java", java_by, "-d", "100ms", "--report", "json", "-o", "/dev/null"]);
    let run = profiler::finish(profiler.args(["-p", &java.pid().to_string()])).success();
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    report["jvms"][0]["names"].clone()
}

#[test]
fn a_user_with_the_capabilities_attaches_to_a_jvm_of_root() {
    if !is_root() {
        return;
    }
    let java = Program::new("Shares").start(&Jdk::host());
    let own = for_nobody();
    let copied = own.path().join("jbpf-prof");
    native::copy(&binary(), &copied);
    let set = set_without(&[]);
    let mut profiler = as_nobody();
    profiler.args(["--inh-caps", &set, "--ambient-caps", &set]).arg(copied);
    let attached = names(profiler, "agent", &java);
    assert!(attached["agent_late"].is_object(), "{attached}");
}

#[test]
fn the_helper_has_no_capability_in_the_place_of_a_jvm_of_root() {
    if !is_root() {
        return;
    }
    // Only with a capability, root can write into this directory.
    let tmp = format!("mount -t tmpfs -o uid={NOBODY},mode=755 own /tmp");
    let line = java_with_classes("/mnt").join(" ");
    let script = format!("mount --bind {} /mnt && {tmp} && exec {line}", classes().display());
    let java = Target::start(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    let refused = names(Command::new(binary()), "agent", &java);
    assert_eq!(refused["refused"]["label"], "tmp not writable", "{refused}");
}

#[test]
fn the_agent_takes_the_ids_of_a_jvm_and_without_that_its_memory_is_read() {
    if !is_root() {
        return;
    }
    let own = for_nobody();
    for entry in fs::read_dir(classes()).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), own.path().join(entry.file_name())).unwrap();
    }
    let java = Target::start(as_nobody().args(java_with_classes(own.path().to_str().unwrap())));
    let names = |java_by: &str, left_out: &[&str]| names(without(left_out), java_by, &java);
    for id in ["setuid", "setgid"] {
        let refused = names("agent", &[id]);
        assert_eq!(refused["refused"]["label"], "not permitted", "without {id}: {refused}");
        for java in ["vm", "auto"] {
            let read = names(java, &[id]);
            assert!(read["memory"].is_object(), "--java {java} without {id}: {read}");
        }
    }
    let attached = names("agent", &[]);
    assert!(attached["agent_late"].is_object(), "{attached}");
}

#[test]
fn it_starts_in_the_hosts_pid_namespace_only() {
    if !is_root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(binary());
    profiler::finish(command.args(["-a", "-d", "1", "-o", "-"])).refused(3, "pid namespace");
}
