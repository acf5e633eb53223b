//! `-- CMD ARGS`: a command that is profiled from its first instruction.
//!
//! The child is this binary again (`__launch`). The child waits for a byte on a socket, and then executes the command;
//! by then its pid is in the filter. If exec fails, the child sends the errno; otherwise exec closes the socket. The
//! command inherits standard input, output and error.

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

/// A child that waits for [`Launched::release`] and then executes the command.
pub struct Launched {
    child: Child,
    command: String,
    socket: OwnedFd,
    released: bool,
}

impl Launched {
    /// Starts the waiting child.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(binary: &Path, command: &[OsString]) -> anyhow::Result<Launched> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .context("socket pair")?;
        // The child inherits the descriptor through the first exec; the second exec closes it.
        fcntl_setfd(&theirs, FdFlags::empty()).context("socket pair")?;
        let name = command.first().map_or(String::new(), |first| first.display().to_string());
        let child = Command::new(binary)
            .arg(ARGUMENT)
            .arg(theirs.as_raw_fd().to_string())
            .args(command)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Launched { child, command: name, socket, released: false })
    }

    /// The pid of the child, which the command keeps.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the child execute the command. Further calls do nothing.
    pub fn release(&mut self) {
        if !std::mem::replace(&mut self.released, true) {
            // The send fails if the child is gone; then `has_ended` is true.
            let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL);
        }
    }

    /// Whether the command could be executed, as far as is known by now.
    ///
    /// # Errors
    /// The reason why exec failed.
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

    /// Whether the command has ended. Does not reap the child: the kernel would add its CPU time to jbpf-prof's.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), look), Ok(None))
    }
}

/// The main function of the child: waits for the byte, then executes the command. Returns only on failure, with the
/// exit code that shells use for it.
#[must_use]
pub fn child_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let Some(fd) = args.next().and_then(|a| a.to_str().and_then(|a| a.parse::<i32>().ok())) else { return 2 };
    let Some(command) = args.next() else { return 2 };
    let Some(socket) = wait_at(fd) else { return 1 }; // the profiler ended before the start
    let error = Command::new(&command).args(args).exec();
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    // The profiler may be gone.
    let _ = send(&socket, &number.to_ne_bytes(), SendFlags::NOSIGNAL);
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// Waits for the byte; returns the socket, which the next exec closes.
#[allow(unsafe_code, reason = "takes a descriptor by its number")]
fn wait_at(fd: i32) -> Option<OwnedFd> {
    // SAFETY: our parent passed this descriptor for this purpose only; nothing else in this process owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut byte = [0u8; 1];
    let word = rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut byte));
    (matches!(word, Ok(1)) && fcntl_setfd(&socket, FdFlags::CLOEXEC).is_ok()).then_some(socket)
}
