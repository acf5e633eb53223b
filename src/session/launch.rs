//! `-- CMD ARGS`: a command that is profiled from its first instruction.
//!
//! The child is this binary again (`__launch`), which waits for a byte on a socket and then becomes the command: by then
//! its pid is in the filter. If it cannot, it answers with the error's number; else the socket closes by itself. Standard
//! input, output and error are the command's own.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::Context;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::failure::Failure;

/// The hidden first argument of the waiting child.
pub const ARGUMENT: &str = "__launch";

/// A started command that waits for [`Launched::go`].
pub struct Launched {
    child: Child,
    command: String,
    socket: OwnedFd,
    gone: bool,
}

impl Launched {
    /// Starts the waiting child.
    ///
    /// # Errors
    /// When no process can be made.
    pub fn start(binary: &Path, command: &[OsString]) -> anyhow::Result<Launched> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .context("socket pair")?;
        // Inherited through the first exec; the second closes it.
        fcntl_setfd(&theirs, FdFlags::empty()).context("socket pair")?;
        let name = command.first().map_or(String::new(), |first| first.display().to_string());
        let child = Command::new(binary)
            .arg(ARGUMENT)
            .arg(theirs.as_raw_fd().to_string())
            .args(command)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Launched { child, command: name, socket, gone: false })
    }

    /// The command's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the command begin.
    pub fn go(&mut self) {
        if !std::mem::replace(&mut self.gone, true) {
            // If the child is gone there is nobody to tell; `has_ended` will say so.
            let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL);
        }
    }

    /// Whether the command was executed, as far as is known by now.
    ///
    /// # Errors
    /// Why it was not.
    pub fn was_run(&self) -> Result<(), Failure> {
        let mut number = [0; 4];
        match recv(&self.socket, &mut number, RecvFlags::DONTWAIT) {
            Ok((_, 4)) => {
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
                Err(Failure::target(format!("cannot run {}: {error}", self.command)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the command has ended. It is not waited for: the kernel would count its CPU time as ours.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), look), Ok(None))
    }
}

/// The child's way: waits for its gate, then becomes the command. Returns only if it cannot, with the exit code that
/// shells use for it.
#[must_use]
pub fn child_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let Some(fd) = args.next().and_then(|a| a.to_str().and_then(|a| a.parse::<i32>().ok())) else { return 2 };
    let Some(command) = args.next() else { return 2 };
    let Some(socket) = wait_at(fd) else { return 1 }; // the profiler went away before it began
    let error = Command::new(&command).args(args).exec();
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    // If the profiler is gone there is nobody to tell.
    let _ = send(&socket, &number.to_ne_bytes(), SendFlags::NOSIGNAL);
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// Waits for the word to begin; gives the socket, which the next exec closes.
#[allow(unsafe_code)]
fn wait_at(fd: i32) -> Option<OwnedFd> {
    // SAFETY: the descriptor was inherited for this purpose only, by our own parent; nothing else here owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut byte = [0u8; 1];
    let word = rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut byte));
    (matches!(word, Ok(1)) && fcntl_setfd(&socket, FdFlags::CLOEXEC).is_ok()).then_some(socket)
}
