//! Every JDK that apt provides: on the host, and in containers as another user with a read-only root file system.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use testkit::assert_share;
use testkit::folded::{is, reaches_root};
use testkit::java::{Jdk, Program, in_container, on_host};
use testkit::profiler::{main_thread, profile, run};
use testkit::target::Target;

#[test]
fn jdk_17_on_the_host() {
    on_host(17, is_true);
}

#[test]
fn jdk_25_on_the_host() {
    on_host(25, is_true);
}

#[test]
fn jdk_8_in_a_container() {
    in_container(8, is_true);
}

#[test]
fn jdk_11_in_a_container() {
    in_container(11, is_true);
}

#[test]
fn jdk_21_in_a_container() {
    in_container(21, is_true);
}

#[test]
fn jdk_25_in_a_container() {
    in_container(25, is_true);
}

#[test]
fn a_jvm_that_refuses_is_left_alone_and_named() {
    const ATTACH: (&str, &str) = ("-XX:+DisableAttachMechanism", "attach disabled");
    const LOADING: (&str, &str) = ("-XX:-EnableDynamicAgentLoading", "agent loading disabled");
    in_container(8, |jdk| refuses(jdk, &[ATTACH]));
    for version in [11, 21, 25] {
        in_container(version, |jdk| refuses(jdk, &[ATTACH, LOADING]));
    }
}

/// The same agent and helper run with Alpine's C library.
#[test]
#[ignore = "the only build for musl that registries have is in a package that is not free: scripts/jdk-roots.sh 17-musl"]
fn jdk_17_with_musl_in_a_container() {
    in_container("17-musl", is_true);
}

/// Checks names, shares and roots, and that nothing is left behind.
fn is_true(jdk: &Jdk) {
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(jdk);
    let tmp = format!("/proc/{}/root/tmp", target.pid());
    let before = files(Path::new(&tmp));

    let first = profile(&target, 2, &[]);
    let jvm = &first.report["jvms"][0];
    assert_eq!(jvm["pid"], target.pid(), "{jvm}");
    assert_eq!(jvm["frame_pointers"], true, "{jvm}");
    assert!(jvm["names"]["agent_late"].is_object(), "names come from {}", jvm["names"]);
    assert_eq!(jvm["name"], "Shares", "{jvm}");
    assert!(is_of(jdk, jvm["version"].as_str().unwrap()), "{jvm}");
    // Most hot code was compiled before, because the program was warm.
    assert!(jvm["compiled_before"].as_f64().is_some_and(|share| share > 0.5), "{jvm}");
    is_listed(jdk, &target);

    let main = main_thread(&target, &[]);
    for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
        assert_share(name, main.self_share(&format!("Shares.{name}")), truth, main.total());
    }
    let rooted = main.share(reaches_root);
    assert!(rooted > 0.95, "only {rooted} of the stacks reach the root:\n{}", main.top(10));
    // Generated code other than methods has its name too, where its JVMTI event is known to crash the JVM.
    let not_logged = main.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown: not logged")));
    assert!(not_logged < 0.005, "{not_logged} has generated code without name:\n{}", main.top(10));
    // Libraries without symbols (Debian's libc, the libjvm of 8) come before the program's own frames.
    let unknown = main.share(|stack| {
        let own = stack.iter().position(|frame| frame.starts_with("Shares.")).unwrap_or(0);
        stack[own..].iter().any(|frame| frame.starts_with("[unknown"))
    });
    assert!(unknown < 0.005, "{unknown} has unknown frames:\n{}", main.top(10));
    let order = main.share(|stack| {
        let at = |name: &str| stack.iter().position(|frame| is(frame, name));
        at("Shares.round").zip(at("Shares.burn40")).is_none_or(|(round, burn)| round < burn)
    });
    assert!(order > 0.999, "callers stand before callees");

    let after = files(Path::new(&tmp));
    let left: Vec<_> = after.difference(&before).filter(|name| is_left(name, &target)).collect();
    assert!(left.is_empty(), "left behind in the target's /tmp: {left:?}");
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
    let row = table.lines().map(cells).find(|row| row[0] == pid);
    let row = row.unwrap_or_else(|| panic!("{pid} is not in\n{table}"));
    row.try_into().unwrap_or_else(|row| panic!("{row:?} of\n{table}"))
}

/// Before JDK 14 a JVM whose socket a cleaner of `/tmp` took does not listen again: SIGQUIT prints a thread dump.
#[test]
fn an_old_jvm_whose_socket_is_gone_is_read_and_listed_as_such() {
    for version in [8, 11] {
        in_container(version, |jdk| {
            let mut target = Program::new("Shares").start(jdk);
            let first = profile(&target, 1, &[]);
            assert!(first.report["jvms"][0]["names"]["agent_late"].is_object(), "{}", first.report["jvms"]);
            let tmp = format!("/proc/{}/root/tmp", target.pid());
            let sockets = files(Path::new(&tmp)).into_iter().filter(|name| name.starts_with(".java_pid"));
            let removed =
                sockets.map(|name| std::fs::remove_file(Path::new(&tmp).join(name)).unwrap()).count();
            assert_eq!(removed, 1, "this test did not test");
            let [.., attach, names, _] = row_of(&target);
            assert_eq!([attach, names], ["no: no answer", "memory"]);
            let read = profile(&target, 1, &[]);
            let jvm = &read.report["jvms"][0];
            assert!(jvm["names"]["memory"].is_object() && jvm["no_agent"]["label"] == "no answer", "{jvm}");
            let named = read.folded.share(|stack| stack.iter().any(|frame| is(frame, "Shares.round")));
            assert!(named > 0.9, "{named}:\n{}", read.folded.top(5));
            assert!(target.is_alive());
            assert_eq!(target.lines(), ["ready"], "nothing was printed by the JVM");
        });
    }
}

fn refuses(jdk: &Jdk, flags: &[(&str, &str)]) {
    for (flag, label) in flags {
        let mut target = Program::new("Shares").flags(&[flag]).start(jdk);
        let profile = profile(&target, 1, &[]);
        let jvm = &profile.report["jvms"][0];
        assert!(jvm["names"]["memory"].is_object() && jvm["no_agent"]["label"] == *label, "{jvm}");
        let [.., attach, _, _] = row_of(&target);
        assert_eq!(attach, format!("no: {label}"));
        assert!(target.is_alive());
        assert_eq!(target.lines(), ["ready"], "nothing was printed by the JVM");
    }
}

/// Whether a file is left of an attach that is over. On the host other tests use `/tmp` too and attach meanwhile.
fn is_left(name: &str, target: &Target) -> bool {
    let own = name.strip_prefix(".attach_pid").and_then(|pid| pid.parse().ok());
    let maker = name.strip_prefix(".jvm-symbols-").and_then(|rest| rest.split('-').next());
    let is_alive = |pid: &str| Path::new("/proc").join(pid).exists();
    own.is_some_and(|pid: u32| target.has_pid(pid)) || maker.is_some_and(|maker| !is_alive(maker))
}

fn files(dir: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}
