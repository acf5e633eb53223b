//! A call of a helper: starts one for a JVM, gives it a deadline, and cleans up after it.

use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::attach_options::AttachOptions;
use super::discover::Jvm;
use super::helper;
use super::message::{HelperReply, HelperRequest, HelperTask, receive, send};
use super::refusal::Refusal;
use crate::process::channel::{Channel, Received};
use crate::process::child::{ChildProcess, first_readable, is_readable};

/// A helper keeps its own deadline; it is killed this much later.
const GRACE: Duration = Duration::from_millis(300);
/// How long a killed helper may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long cleaning up may take: in an interrupted helper, or after a killed helper.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Killed helpers that have not exited, because the kernel blocks them, each with the pid of its JVM.
static STUCK: Mutex<Vec<(u32, Child)>> = Mutex::new(Vec::new());

/// Runs one helper, unless the request is interrupted before that. If a helper was killed or died during an attach,
/// another helper cleans up after it.
pub(super) fn call_helper(
    jvm: &Jvm,
    options: &AttachOptions,
    timeout: Duration,
    task: HelperTask,
) -> Result<Received<HelperReply>, Refusal> {
    let tgid = jvm.process.tgid;
    if is_stuck(tgid) {
        return Err(Refusal::HelperStuck);
    }
    if options.is_interrupted() {
        return Err(Refusal::Interrupted);
    }
    let request = HelperRequest {
        tgid,
        start_ticks: jvm.start_ticks,
        mapped: jvm.mapped,
        base: jvm.base,
        libjvm: jvm.libjvm.as_os_str().as_bytes().to_vec(),
        parent: std::process::id(),
        timeout,
        task,
    };
    let child = ChildProcess::start(&options.binary, helper::ARGUMENT)
        .map_err(|e| Refusal::of_own("starting the helper", &e))?;
    let answer = send(&child.channel, &request, &[])
        .and_then(|()| await_reply(&child.channel, timeout + GRACE, options));
    part_from(tgid, child);
    if let (Err(_), HelperTask::Attach(order)) = (&answer, request.task) {
        let to_its_end = AttachOptions { interrupt: None, ..options.clone() };
        let _ = call_helper(jvm, &to_its_end, CLEANUP_TIMEOUT, HelperTask::Clean(order.file_name));
    }
    answer
}

/// Waits for a helper's reply. An interrupted helper is notified by the closed side of the socket and cleans up itself:
/// it knows which files it made.
fn await_reply(
    channel: &Channel<UnixStream>,
    timeout: Duration,
    options: &AttachOptions,
) -> Result<Received<HelperReply>, Refusal> {
    let socket = &channel.0;
    let interrupt = options.interrupt.as_deref().map(OwnedFd::as_fd);
    let both: Vec<BorrowedFd<'_>> = iter::once(socket.as_fd()).chain(interrupt).collect();
    match first_readable(&both, timeout) {
        None => return Err(Refusal::TimedOut),
        Some(0) => {}
        Some(_) => {
            let is_closed = shutdown(socket, Shutdown::Write).is_ok();
            if !is_closed || !is_readable(socket, CLEANUP_TIMEOUT) {
                return Err(Refusal::Interrupted);
            }
        }
    }
    // The helper has begun to reply: the remainder is small.
    receive(channel, Some(Instant::now() + CLEANUP_TIMEOUT)).map_err(|refusal| match refusal {
        // A service manager that kills all processes of the service at once, including the helper, causes this.
        Refusal::HelperFailed(_) if options.is_interrupted() => Refusal::Interrupted,
        refusal => refusal,
    })
}

/// Ends a helper that has replied, or whose time is over.
fn part_from(tgid: u32, child: ChildProcess) {
    if let Some(child) = child.end(EXIT_TIMEOUT) {
        STUCK.lock().unwrap_or_else(PoisonError::into_inner).push((tgid, child));
    }
}

/// Whether an earlier helper for this process still hangs.
fn is_stuck(tgid: u32) -> bool {
    let mut stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    stuck.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    stuck.iter().any(|(of, _)| *of == tgid)
}
