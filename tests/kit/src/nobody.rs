//! Programs that run as an ordinary user.

use std::process::Command;

/// Uid and gid of the user nobody in Debian.
pub const NOBODY: u32 = 65_534;
/// Runs the following words as nobody.
pub const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A command that runs its arguments as nobody.
pub fn as_nobody() -> Command {
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]);
    command
}
