//! Shared code of the end-to-end tests: programs of known truth, the profiler as its users run it, and a separate
//! parser of its output. Nothing here uses the product's modules.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

pub mod browser;
pub mod cgroup;
pub mod claims;
pub mod container;
pub mod folded;
pub mod java;
pub mod manifest;
pub mod native;
pub mod nobody;
pub mod otlp;
pub mod packed;
pub mod profiler;
pub mod reasons;
pub mod schema;
pub mod spent;
pub mod target;
pub mod tmux;
pub mod waits;
pub mod wald;

use std::path::PathBuf;
use std::process::Command;

/// The repository's root, as it was at build time.
pub fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// The directory in which cargo builds this test's profile.
pub fn profile_dir() -> PathBuf {
    // A test binary is in the directory `deps` below it.
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// The directory with the sources of profiled programs.
pub fn sources() -> PathBuf {
    repository().join("tests/programs")
}

/// A directory for the files of the calling source file; each of its tests uses its own part.
#[track_caller]
pub fn scratch(part: &str) -> PathBuf {
    let file = std::panic::Location::caller().file().trim_end_matches(".rs");
    let names = file.split('/').filter(|name| !["..", ".", "tests", "src", ""].contains(name));
    let own = names.collect::<Vec<_>>().join("-");
    let dir = profile_dir().join("tmp").join(own).join(part);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Go's tool. Its cache of builds is that of the user, or a common one if the user has no home directory.
pub fn go() -> Command {
    let mut go = Command::new("go");
    let has_home = std::env::home_dir().is_some_and(|home| home.is_dir());
    if !has_home && std::env::var_os("GOCACHE").is_none() {
        go.env("GOCACHE", std::env::temp_dir().join(format!("go-{}", rustix::process::getuid().as_raw())));
    }
    go
}

/// Whether this machine lacks a program that a test needs; if so, prints that.
pub fn lacks(program: &str) -> bool {
    let lacks = Command::new(program).arg("--version").output().is_err();
    if lacks {
        skip(&format!("there is no {program} on this machine"));
    }
    lacks
}

/// Prints that the test cannot run here, and why; with `CI=true` that is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "with CI=true nothing is skipped, but: {why}");
    eprintln!("SKIP: {why}");
}

/// Whether the test may go on: the profiler needs root.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("the profiler needs root");
    }
    root
}
