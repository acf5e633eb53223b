//! Every JDK that apt can bring: on the host, and in containers as another user with a read-only root file system.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::folded::{is, reaches_root};
use common::java::{Jdk, Program};
use common::profiler::{main_thread, profile};
use common::{assert_share, container, is_root, skip};

#[test]
fn jdk_17_on_the_host() {
    on_host(17);
}

#[test]
fn jdk_25_on_the_host() {
    on_host(25);
}

#[test]
fn jdk_8_in_a_container() {
    in_container(8);
}

#[test]
fn jdk_11_in_a_container() {
    in_container(11);
}

#[test]
fn jdk_21_in_a_container() {
    in_container(21);
}

#[test]
fn jdk_25_in_a_container() {
    in_container(25);
}

fn on_host(version: u32) {
    if !is_root() {
        return;
    }
    match Jdk::on_host(version) {
        Some(jdk) => is_true(&jdk),
        // The host has what its distribution brings; containers have the rest.
        None => eprintln!("this host has no JDK {version}"),
    }
}

fn in_container(version: u32) {
    if !is_root() {
        return;
    }
    match Jdk::in_root(version) {
        _ if !container::available() => skip("containers need runc"),
        None => skip(&format!("no root file system with JDK {version}: scripts/jdk-roots.sh")),
        Some(jdk) => is_true(&jdk),
    }
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

    let main = main_thread(&target);
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
    let left: Vec<_> =
        after.difference(&before).filter(|name| name.contains("jvm") || name.contains("attach")).collect();
    assert!(left.is_empty(), "left behind in the target's /tmp: {left:?}");
}

fn files(dir: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}
