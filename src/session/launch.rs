//! `-- CMD ARGS`: a command that is profiled from its first instruction.
//!
//! The child is this binary again (`__launch`), which waits for a byte on a pipe and then becomes the command: by then
//! its pid is in the filter. Standard input, output and error are the command's own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::Context;
use rustix::io::{FdFlags, fcntl_setfd};

/// The hidden first argument of the waiting child.
pub const ARGUMENT: &str = "__launch";

/// A started command that waits for [`Launched::go`].
pub struct Launched {
    child: Child,
    gate: Option<OwnedFd>,
}

impl Launched {
    /// Starts the waiting child.
    ///
    /// # Errors
    /// When no process can be made.
    pub fn start(binary: &Path, command: &[OsString]) -> anyhow::Result<Launched> {
        let (wait, gate) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("pipe")?;
        // Inherited through the first exec; the child closes it before the second.
        fcntl_setfd(&wait, FdFlags::empty()).context("pipe")?;
        let child = Command::new(binary)
            .arg(ARGUMENT)
            .arg(wait.as_raw_fd().to_string())
            .args(command)
            .spawn()
            .with_context(|| {
                format!("starting {}", command.first().map_or("", |c| c.to_str().unwrap_or("?")))
            })?;
        Ok(Launched { child, gate: Some(gate) })
    }

    /// The command's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the command begin.
    pub fn go(&mut self) {
        if let Some(gate) = self.gate.take() {
            // If the child is gone there is nobody to tell; `ended` will say so.
            let _ = rustix::io::write(&gate, &[1]);
        }
    }

    /// Whether the command has ended, and how.
    pub fn ended(&mut self) -> Option<io::Result<std::process::ExitStatus>> {
        self.child.try_wait().transpose()
    }
}

/// The child's way: waits for its gate, then becomes the command. Returns only if it cannot, with the exit code that
/// shells use for it.
#[must_use]
pub fn child_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let Some(fd) = args.next().and_then(|a| a.to_str().and_then(|a| a.parse::<i32>().ok())) else { return 2 };
    let Some(command) = args.next() else { return 2 };
    if !wait_at(fd) {
        return 1; // the profiler went away before it began
    }
    let error = Command::new(&command).args(args).exec();
    complain(&command, &error);
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn complain(command: &OsStr, error: &io::Error) {
    use std::io::Write;
    // Standard error may be closed: then there is nobody to tell.
    let _ = writeln!(io::stderr(), "jbpf-prof: cannot run {}: {error}", command.display());
}

#[allow(unsafe_code)]
fn wait_at(fd: i32) -> bool {
    // SAFETY: the descriptor was inherited for this purpose only, by our own parent; nothing else here owns it.
    let gate = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut byte = [0u8; 1];
    matches!(rustix::io::retry_on_intr(|| rustix::io::read(&gate, &mut byte)), Ok(1))
}
