//! Every JDK that apt provides: on the host, and in containers as another user with a read-only root file system. One
//! JVM of each JDK runs the program `Shares` for all checks.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use testkit::claims::{at_least, at_most, prove, seen};
use testkit::folded::{has, is, reaches_root};
use testkit::java::{
    Jdk, MainSlices, Program, burn_shares, has_unknown_frame_of_shares, in_container, on_host,
};
use testkit::profiler::{profile, run, short_slice, while_sampling};
use testkit::spent;
use testkit::target::Target;

#[test]
fn jdk_17_on_the_host() {
    on_host(17, |jdk| is_named_while_it_is_stopped(&is_true(jdk)));
}

#[test]
fn jdk_25_on_the_host() {
    on_host(25, |jdk| drop(is_true(jdk)));
}

#[test]
fn jdk_8_in_a_container() {
    in_container(8, |jdk| is_read_and_listed_without_its_socket(&mut is_true(jdk)));
}

#[test]
fn jdk_11_in_a_container() {
    in_container(11, |jdk| is_read_and_listed_without_its_socket(&mut is_true(jdk)));
}

#[test]
fn jdk_21_in_a_container() {
    in_container(21, |jdk| drop(is_true(jdk)));
}

#[test]
fn jdk_25_in_a_container() {
    in_container(25, |jdk| drop(is_true(jdk)));
}

#[test]
fn a_jvm_that_refuses_is_left_alone_and_named_on_jdk_8() {
    in_container(8, |jdk| refuses(jdk, &[ATTACH]));
}

#[test]
fn a_jvm_that_refuses_is_left_alone_and_named_on_jdk_11() {
    in_container(11, |jdk| refuses(jdk, &[ATTACH, LOADING]));
}

#[test]
fn a_jvm_that_refuses_is_left_alone_and_named_on_jdk_21() {
    in_container(21, |jdk| refuses(jdk, &[ATTACH, LOADING]));
}

#[test]
fn a_jvm_that_refuses_is_left_alone_and_named_on_jdk_25() {
    in_container(25, |jdk| refuses(jdk, &[ATTACH, LOADING]));
}

/// The same agent and helper run with Alpine's C library.
#[test]
#[ignore = "the only build for musl that registries have is in a package that is not free: scripts/jdk-roots.sh 17-musl"]
fn jdk_17_with_musl_in_a_container() {
    in_container("17-musl", |jdk| drop(is_true(jdk)));
}

/// Checks names, shares and roots, and that nothing is left behind. Returns the JVM, which has the agent.
fn is_true(jdk: &Jdk) -> Target {
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(jdk);
    let before = files(&tmp_of(&target));
    let mut slices = MainSlices::of(&target, &[]);
    names_shares_and_roots_are_true(&mut slices);
    is_reported(jdk, &target, &mut slices);
    is_listed(jdk, &target);
    let left = left_behind(jdk, &target, &before);
    assert!(left.is_empty(), "left behind in the target's /tmp: {left:?}");
    target
}

fn names_shares_and_roots_are_true(slices: &mut MainSlices<'_>) {
    let mut claims = burn_shares();
    claims.extend([
        at_least(0.95, "stacks that reach the root", reaches_root),
        // Generated code other than methods has its name too, where its JVMTI event is known to crash the JVM.
        at_most(0.005, "stacks with generated code without name", |stack| {
            stack.iter().any(|frame| frame.starts_with("[unknown: not logged"))
        }),
        at_most(0.005, "stacks with unknown frames", has_unknown_frame_of_shares),
        at_least(0.999, "stacks with callers before callees", |stack| {
            let at = |name: &str| stack.iter().position(|frame| is(frame, name));
            at("Shares.round").zip(at("Shares.burn40")).is_none_or(|(round, burn)| round < burn)
        }),
    ]);
    prove(|| slices.take(), &claims);
}

/// The report has a row for the JVM, with the source of its names.
fn is_reported(jdk: &Jdk, target: &Target, slices: &mut MainSlices<'_>) {
    let jvm = &slices.jvms()[0];
    assert_eq!(jvm["pid"], target.pid(), "{jvm}");
    assert_eq!(jvm["frame_pointers"], true, "{jvm}");
    assert!(jvm["names"]["agent_late"].is_object(), "names come from {}", jvm["names"]);
    assert_eq!(jvm["name"], "Shares", "{jvm}");
    assert!(is_of(jdk, jvm["version"].as_str().unwrap()), "{jvm}");
    has_compiled_code_from_before(slices);
}

/// Most hot code was compiled before the attach, because the program was warm. On a busy machine the compilers may still
/// work during the first slice; each slice attaches again.
fn has_compiled_code_from_before(slices: &mut MainSlices<'_>) {
    const MOST_SLICES: usize = 30;
    while !slices.jvms().iter().any(|jvm| jvm["compiled_before"].as_f64().is_some_and(|share| share > 0.5)) {
        assert!(slices.jvms().len() < MOST_SLICES, "{:?}", slices.jvms());
        slices.take();
    }
}

/// Whether a JVM's version is one of this JDK: `17.0.15+6`, `1.8.0_462-b08`.
fn is_of(jdk: &Jdk, version: &str) -> bool {
    let number = version.split(['.', '+', '-', 'u']).find(|number| *number != "1");
    number.and_then(|number| number.parse().ok()) == Some(jdk.version)
}

