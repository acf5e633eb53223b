//! `jbpf-prof diff` on real programs: its verdict and its exit code.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::profiler::{binary, out_file, run};
use testkit::target::Target;
use testkit::{is_root, native};

/// The difference of two profiles as JSON, and the exit code.
fn diff(before: &Path, after: &Path) -> (serde_json::Value, i32) {
    let output = Command::new(binary())
        .arg("diff")
        .args([before, after])
        .args(["--fail-above", "20%", "-o", "-", "--format", "json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let difference = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (difference, output.status.code().unwrap())
}

/// A page of a program.
fn page(program: &str) -> PathBuf {
    let target = Target::start(&mut Command::new(native::program(program)));
    let file = out_file("html");
    let (pid, name) = (target.pid().to_string(), file.to_str().unwrap());
    run(["-F", "499", "-d", "2", "-p", &pid, "--report", "none", "-o", name]).success();
    file
}

#[test]
fn the_same_program_is_unchanged_and_another_one_is_a_change() {
    if !is_root() {
        return;
    }
    let [first, second, other] = ["native", "native", "kernel"].map(page);
    let (same, code) = diff(&first, &second);
    assert!(same["before"]["samples"].as_u64().unwrap() > 100, "{same}");
    assert_eq!((same["verdict"].as_str(), code), (Some("unchanged"), 0), "{same}");
    let (changed, code) = diff(&first, &other);
    assert_eq!((changed["verdict"].as_str(), code), (Some("changed"), 5), "{changed}");
}
