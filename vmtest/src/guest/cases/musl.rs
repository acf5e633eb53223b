//! The agent in a program with another libc: musl's dynamic linker loads the agent, and the program runs on.

use std::process::Command;

use anyhow::ensure;

use super::super::profiler;
use super::super::program::path;
use crate::plan::{Found, PAYLOAD};

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let loader = path("loader-musl");
    let agent = format!("{PAYLOAD}/libjvm_symbols_agent.so");
    let output = Command::new(&loader).arg(&agent).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said == "0 0 0\n", "the loader said {said:?}, {}", output.status);
    let again = format!("for i in $(seq 100); do {loader} {agent}; done >/dev/null");
    let all = profiler::record(&["-F", "999", "--", "sh", "-c", &again])?.folded;
    let samples = all.count(|stack| stack[0] == "loader-musl");
    let linker =
        all.count(|stack| stack.iter().any(|frame| frame.contains("ld-musl") || frame.contains("dlopen")));
    let mut found = Found { samples, ..Found::default() };
    found.figure("in_linker", linker as f64);
    Ok(found)
}
