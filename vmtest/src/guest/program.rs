//! The profiled programs.

use std::ffi::OsStr;
use std::process::Command;

use crate::plan::PAYLOAD;

/// Start of a command that leaves the CPUs to other processes. Busy programs get their work done anyway, and the
/// profiler need not share with six of them: its start takes seconds on an emulated CPU. `Target` starts programs at nice 5.
pub(super) const LEISURELY: [&str; 3] = ["nice", "-n", "10"];

/// A command with low priority.
pub(super) fn leisurely(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(LEISURELY[0]);
    command.args(&LEISURELY[1..]).arg(program);
    command
}

/// A compiled program of `tests/programs`.
pub(super) fn native(name: &str) -> Command {
    leisurely(path(name))
}

/// The path of that program.
pub(super) fn path(name: &str) -> String {
    format!("{PAYLOAD}/native/{name}")
}
