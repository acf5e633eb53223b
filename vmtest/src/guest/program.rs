//! Programs that are profiled.

use std::ffi::OsStr;
use std::process::Command;

use crate::plan::PAYLOAD;

/// The start of a command that leaves the CPUs to whoever else wants them. Busy programs do what they do all the same, and
/// the profiler, whose start an emulated CPU takes seconds for, need not share with six of them.
pub(super) const LEISURELY: [&str; 3] = ["nice", "-n", "15"];

/// A command that is leisurely.
pub(super) fn leisurely(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(LEISURELY[0]);
    command.args(&LEISURELY[1..]).arg(program);
    command
}

/// A program of `tests/programs`, compiled.
pub(super) fn native(name: &str) -> Command {
    leisurely(path(name))
}

/// Where it is.
pub(super) fn path(name: &str) -> String {
    format!("{PAYLOAD}/native/{name}")
}
