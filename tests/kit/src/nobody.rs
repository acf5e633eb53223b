//! Programs of an ordinary user.

use std::process::Command;

/// Nobody's uid and gid in Debian.
pub const NOBODY: u32 = 65_534;
/// Runs what follows as nobody.
pub const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A command that runs what its arguments say as nobody.
pub fn as_nobody() -> Command {
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]);
    command
}
