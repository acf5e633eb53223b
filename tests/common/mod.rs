//! What the end-to-end tests share: programs with known truth, the profiler as its users run it, and its output read
//! by a parser of our own. Nothing here knows the product's modules.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

pub(crate) mod cgroup;
pub(crate) mod container;
pub(crate) mod folded;
pub(crate) mod java;
pub(crate) mod manifest;
pub(crate) mod native;
pub(crate) mod nobody;
pub(crate) mod profiler;
pub(crate) mod spent;
pub(crate) mod target;

use std::path::PathBuf;

/// Where sources of profiled programs are.
pub(crate) fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A directory for what this test binary makes; each test names its own part.
pub(crate) fn scratch(part: &str) -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(binary.file_name().unwrap()).join(part);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Whether this machine lacks a program that a test needs, which is said.
pub(crate) fn lacks(program: &str) -> bool {
    let lacks = std::process::Command::new(program).arg("--version").output().is_err();
    if lacks {
        skip(&format!("there is no {program} on this machine"));
    }
    lacks
}

/// Says that the test cannot run here, and why; with `CI=true` that is a failure.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "with CI=true nothing is skipped, but: {why}");
    eprintln!("SKIP: {why}");
}

/// Whether the test may go on: the profiler needs root.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("the profiler needs root");
    }
    root
}

/// Asserts that a measured share is the true one, within half a point and what chance explains of `n` samples.
#[track_caller]
pub(crate) fn assert_share(what: &str, share: f64, truth: f64, n: u64) {
    assert!(n >= 4_000, "{what}: {n} samples are too few to tell");
    let tolerance = 0.005 + 4.0 * (truth * (1.0 - truth) / n as f64).sqrt();
    assert!(
        (share - truth).abs() <= tolerance,
        "{what}: {:.2} % of {n} samples, but the truth is {:.2} % ± {:.2}",
        share * 100.0,
        truth * 100.0,
        tolerance * 100.0
    );
}
