//! Every JDK that apt can bring: on the host, and in containers as another user with a read-only root file system.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::assert_share;
use common::folded::{is, reaches_root};
use common::java::{Jdk, Program, in_container, on_host};
use common::profiler::{main_thread, profile};
use common::target::Target;

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

/// Alpine's C library: the agent and the helper are the same.
#[test]
#[ignore = "the only build for musl that registries have is in a package that is not free: scripts/jdk-roots.sh 17-musl"]
fn jdk_17_with_musl_in_a_container() {
    in_container("17-musl", is_true);
}

/// Names, shares, roots, and nothing left behind.
fn is_true(jdk: &Jdk) {
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(jdk);
    let tmp = format!("/proc/{}/root/tmp", target.pid());
    let before = files(Path::new(&tmp));

    let first = profile(&target, 2, &[]);
    let jvm = &first.report["jvms"][0];
    assert_eq!(jvm["pid"], target.pid(), "{jvm}");
    assert_eq!(jvm["frame_pointers"], true, "{jvm}");
    assert!(jvm["names"]["agent_late"].is_object(), "names come from {}", jvm["names"]);

    let main = main_thread(&target, &[]);
    for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
        assert_share(name, main.self_share(&format!("Shares.{name}")), truth, main.total());
    }
    let rooted = main.share(reaches_root);
    assert!(rooted > 0.95, "only {rooted} of the stacks reach the root:\n{}", main.top(10));
    // Generated code that is no method has its name, too, where its event is known to crash the JVM.
    let not_logged = main.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown: not logged")));
    assert!(not_logged < 0.005, "{not_logged} has generated code without name:\n{}", main.top(10));
    // Libraries without symbols (Debian's libc, the libjvm of 8) stand before the program's own frames.
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

/// Whether a file is of an attach that is over. On the host `/tmp` is that of other tests, too, which attach meanwhile.
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