/// `jbpf-prof jvms` has a row for the JVM, with its user and its container.
fn is_listed(jdk: &Jdk, target: &Target) {
    let row = row_of(target);
    let [_, container, user, version, kept, attach, names, main] = row.each_ref().map(String::as_str);
    assert!(is_of(jdk, version), "{row:?}");
    assert_eq!([kept, attach, names, main], ["kept", "yes", "agent", "Shares"], "{row:?}");
    let owner = std::fs::metadata(format!("/proc/{}", target.pid())).unwrap().uid();
    assert!(if owner == 0 { user == "root" } else { user == owner.to_string() }, "{row:?}");
    let group = std::fs::read_to_string(format!("/proc/{}/cgroup", target.pid())).unwrap();
    assert!(
        if jdk.is_contained() { group.contains(container) } else { container == "-" },
        "{row:?}\n{group}"
    );
}

/// The cells of the JVM's row in `jbpf-prof jvms`: PID, CONTAINER, USER, VERSION, FRAME POINTERS, ATTACH, NAMES, MAIN.
/// At least two spaces stand between cells: other JVMs of the host make the columns wider.
fn row_of(target: &Target) -> [String; 8] {
    let table = run(["jvms"]).success().stdout;
    let pid = target.pid().to_string();
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let row = table.lines().map(cells).find(|row| row.first() == Some(&pid));
    let row = row.unwrap_or_else(|| panic!("{pid} is not in\n{table}"));
    row.try_into().unwrap_or_else(|row| panic!("{row:?} of\n{table}"))
}

/// Before JDK 14 a JVM whose socket a cleaner of `/tmp` took does not listen again: SIGQUIT prints a thread dump.
fn is_read_and_listed_without_its_socket(target: &mut Target) {
    let tmp = tmp_of(target);
    let sockets = files(&tmp).into_iter().filter(|name| name.starts_with(".java_pid"));
    let removed = sockets.map(|name| std::fs::remove_file(tmp.join(name)).unwrap()).count();
    assert_eq!(removed, 1, "this test did not test");
    let [.., attach, names, _] = row_of(target);
    assert_eq!([attach, names], ["no: no answer", "memory"]);
    let is_named = has("Shares.round");
    let slice = || {
        let read = short_slice(target, &[]);
        let jvm = &read.report["jvms"][0];
        assert!(jvm["names"]["memory"].is_object() && jvm["no_agent"]["label"] == "no answer", "{jvm}");
        read.folded
    };
    prove(slice, &[at_least(0.9, "stacks with the name", is_named)]);
    is_undisturbed(target);
}

/// The JVM lives, and has printed nothing by itself.
fn is_undisturbed(target: &mut Target) {
    assert!(target.is_alive());
    assert_eq!(target.lines(), ["ready"], "nothing was printed by the JVM");
}

/// Code of a JVM has names if the JVM is stopped during the run or before it. Leaves the JVM stopped.
fn is_named_while_it_is_stopped(target: &Target) {
    let pid = target.pid().to_string();
    let run_and_stop = || {
        let ran = while_sampling(&[], &["--pid", &pid, "--java", "vm"], || {
            target.signal(Signal::CONT);
            spent::spend(target.pid(), Duration::from_millis(500));
            target.signal(Signal::STOP);
            // The window ends while the JVM is stopped.
            std::thread::sleep(Duration::from_millis(1_000));
        });
        let jvm = &ran.report["jvms"][0];
        assert!(jvm["names"]["memory"].is_object(), "{jvm}");
        ran.folded
    };
    let burns = |stack: &[String]| stack.iter().any(|frame| frame.starts_with("Shares.burn"));
    prove(run_and_stop, &[seen(201, "stacks", |_| true), at_least(0.9, "stacks with names", burns)]);

    let stopped = profile(target, 1, &["--java", "vm"]);
    assert_eq!(stopped.folded.total(), 0, "it does not run:\n{}", stopped.folded.top(5));
    let jvm = &stopped.report["jvms"][0];
    assert!(jvm["pid"] == target.pid() && jvm["names"]["memory"].is_object(), "{}", stopped.report["jvms"]);
}

/// Flags that forbid an agent, with the label that says so.
const ATTACH: (&str, &str) = ("-XX:+DisableAttachMechanism", "attach disabled");
const LOADING: (&str, &str) = ("-XX:-EnableDynamicAgentLoading", "agent loading disabled");

fn refuses(jdk: &Jdk, flags: &[(&str, &str)]) {
    for (flag, label) in flags {
        // The JVM need not be warm.
        let mut target = Program::new("Shares").flags(&[flag]).args(&["1"]).start(jdk);
        let profile = profile(&target, 1, &[]);
        let jvm = &profile.report["jvms"][0];
        assert!(jvm["names"]["memory"].is_object() && jvm["no_agent"]["label"] == *label, "{jvm}");
        let [.., attach, _, _] = row_of(&target);
        assert_eq!(attach, format!("no: {label}"));
        is_undisturbed(&mut target);
    }
}

/// The program's `/tmp`: the host's, or that of its container.
fn tmp_of(target: &Target) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/tmp", target.pid()))
}

/// The files that an attach left in a JVM's `/tmp`. In the host's `/tmp`, other tests attach to other JVMs meanwhile:
/// there a file is this JVM's if the JVM has mapped it.
fn left_behind(jdk: &Jdk, target: &Target, before: &BTreeSet<String>) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    assert!(maps.contains("/.jvm-symbols-"), "it has loaded no agent:\n{maps}");
    let is_own = |name: &String| match name.strip_prefix(".attach_pid") {
        Some(pid) => pid.parse().is_ok_and(|pid| target.has_pid(pid)),
        None => name.starts_with(".jvm-symbols-") && (jdk.is_contained() || maps.contains(name.as_str())),
    };
    let after = files(&tmp_of(target));
    after.difference(before).filter(|&name| is_own(name)).cloned().collect()
}

fn files(dir: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}
